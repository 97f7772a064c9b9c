import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
    TransformComponent,
)

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Scope
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    DuplicateNodeError,
    IngestionError,
    ModelMismatchError,
    StoreClosedError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base import copy_knowledge_base, documents
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.conftest import PickyEmbedding
from tests.knowledge_base.engines import EMBEDDED
from tests.knowledge_base.nodes import LONG, node_of
from tests.programs import run_program

Open = Callable[..., KnowledgeBase]


class Picky(TransformComponent):
    """Fails for a batch with a bad document in it."""

    def __call__(self, nodes: Sequence[BaseNode], **_: object) -> Sequence[BaseNode]:
        if any("unsplittable" in node.get_content() for node in nodes):
            raise ValueError("cannot be split")
        return SentenceSplitter()(nodes)


# What fails, and how; the first of them before anything is stored.
BAD: list[tuple[BaseNode, type[Exception]]] = [
    (TextNode(id_="bad", text="x", embedding=[0.5] * 3), DimensionMismatchError),
    (TextNode(id_="bad", text="unembeddable"), TimeoutError),
    (TextNode(id_="bad", text="not-a-number"), ConfigurationError),
    (TextNode(id_="bad", text="x", embedding=[math.nan] * 16), ConfigurationError),
    (TextNode(id_="bad", text="x", embedding=[math.inf] + [0.0] * 15), ConfigurationError),
    (TextNode(id_="bad", text="x", embedding=[]), ConfigurationError),
    (TextNode(id_="bad", text="x", metadata={"what": object()}), ConfigurationError),
    (Document(id_="bad", text="unsplittable"), ValueError),
    (Document(id_="bad", text="x", metadata={"long": "word " * 2000}), ValueError),
]


@pytest.mark.slow
def test_failed_documents_are_reported_and_the_others_stored(open_kb: Open) -> None:
    kb = open_kb(transformations=[Picky()])
    for number, (bad, error) in enumerate(BAD):
        first, last = (Document(id_=f"{number}{end}", text="annual leave") for end in "ab")
        report = kb.add([first, bad, last])
        assert (report.added, list(report.failures)) == (2, ["bad"]), bad
        assert isinstance(report.failures["bad"], error)
    good = [f"{number}{end}" for number in range(len(BAD)) for end in "ab"]
    assert [document.document_id for document in kb.documents()] == good
    hits = kb.retriever("keyword", top_k=100).retrieve("leave")
    assert kb.count() == len(hits) == len(good)


def test_a_document_with_embeddings_of_two_dimensions_does_not_decide_which_is_right(
    kb: KnowledgeBase,
) -> None:
    mixed = [node_of("mixed", str(n), "leave", embedding=[0.5] * n) for n in (3, 16)]
    assert isinstance(kb.add(mixed).failures["mixed"], DimensionMismatchError)
    report = kb.add([*mixed, TextNode(id_="n", text="leave", embedding=[0.5] * 16)])
    assert (report.added, list(report.failures)) == (1, ["mixed"])


def test_an_error_of_the_store_is_raised_and_is_no_failure_of_a_long_document(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(documents, "LONG", 3000)
    kb.add([Document(id_="long", text=LONG)])
    monkeypatch.setattr(EmbeddedVectorStore, "get_nodes", fail)
    with pytest.raises(StoreUnavailableError, match="gone"):
        kb.add([Document(id_="long", text=LONG + " More leave.")])


def test_a_failed_document_keeps_its_old_version_until_it_is_added_again(kb: KnowledgeBase) -> None:
    kb.add([TextNode(id_="n", text="leave")])
    report = kb.add([TextNode(id_="n", text="unembeddable")])
    assert list(report.failures) == ["n"]
    assert kb.retriever("keyword").retrieve("leave")[0].node_id == "n"
    assert kb.add([TextNode(id_="n", text="canteen")]).updated == 1


def test_raise_for_failures_raises_the_errors_of_documents(kb: KnowledgeBase) -> None:
    report = kb.add([TextNode(id_=f"n{n}", text="unembeddable") for n in range(5)])
    with pytest.raises(IngestionError, match=r"5 documents .*'n0': TimeoutError.*and 2 more") as e:
        report.raise_for_failures()
    assert set(e.value.failures) == {"n0", "n1", "n2", "n3", "n4"}
    fine = kb.add([TextNode(id_="n", text="leave")])
    assert fine.raise_for_failures() is fine


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_a_document_without_text_is_reported_as_skipped(kb: KnowledgeBase, text: str) -> None:
    report = kb.add([Document(id_="d", text=text), TextNode(id_="n", text=text)])
    assert report.skipped == {"d": "no text", "n": "no text"}
    assert (report.added, report.failures, kb.documents()) == (0, {}, [])
    assert "2 skipped" in str(report)


def test_a_document_that_lost_its_text_loses_its_nodes(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="d", text="leave")])
    assert kb.add([Document(id_="d", text="")]).skipped == {"d": "no text"}
    assert (kb.count(), kb.retriever("keyword").retrieve("leave")) == (0, [])


