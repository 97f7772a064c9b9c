"""The contents of a knowledge base: sources, documents, metadata, and the index."""

from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext import Collapse, KnowledgeBase, Query, Scope, read_documents
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import EMBEDDED

Open = Callable[..., KnowledgeBase]
ACME = Scope("acme")
HANDBOOK, STAFF = "/hr/handbook.pdf", "/hr/staff.csv"


def parts(file: str, *texts: str, **metadata: object) -> list[Document]:
    return [
        Document(id_=f"{file}_part_{n}", text=text, metadata={"file_path": file, **metadata})
        for n, text in enumerate(texts)
    ]


def filled(kb: KnowledgeBase, scope: Scope | None = None) -> KnowledgeBase:
    pages = parts(HANDBOOK, "annual leave days", "annual leave of parents", "leave on sundays")
    rows = parts(STAFF, "annual leave of Ann", "Bob")
    note = Document(id_="note", text="annual leave")
    kb.add([*pages, *rows, note], scope=scope, show_progress=False)
    return kb


def names(kb: KnowledgeBase) -> dict[str, tuple[int, int]]:
    return {source.source: (source.documents, source.nodes) for source in kb.sources()}


def test_all_documents_of_a_file_are_deleted_by_its_path_and_one_by_its_id(open_kb: Open) -> None:
    kb = filled(open_kb())
    assert names(kb) == {HANDBOOK: (3, 3), STAFF: (2, 2), "note": (1, 1)}
    assert kb.delete(f"{HANDBOOK}_part_1") == 1
    assert kb.delete(HANDBOOK) == 2
    assert kb.get(HANDBOOK) == []
    assert kb.search("sundays", "keyword").hits == []
    with open_kb() as again:  # also in what is stored
        assert names(again) == {STAFF: (2, 2), "note": (1, 1)}
        assert again.delete(HANDBOOK) == 0
        assert [again.delete(name) for name in ("note", STAFF)] == [1, 2]
        assert again.count() == 0


def test_a_name_that_a_search_prints_is_a_name_of_every_call(open_kb: Open) -> None:
    kb, here = open_kb(), "/docs/sub/leave.md"
    for path in ("/docs/leave.md", here):
        kb.add(parts(path, f"leave of {path}"), show_progress=False)
    kb.add(parts("/secret/leave.md", "secret"), scope=ACME, allowed=["hr"], show_progress=False)
    for call in (kb.get, kb.delete, lambda name: kb.share(name, allowed=None)):
        with pytest.raises(ConfigurationError) as ambiguous:
            call("leave.md")
        assert str(ambiguous.value) == (
            "'leave.md' names 2 files; write one of '/docs/leave.md', '/docs/sub/leave.md'"
        )
    assert [node.get_content() for node in kb.get("sub/leave.md")] == [f"leave of {here}"]
    assert kb.share("sub/leave.md", allowed=["hr"]) == 1
    assert kb.delete("./sub/leave.md") == 1
    assert len(kb.get("leave.md")) == 1
    assert kb.get("ve.md") == []
    assert kb.get("leave.md", scope=Scope("acme", principals=["sales"])) == []  # hidden: not there
    assert len(kb.get("leave.md", scope=Scope("acme", principals=["hr"]))) == 1


def test_the_same_path_in_another_scope_is_another_source(open_kb: Open) -> None:
    kb = filled(filled(open_kb()), ACME)
    assert {(source.source, source.scope) for source in kb.sources(scope=ACME)} == {
        (name, ACME) for name in (HANDBOOK, STAFF, "note")
    }
    assert len(kb.sources()) == 6
    assert kb.delete(STAFF, scope=ACME) == 2
    assert len(kb.get(STAFF)) == 2


