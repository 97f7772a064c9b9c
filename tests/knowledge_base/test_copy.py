"""Knowledge bases that move from engine to engine."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode

from llama_retrieval_ext import KnowledgeBase, Scope, open_store
from llama_retrieval_ext.errors import (
    ConfigurationError,
    IngestionError,
    ModelMismatchError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base import storage
from llama_retrieval_ext.knowledge_base.copy import _sample, _source, copy_knowledge_base
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.text import Tokenizer
from tests.knowledge_base.conftest import PickyEmbedding
from tests.knowledge_base.engines import SERVERS, place

pytestmark = pytest.mark.slow

ACME, GLOBEX = Scope("acme", kb_ids=["手册"]), Scope("globex")
LONG = " ".join(f"Sentence number {number} is about leave." for number in range(200))


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    """Two places on the embedded engine."""
    return [f"embedded:{tmp_path / name}" for name in ("one", "two")]


def documents() -> list[BaseNode]:
    return [
        Document(id_="leave", text=LONG, metadata={"year": 2024, "tags": ["hr", "假"]}),
        Document(id_="年假", text="员工每年享有二十五天年假。", metadata={"法": '第"3"条\\'}),
        TextNode(id_="n'1", text="annual leave", embedding=[0.5, 2.0] * 8),
    ]


def fill(url: str, model: FakeEmbedding, **options: Any) -> None:
    with KnowledgeBase.open(url, embed_model=model, **options) as kb:
        for scope in (ACME, GLOBEX):
            renamed = [
                document.model_copy(update={"id_": f"{scope.tenant_id} {document.node_id}"})
                if isinstance(document, TextNode) and not isinstance(document, Document)
                else document
                for document in documents()
            ]
            kb.add(renamed, scope=scope, show_progress=False).raise_for_failures()


def answers(url: str, model: FakeEmbedding, **options: Any) -> list[list[tuple[str, str]]]:
    """Ids and texts of hits, by vector and by keyword, for each scope."""
    kinds: list[tuple[Kind, int]] = [("vector", 50), ("keyword", 50)]
    with KnowledgeBase.open(url, embed_model=model, must_exist=True, **options) as kb:
        return [
            [
                (hit.node_id, hit.node.get_content(MetadataMode.ALL))
                for hit in kb.retriever(kind, top_k=top_k, scope=scope).retrieve(question)
            ]
            for kind, top_k in kinds
            for question in ("annual leave", "年假有几天", "sentence number 17")
            for scope in (ACME, GLOBEX)
        ]


@pytest.fixture
def chain(urls: list[str], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """One place on each engine, and a last one on the first."""
    with ExitStack() as places:
        yield [
            urls[0],
            *(places.enter_context(place(server, tmp_path, request)) for server in SERVERS),
            urls[1],
        ]


@pytest.mark.slow
def test_a_knowledge_base_copied_through_all_engines_is_the_same(
    servers: None, chain: list[str], model: PickyEmbedding
) -> None:
    fill(chain[0], model, require_scope=True, tokenizer=Tokenizer(language="none"))
    before, stored = answers(chain[0], model, require_scope=True), nodes_at(chain[0])
    model.calls.clear()
    for source, target in pairwise(chain):
        report = copy_knowledge_base(source, target, show_progress=False)
        assert (report.copied, report.unchanged, report.failures) == (6, 0, {})
    assert model.calls == []
    for url in chain[1:]:
        with pytest.raises(ConfigurationError, match="require_scope"):
            KnowledgeBase.open(url, embed_model=model, require_scope=False)
        for id_, node in nodes_at(url).items():
            assert node.get_embedding() == pytest.approx(stored[id_].get_embedding(), abs=1e-6)
            assert bare(node) == bare(stored[id_])
        after = answers(url, model, require_scope=True)
        # By keyword, engines weigh what is rare a little differently: sets, where all is found.
        assert [dict(each) for each in after[:6]] == [dict(each) for each in before[:6]]
        assert [bool(each) for each in after] == [bool(each) for each in before]
        fill_again(url, model)
    assert answers(chain[-1], model, require_scope=True) == before


def nodes_at(url: str) -> dict[str, BaseNode]:
    with open_store(url) as store:
        return {node.node_id: node for node in store.get_nodes()}


def bare(node: BaseNode) -> BaseNode:
    return node.model_copy(update={"embedding": None})


def fill_again(url: str, model: FakeEmbedding) -> None:
    """What was copied counts as there."""
    calls = len(model.calls)
    with KnowledgeBase.open(url, embed_model=model, require_scope=True) as kb:
        assert kb.add(documents()[:2], scope=ACME, show_progress=False).unchanged == 2
        assert {document.kb_id for document in kb.documents(scope=Scope("acme"))} == {"手册"}
    assert len(model.calls) == calls


@pytest.fixture
def large(urls: list[str], model: PickyEmbedding) -> list[str]:
    """A knowledge base of many nodes, and the place of its copy."""
    nodes = [
        TextNode(id_=f"n{number}", text=f"leave {number}", embedding=[1.0, number / 9e2] * 8)
        for number in range(250)
    ]
    with KnowledgeBase.open(urls[0], embed_model=model) as kb:
        kb.add(nodes, show_progress=False)
    return urls


def test_an_interrupted_copy_continues_where_it_ended(
    large: list[str], model: PickyEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = EmbeddedVectorStore.add_rows, []

    def failing(store: EmbeddedVectorStore, rows: Sequence[BaseNode]) -> None:
        calls.append(len(rows))
        if len(calls) == 2:
            raise StoreUnavailableError("the disk is full")
        add(store, rows)

    monkeypatch.setattr(EmbeddedVectorStore, "add_rows", failing)
    monkeypatch.setattr(storage, "_MANY_NODES", 100)
    with pytest.raises(StoreUnavailableError, match="full"):
        copy_knowledge_base(*large, show_progress=False)
    report = copy_knowledge_base(*large, show_progress=False)
    assert (report.copied, report.unchanged) == (150, 100)
    assert calls == [100, 100, 100, 50]
    with KnowledgeBase.open(large[1], embed_model=model) as kb:
        assert len(kb.documents()) == kb.count() == 250


def test_a_repeated_copy_adds_new_documents_and_skips_the_others(
    urls: list[str], model: PickyEmbedding
) -> None:
    fill(urls[0], model)
    copy_knowledge_base(*urls, show_progress=False)
    with KnowledgeBase.open(urls[1], embed_model=model) as kb:
        kb.add([Document(id_="own", text="leave")], show_progress=False)
    with KnowledgeBase.open(urls[0], embed_model=model) as kb:
        kb.add([Document(id_="年假", text="没有年假。")], scope=ACME, show_progress=False)
    report = copy_knowledge_base(*urls, show_progress=False)
    assert (report.copied, report.unchanged) == (1, 5)
    with KnowledgeBase.open(urls[1], embed_model=model) as kb:
        assert len(kb.documents()) == 7
        hits = kb.retriever("keyword", scope=ACME).retrieve("年假")
        assert [hit.text for hit in hits] == ["没有年假。"]


def test_deleted_documents_are_counted_in_the_target_and_removed_with_mirror(
    urls: list[str], model: PickyEmbedding
) -> None:
    fill(urls[0], model)
    copy_knowledge_base(*urls, show_progress=False)
    with KnowledgeBase.open(urls[1], embed_model=model) as kb:
        kb.add([Document(id_="own", text="leave")], scope=ACME, show_progress=False)
    with KnowledgeBase.open(urls[0], embed_model=model) as kb:
        gone = kb.documents(scope=ACME)[0]
        kb.delete(gone.document_id, scope=ACME)
        left = kb.documents()
    report = copy_knowledge_base(*urls, show_progress=False)
    assert (report.copied, report.unchanged, report.removed, report.only_at_target) == (0, 5, 0, 2)
    assert str(report).endswith("; 2 only at the target")
    report = copy_knowledge_base(*urls, mirror=True, show_progress=False)
    assert (report.copied, report.unchanged, report.removed, report.only_at_target) == (0, 5, 2, 0)
    assert str(report).startswith("0 copied, 5 unchanged, 2 removed;")
    with KnowledgeBase.open(urls[1], embed_model=model) as kb:
        assert kb.documents() == left
    assert answers(urls[0], model) == answers(urls[1], model)


def test_mirror_keeps_documents_that_could_not_be_copied(
    urls: list[str], model: PickyEmbedding
) -> None:
    with KnowledgeBase.open(urls[0], embed_model=model) as kb:
        kb.add([Document(id_=name, text=f"leave {name}") for name in "abc"], show_progress=False)
    copy_knowledge_base(*urls, show_progress=False)
    with KnowledgeBase.open(urls[0], embed_model=model) as kb:
        kb.add([Document(id_="b", text="leave, changed")], show_progress=False)
    with EmbeddedVectorStore(urls[0].partition(":")[2]) as store:
        store.delete("b")
    report = copy_knowledge_base(*urls, mirror=True, show_progress=False)
    assert (list(report.failures), report.removed) == (["b"], 0)
    with KnowledgeBase.open(urls[1], embed_model=model) as kb:
        assert [each.text for each in kb.retriever("keyword").retrieve("b")] == ["leave b"]


def test_copying_to_a_target_with_another_model_is_refused(
    urls: list[str], model: PickyEmbedding
) -> None:
    fill(urls[0], model)
    fill(urls[1], FakeEmbedding(dim=16))
    with pytest.raises(ModelMismatchError, match=r"FakeEmbedding.*PickyEmbedding"):
        copy_knowledge_base(*urls, show_progress=False)


def test_copying_to_a_target_without_the_required_scope_is_refused(
    urls: list[str], model: PickyEmbedding
) -> None:
    fill(urls[0], model, require_scope=True)
    fill(urls[1], model)
    with pytest.raises(ConfigurationError, match="require_scope=False"):
        copy_knowledge_base(*urls, show_progress=False)


def test_copying_a_missing_knowledge_base_creates_nothing(urls: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="there is no knowledge base"):
        copy_knowledge_base(*urls)
    assert not any(Path(url.partition(":")[2]).exists() for url in urls)


def test_a_knowledge_base_is_not_copied_to_itself(urls: list[str], model: PickyEmbedding) -> None:
    fill(urls[0], model)
    other = f"{urls[0]}/../one"
    for pair in ((urls[0], other), ("qdrant://db/kb", "qdrant://db:6333/kb/?timeout_s=3")):
        with pytest.raises(ConfigurationError, match="are the same knowledge base"):
            copy_knowledge_base(*pair)


def test_a_document_without_its_nodes_is_reported_and_the_others_are_copied(
    urls: list[str], model: PickyEmbedding
) -> None:
    with KnowledgeBase.open(urls[0], embed_model=model) as kb:
        documents = [Document(id_=name, text=f"leave {name}") for name in "abc"]
        kb.add(documents, scope=ACME, show_progress=False)
    with EmbeddedVectorStore(urls[0].partition(":")[2]) as store:
        store.delete("b")
    report = copy_knowledge_base(*urls, show_progress=False)
    assert (report.copied, list(report.failures)) == (2, ["b (tenant 'acme', kb '手册')"])
    with pytest.raises(IngestionError, match="0 of its 1 node"):
        report.raise_for_failures()


@pytest.mark.parametrize("number", [0, 1])
def test_copies_from_and_to_memory_are_refused(
    urls: list[str], model: PickyEmbedding, number: int
) -> None:
    fill(urls[0], model)
    urls[number] = "embedded::memory:"
    with pytest.raises(ConfigurationError, match="is in memory"):
        copy_knowledge_base(*urls, show_progress=False)


def test_documents_missing_after_a_copy_are_an_error(
    urls: list[str], model: PickyEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(urls[0], model)
    add = EmbeddedVectorStore.add_rows
    monkeypatch.setattr(EmbeddedVectorStore, "add_rows", lambda store, rows: add(store, rows[1:]))
    with pytest.raises(StoreError, match=r"holds .* nodes where .* were written"):
        copy_knowledge_base(*urls, show_progress=False)


def test_an_empty_knowledge_base_can_be_copied(urls: list[str], model: PickyEmbedding) -> None:
    KnowledgeBase.open(urls[0], embed_model=model).close()
    assert copy_knowledge_base(*urls, show_progress=False).copied == 0
    with pytest.raises(ModelMismatchError):
        KnowledgeBase.open(urls[1], embed_model=FakeEmbedding(dim=16))


@pytest.mark.parametrize(("count", "least", "most"), [(1, 1, 1), (10, 5, 10), (100, 30, 30)])
def test_a_sample_is_spread_over_the_documents_and_has_at_most_the_requested_size(
    tmp_path: Path, model: PickyEmbedding, count: int, least: int, most: int
) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=model) as kb:
        kb.add([Document(id_=f"d{n}", text=f"Page {n}.") for n in range(30)], show_progress=False)
    with ExitStack() as resources:
        source, _ = _source(url, resources)
        sample = _sample(source, source.ledger.entries(), count)
    assert least <= len(sample) <= most
    assert len({node.ref_doc_id for node in sample}) == len(sample)