def test_an_error_of_the_iterator_is_raised_and_stored_documents_stay(kb: KnowledgeBase) -> None:
    def reader() -> Iterator[Document]:
        for number in range(100):
            yield Document(id_=f"d{number}", text="leave")
        raise UnicodeError("the file cannot be read")

    with pytest.raises(UnicodeError):
        kb.add(reader())
    assert kb.count() == 64


def test_two_nodes_of_a_document_with_one_id_are_an_error(kb: KnowledgeBase) -> None:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")}
    nodes = [TextNode(id_="n", text=text, relationships=source) for text in ("leave", "canteen")]
    report = kb.add(nodes)
    assert isinstance(report.failures["d"], DuplicateNodeError)
    assert kb.count() == 0


def test_a_node_with_several_sources_is_an_error(kb: KnowledgeBase) -> None:
    sources = [RelatedNodeInfo(node_id="a"), RelatedNodeInfo(node_id="b")]
    node = TextNode(id_="n", text="leave", relationships={NodeRelationship.SOURCE: sources})
    assert list(kb.add([node]).failures) == ["n"]


@pytest.mark.parametrize("id_", ["\udc80.txt", "a\0b", ""])
def test_an_id_that_cannot_be_stored_is_an_error(kb: KnowledgeBase, id_: str) -> None:
    report = kb.add([Document(id_=id_, text="leave"), Document(id_="d", text="leave")])
    assert (report.added, list(report.failures)) == (1, [id_])


def test_a_document_with_very_many_keys_of_metadata_fails_alone(kb: KnowledgeBase) -> None:
    keys = {f"k{number}": number for number in range(1001)}
    document = Document(id_="a", text="leave", metadata=keys)
    node = TextNode(id_="b", text="leave", metadata={"of": [keys]})
    report = kb.add([document, node, Document(id_="c", text="leave")])
    assert {*report.failures} == {"a", "b"}
    assert all("more than 1,000 keys" in str(error) for error in report.failures.values())
    assert report.added == 1


def test_text_with_lone_surrogates_is_stored(kb: KnowledgeBase) -> None:
    report = kb.add([TextNode(id_="n", text="leave \udc80")])
    assert report.added == 1
    assert kb.add([TextNode(id_="n", text="leave \udc80")]).unchanged == 1


@EMBEDDED
def test_a_model_of_another_dimension_adds_nothing(open_kb: Open, model: FakeEmbedding) -> None:
    kb = open_kb()
    kb.add([Document(id_="d", text="leave")])
    model.dim = 8  # as a model may that is served under the same name
    with pytest.raises(ModelMismatchError, match=r"dimension 8.*dimension 16"):
        kb.add([Document(id_="e", text="leave")])
    assert kb.count() == 1


@cases("ref_doc_id", ["", None, 3])
def test_deleting_without_an_id_is_refused(kb: KnowledgeBase, ref_doc_id: object) -> None:
    with pytest.raises(ConfigurationError, match="id of a document"):
        kb.delete(ref_doc_id)  # type: ignore[arg-type]