@EMBEDDED
def test_a_file_can_be_named_by_its_relative_path(
    open_kb: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leave.md").write_text("25 days of leave")
    kb = open_kb()
    kb.add(read_documents("leave.md"), show_progress=False)
    assert [node.get_content() for node in kb.get("leave.md")] == ["25 days of leave"]
    assert kb.delete("leave.md") == 1


@EMBEDDED
def test_documents_have_their_source_and_nodes_their_order(open_kb: Open) -> None:
    kb = filled(open_kb())
    assert {document.document_id: document.source for document in kb.documents()} == {
        **{f"{HANDBOOK}_part_{n}": HANDBOOK for n in range(3)},
        **{f"{STAFF}_part_{n}": STAFF for n in range(2)},
        "note": "note",
    }
    assert [node.ref_doc_id for node in kb.get(HANDBOOK)] == [
        f"{HANDBOOK}_part_{n}" for n in range(3)
    ]
    assert [node.get_content() for node in kb.get("note")] == ["annual leave"]


@pytest.mark.slow
@EMBEDDED
@cases("mode", ["vector", "keyword", "hybrid"])
def test_pages_of_a_file_collapse_to_one_hit(open_kb: Open, mode: Kind) -> None:
    kb = filled(open_kb())
    hits = kb.search("annual leave", mode, top_k=3, collapse=Collapse()).hits
    assert {hit.metadata.get("file_path", "note") for hit in hits} == {HANDBOOK, STAFF, "note"}
    assert len(kb.search("annual leave", mode, top_k=9, collapse=Collapse(2)).hits) >= 4


@EMBEDDED
def test_metadata_fields_count_the_types_of_values(open_kb: Open) -> None:
    kb = open_kb()
    kb.add(
        [
            *parts("a", "one", "two", page_label=1, of=["leave"]),
            *parts("b", "three", page_label="1", draft=True, weight=0.5),
        ],
        show_progress=False,
    )
    assert kb.metadata_fields() == {
        "draft": {"bool": 1},
        "file_path": {"str": 3},
        "of": {"list": 2},
        "page_label": {"int": 2, "str": 1},
        "weight": {"float": 1},
    }
    assert kb.metadata_fields(scope=ACME) == {}
    assert sum(kb.metadata_fields(sample=2)["file_path"].values()) == 2


@EMBEDDED
def test_info_and_repr_show_settings_and_counts(open_kb: Open, url: str) -> None:
    kb = filled(open_kb())
    info = kb.info()
    assert (info.url, info.engine, info.embed_model) == (url, "embedded", "PickyEmbedding")
    assert (info.documents, info.sources, info.nodes, info.dimension) == (6, 3, 6, 16)
    assert info.size_bytes is not None
    assert 1000 < info.size_bytes < 2**25  # what it takes, not what the engine reserves
    assert (info.require_scope, info.many_tenants) == (False, False)
    assert repr(kb) == f"KnowledgeBase({url!r}, 6 documents, 6 nodes, 'PickyEmbedding')"


@pytest.mark.slow
def test_info_says_how_the_last_documents_were_split(open_kb: Open) -> None:
    kb = open_kb()
    kb.add([TextNode(id_="n", text="leave")], show_progress=False)
    assert kb.info().splitting == ""
    kb.add([Document(id_="d", text="leave")], show_progress=False)
    passages = "PassageParser(chunk_size=512, chunk_overlap=64), code by classes and functions"
    assert kb.info().splitting == passages
    kb.close()
    small = open_kb(transformations=[SentenceSplitter(chunk_size=128, chunk_overlap=0)])
    assert small.info().splitting == passages
    assert small.add([Document(id_="d", text="leave")], show_progress=False).updated == 1
    assert small.info().splitting == "SentenceSplitter(chunk_size=128, chunk_overlap=0)"


@pytest.mark.slow
def test_index_indexes_all_nodes_and_info_shows_it(tmp_path: Path) -> None:
    documents = [Document(id_=f"d{n}", text=f"leave of {n} days") for n in range(60)]
    params = {"vectors": "int8", "index": "hnsw"}
    model = FakeEmbedding()
    with KnowledgeBase.open(
        f"embedded:{tmp_path}/kb", embed_model=model, store_params=params
    ) as kb:
        kb.add(documents, show_progress=False).raise_for_failures()
        info = kb.info().index
        assert info is not None
        assert (info.vectors, info.index, info.indexed) == ("int8", "hnsw", 0)
        assert kb.index().indexed == kb.count() == 60
        assert kb.check_recall(20, top_k=5) >= 0.98
        found = kb.search("leave of 7 days").hits
        assert {hit.node.ref_doc_id for hit in found}
        exact = kb.retriever("vector").explain(Query("leave of 7 days", exact=True))
        assert "'exact'" in str(exact.to_dict())
    with KnowledgeBase.open(f"embedded:{tmp_path}/kb", embed_model=model) as kb:
        assert (kb.count(), kb.info().index) == (60, kb.index())


@pytest.mark.slow
def test_index_is_refused_on_other_engines(tmp_path: Path) -> None:
    pytest.importorskip("qdrant_client")
    with KnowledgeBase.open(f"qdrant:{tmp_path}/q", embed_model=FakeEmbedding()) as kb:
        assert kb.info().index is None
        with pytest.raises(UnsupportedModeError, match="builds its index by itself"):
            kb.index()


@cases("document_id", ["~nobody-has-this-name", "~", "nul\0byte", "a\nb"])
def test_an_id_from_elsewhere_is_never_read_as_a_path(document_id: str) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        assert kb.get(document_id) == []
        assert kb.delete(document_id) == 0
        kb.add([Document(id_="~", text="Tilde.")], show_progress=False)
        assert [node.get_content() for node in kb.get("~")] == ["Tilde."]
