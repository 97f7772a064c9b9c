"""Documents whose reader made up random ids are recognised when they are added again."""

import warnings
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from llama_index.core import SimpleDirectoryReader
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, MediaResource, TextNode

from llama_retrieval_ext.errors import UnstableIdWarning
from llama_retrieval_ext.knowledge_base import documents
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.readers.sample_files import write_pdf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "leave.md").write_text("# Leave\n\n25 days.\n\n# Sick leave\n\nCall at nine.\n")
    (folder / "staff.csv").write_text("name,role\nAnn,welder\nBob,clerk\n")
    write_pdf(folder / "law.pdf", "Exits must be marked.", "Drills are held twice a year.")
    return folder


def read(folder: Path) -> list[Document]:
    return SimpleDirectoryReader(str(folder)).load_data()


def section(text: str, file: str = "/far/a.md", **metadata: object) -> Document:
    """As a reader makes it."""
    return Document(id_=str(uuid4()), text=text, metadata={"file_path": file, **metadata})


def texts(kb: KnowledgeBase) -> list[str]:
    return [node.get_content() for source in kb.sources() for node in kb.get(source.source)]


def open_at(place: Path) -> KnowledgeBase:
    return KnowledgeBase.open(f"embedded:{place}", embed_model=FakeEmbedding(dim=16))


def test_a_folder_added_twice_is_stored_once_also_after_a_file_changed(
    folder: Path, tmp_path: Path
) -> None:
    documents = read(folder)
    with open_at(tmp_path / "kb") as kb:
        assert kb.add(documents, show_progress=False).added == len(documents)
        n_nodes = kb.count()
        kb.add(read(folder), show_progress=False)
        assert (len(kb.documents()), kb.count()) == (len(documents), n_nodes)
    (folder / "leave.md").write_text("# Leave\n\n30 days.\n\n# Sick leave\n\nCall at nine.\n")
    with open_at(tmp_path / "kb") as kb:  # and by another process
        kb.add(iter(read(folder)), show_progress=False)
        assert (len(kb.documents()), kb.count()) == (len(documents), n_nodes)
        assert not any("25 days" in text for text in texts(kb))
        assert any("30 days" in text for text in texts(kb))
        assert kb.delete(str(folder / "law.pdf")) == 2


def test_documents_of_a_file_that_are_added_one_by_one_do_not_replace_each_other(
    kb: KnowledgeBase,
) -> None:
    for _ in range(2):
        for text in ("Leave: 25 days.", "Sick leave.", "Canteen."):
            kb.add([section(text)], show_progress=False)
    assert sorted(texts(kb)) == ["Canteen.", "Leave: 25 days.", "Sick leave."]


def test_pages_are_recognised_by_their_label_in_any_order(kb: KnowledgeBase) -> None:
    first, second = (section(f"page {n}", page_label=str(n)) for n in (1, 2))
    kb.add([first, second], show_progress=False)
    again = [
        section("page 2, changed", page_label="2", file_size=9),
        section("page 1", page_label="1"),
    ]
    kb.add(again, show_progress=False)
    assert sorted(texts(kb)) == ["page 1", "page 2, changed"]


def test_the_same_file_in_another_scope_is_another_document(kb: KnowledgeBase) -> None:
    for tenant in ("acme", "globex"):
        kb.add([section("Leave")], scope=Scope(tenant), show_progress=False)
    assert len(kb.documents()) == 2
    assert {document.document_id for document in kb.documents()} == {"/far/a.md_part_0"}


@pytest.mark.parametrize("odd", [{"page_label": ["1"]}, {"tenant_id": {"a": 1}}])
def test_documents_with_unusual_metadata_get_stable_ids(
    kb: KnowledgeBase, odd: dict[str, Any]
) -> None:
    for _ in range(2):
        report = kb.add([section("Leave", **odd), section("x", "a\0b", **odd)], show_progress=False)
        assert list(report.failures) == [key for key in report.failures if "\0" in key]
    assert len(kb.documents()) == 1


def test_one_warning_if_documents_cannot_be_recognised(kb: KnowledgeBase) -> None:
    nodes = SentenceSplitter()([section("Leave")])  # of a random document
    with pytest.warns(UnstableIdWarning, match="read_documents") as caught:
        kb.add([*nodes, Document(text="Leave", metadata={"file_name": "a"})], show_progress=False)
    assert len(caught) == 1
    kb.add([Document(text="Sick", metadata={"file_name": "a"})], show_progress=False)  # no error


@pytest.mark.parametrize(
    "bare",
    [
        Document(text="y"),
        Document(text="y", metadata={"url": "https://a.example/"}),
        TextNode(text="y"),
    ],
)
def test_a_random_id_without_a_file_is_warned_of_and_kept(
    kb: KnowledgeBase, bare: BaseNode
) -> None:
    with pytest.warns(UnstableIdWarning, match="of a document is random"):
        kb.add([bare], show_progress=False)
    assert [document.document_id for document in kb.documents()] == [bare.node_id]


def test_chosen_ids_stay_without_a_warning(kb: KnowledgeBase) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kb.add([Document(id_="a", text="x", metadata={"file_path": "f"})], show_progress=False)
    assert "a" in {document.document_id for document in kb.documents()}


def test_everything_but_the_text_of_a_long_document_counts_as_a_change_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "LONG", 10)
    others = [{"mimetype": "text/html"}, {"path": "/a"}, {"url": "https://a.example/"}, {}]
    resources = [MediaResource.model_validate({"text": "long " * 9, **each}) for each in others]
    made = [Document(id_="d", text_resource=resource) for resource in resources]
    assert len({documents.digest_of([each]) for each in made}) == len(made)