@EMBEDDED
def test_using_a_closed_knowledge_base_is_an_error(open_kb: Open) -> None:
    kb = open_kb()
    retriever = kb.retriever("keyword")
    kb.close()
    kb.close()
    calls: list[Callable[[], object]] = [
        lambda: kb.add([Document(text="x")]),
        lambda: kb.delete("d"),
        lambda: kb.retriever("vector"),
        kb.documents,
        kb.count,
        lambda: retriever.retrieve("leave"),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()
    assert "closed" in repr(kb)


@EMBEDDED
def test_transformations_of_another_type_are_refused(open_kb: Open) -> None:
    with pytest.raises(ConfigurationError, match="transformations, got str"):
        open_kb(transformations=["sentences"])


@EMBEDDED
def test_a_transformation_that_repeats_a_node_fails_only_that_document(open_kb: Open) -> None:
    class Repeats(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **_: object) -> Sequence[BaseNode]:
            return [
                each for node in nodes for each in [node] * (2 if node.get_content() == "x" else 1)
            ]

    kb = open_kb(transformations=[Repeats()])
    report = kb.add([Document(id_="twice", text="x"), Document(id_="once", text="y")])
    assert report.added == 1
    assert isinstance(report.failures["twice"], DuplicateNodeError)


@pytest.mark.slow
def test_the_model_decides_the_dimension_and_an_empty_knowledge_base_has_none(
    open_kb: Open,
) -> None:
    kb = open_kb(embed_model=MockEmbedding(4))
    wrong = TextNode(id_="n", text="x", embedding=[1.0, 2.0, 3.0])
    assert isinstance(kb.add([wrong]).failures["n"], DimensionMismatchError)
    assert kb.info().dimension is None
    assert kb.add([Document(id_="y", text="y")]).added == 1
    kb.delete("y")
    assert kb.info().dimension is None
    kb.close()
    kb = open_kb(embed_model=MockEmbedding(5))
    assert kb.add([Document(id_="y", text="y")]).added == 1
    kb.clear()
    assert kb.info().dimension is None


OLD = LocalEmbedding()
ACME = Scope("acme")
SENTENCES = " ".join(f"Sentence number {number} is about leave." for number in range(200))


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    return [f"embedded:{tmp_path / name}" for name in ("old", "new")]


@pytest.fixture
def new() -> PickyEmbedding:
    return PickyEmbedding(dim=16)


def pages(n: int = 3) -> list[BaseNode]:
    made = [
        Document(id_=f"d{number}", text=f"Page {number} about rule {number * 7}.")
        for number in range(n)
    ]
    return [Document(id_="long", text=SENTENCES, metadata={"title": "Leave"}), *made]


def fill(url: str, model: Any, nodes: Sequence[BaseNode], **options: Any) -> None:
    with KnowledgeBase.open(url, embed_model=model, **options) as kb:
        kb.add(nodes, scope=ACME, show_progress=False).raise_for_failures()


def vectors(url: str) -> dict[str, list[float]]:
    with EmbeddedVectorStore(url.partition(":")[2]) as store:
        return {node.node_id: node.get_embedding() for node in store.get_nodes()}


@pytest.mark.slow
def test_texts_embedded_anew_are_those_of_a_fresh_build(
    urls: list[str], new: PickyEmbedding, tmp_path: Path
) -> None:
    fill(urls[0], OLD, pages())
    report = copy_knowledge_base(*urls, embed_model=new, show_progress=False)
    assert (report.copied, report.failures) == (4, {})
    fresh = f"embedded:{tmp_path / 'fresh'}"
    fill(fresh, new, pages())
    assert vectors(urls[1]) == vectors(fresh)
    with KnowledgeBase.open(urls[1], embed_model=new) as kb:
        assert kb.info().dimension == 16
        assert kb.add(pages(), scope=ACME, show_progress=False).unchanged == 4
        assert kb.search("Page 2 about rule 14.", "vector", top_k=1, scope=ACME)[0].text.endswith(
            "rule 14."
        )


# Killed while the texts of a batch are embedded, and between the nodes of a batch and the ledger.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.knowledge_base.conftest import PickyEmbedding

places = {"embed": (PickyEmbedding, "_embed"), "store": (EmbeddedVectorStore, "add_rows")}
kind, method = places[sys.argv[2]]
original, left = getattr(kind, method), [int(sys.argv[3])]

def killing(*args, **kwargs):
    result = original(*args, **kwargs)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(kind, method, killing)
model = PickyEmbedding(dim=16)
copy_knowledge_base(*sys.argv[4:], embed_model=model, show_progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("where", "at"), [("embed", 130), ("store", 2)])
def test_a_copy_whose_process_was_killed_goes_on(
    urls: list[str], new: PickyEmbedding, where: str, at: int
) -> None:
    fill(urls[0], OLD, pages(150))
    root = str(Path(__file__).parents[2])
    killed = run_program(KILLED, root, where, at, *urls)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    report = copy_knowledge_base(*urls, embed_model=new, show_progress=False)
    assert (report.copied + report.unchanged, report.failures) == (151, {})
    assert report.unchanged > 0
    made = vectors(urls[1])
    assert len(new.calls) <= len(made) - 90  # a batch that was stored is not embedded again
    with EmbeddedVectorStore(urls[0].partition(":")[2]) as store:
        texts = {node.node_id: node.get_content(MetadataMode.EMBED) for node in store.get_nodes()}
    assert made.keys() == texts.keys()
    for id_, text in texts.items():
        assert made[id_] == pytest.approx(new.get_text_embedding(text))


@pytest.mark.slow
def test_the_estimate_is_shown_before_and_with_the_time_after_a_hundred_nodes(
    urls: list[str], new: PickyEmbedding, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(urls[0], OLD, pages(110))
    copy_knowledge_base(*urls, embed_model=new)
    first, second, *_ = [line for line in capsys.readouterr().err.splitlines() if "about" in line]
    n_nodes = len(vectors(urls[1]))
    assert first.startswith(f"Embedding {n_nodes} nodes, about ")
    assert first.endswith(" tokens with PickyEmbedding")
    assert second.startswith(first + ", about ")
    assert second.endswith(" s more")


@pytest.mark.slow
def test_documents_that_the_new_model_cannot_embed_are_reported(
    urls: list[str], new: PickyEmbedding
) -> None:
    picture = TextNode(id_="picture", text="", embedding=[0.5] * 256)
    fill(urls[0], OLD, [*pages(), Document(id_="bad", text="unembeddable"), picture])
    report = copy_knowledge_base(*urls, embed_model=new, show_progress=False)
    failures = {name.partition(" ")[0]: str(error) for name, error in report.failures.items()}
    assert report.copied == 4
    assert failures["bad"] == "the model did not answer"
    assert "has a node without text" in failures["picture"]
