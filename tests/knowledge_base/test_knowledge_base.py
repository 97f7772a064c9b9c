"""The nodes of a document, on every engine."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode, TransformComponent
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext import KnowledgeBase, Query, Scope, VectorRetriever
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DuplicateNodeError,
    ScopeError,
    ScopeRequiredError,
)
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.nodes import book

Open = Callable[..., KnowledgeBase]
ACME, GLOBEX = Scope("acme"), Scope("globex")


def test_get_returns_nodes_in_the_order_of_the_text(open_kb: Open) -> None:
    kb = open_kb()
    kb.add([*reversed(book("a")), *book("b")], show_progress=False)
    nodes = kb.get("a")
    assert [node.node_id for node in nodes] == [f"a-{n}" for n in range(12)]
    assert all(len(node.get_embedding()) == 16 for node in nodes)
    assert kb.get("none") == []


def test_get_returns_only_documents_of_the_scope(open_kb: Open) -> None:
    kb = open_kb()
    for scope in (ACME, GLOBEX, None):
        kb.add([Document(id_="d", text=f"leave of {scope}")], scope=scope, show_progress=False)
    for scope in (ACME, GLOBEX, None):
        assert [each.get_content() for each in kb.get("d", scope=scope)] == [f"leave of {scope}"]
    assert kb.get("d", scope=Scope("umbrella")) == []


HANDBOOK = Scope("acme", kb_ids=["handbook"])


def texts(kb: KnowledgeBase, scope: Scope | None, kind: Kind = "keyword") -> list[str]:
    hits = kb.retriever(kind, scope=scope).retrieve("annual leave")
    return sorted(hit.node.get_content(MetadataMode.NONE) for hit in hits)


def test_a_node_id_of_another_tenant_is_refused_without_naming_it(kb: KnowledgeBase) -> None:
    kb.add([TextNode(id_="n", text="annual leave at acme")], scope=ACME)
    report = kb.add([TextNode(id_="n", text="annual leave at globex")], scope=GLOBEX)
    assert isinstance(report.failures["n"], DuplicateNodeError)
    assert "acme" not in str(report.failures["n"])
    assert texts(kb, ACME) == ["annual leave at acme"]
    assert texts(kb, GLOBEX) == []


@pytest.mark.parametrize("item", [Document(text="leave"), TextNode(text="leave")])
def test_the_scope_in_metadata_is_neither_embedded_nor_shown_to_an_llm(
    kb: KnowledgeBase, model: FakeEmbedding, item: Document | TextNode
) -> None:
    kb.add([item], scope=HANDBOOK)
    (hit,) = kb.retriever("keyword", scope=ACME).retrieve("leave")
    assert hit.node.metadata == {"tenant_id": "acme", "kb_id": "handbook"}
    assert hit.node.get_content(MetadataMode.LLM) == "leave"
    assert model.calls[0] == "leave"
    assert item.metadata == {}
    assert kb.retriever("keyword", scope=ACME).retrieve("acme handbook") == []


@pytest.mark.parametrize("item", [Document(id_="d", text="x"), TextNode(id_="d", text="x")])
def test_a_document_with_another_scope_in_its_metadata_is_refused(
    kb: KnowledgeBase, item: Document | TextNode
) -> None:
    claiming = item.model_copy(update={"metadata": {"tenant_id": "globex"}})
    report = kb.add([claiming, Document(id_="e", text="leave")], scope=ACME)
    assert isinstance(report.failures["d"], ScopeError)
    assert report.added == 1
    assert kb.count(scope=GLOBEX) == 0


def test_without_a_scope_metadata_decides_whose_a_document_is(kb: KnowledgeBase) -> None:
    for tenant in ("acme", "globex"):
        kb.add([Document(id_="d", text=f"leave at {tenant}", metadata={"tenant_id": tenant})])
    assert [document.tenant_id for document in kb.documents(scope=ACME)] == ["acme"]
    assert kb.delete("d") == 0
    assert kb.delete("d", scope=ACME) == 1
    assert [document.tenant_id for document in kb.documents()] == ["globex"]


def test_a_transformation_cannot_move_a_document_to_another_tenant(open_kb: Open) -> None:
    class Moving(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **_: object) -> Sequence[BaseNode]:
            for node in nodes:
                node.metadata["tenant_id"] = "globex"
            return nodes

    kb = open_kb(transformations=[Moving()])
    report = kb.add([Document(id_="d", text="leave")], scope=ACME)
    assert isinstance(report.failures["d"], ScopeError)
    assert isinstance(kb.add([Document(id_="d", text="leave")]).failures["d"], ScopeError)
    assert kb.count() == 0


def test_deleting_stays_within_the_scope(kb: KnowledgeBase) -> None:
    for scope in (ACME, GLOBEX, HANDBOOK, None):
        kb.add([Document(id_="d", text="annual leave")], scope=scope)
    assert kb.delete("d") == 1
    assert kb.count() == 3
    assert kb.delete("d", scope=Scope("acme", kb_ids=["other"])) == 0
    assert kb.delete("d", scope=ACME) == 2
    assert [document.tenant_id for document in kb.documents()] == ["globex"]


def test_a_document_lives_in_one_knowledge_base(kb: KnowledgeBase) -> None:
    with pytest.raises(ConfigurationError, match="one knowledge base"):
        kb.add([Document(text="x")], scope=Scope("acme", kb_ids=["a", "b"]))


@cases("kind", ["vector", "keyword", "hybrid"])
def test_a_required_scope_is_required_of_every_query(
    open_kb: Open, kind: Kind, model: FakeEmbedding
) -> None:
    kb = open_kb(require_scope=True)
    kb.add([Document(id_="d", text="annual leave")], scope=ACME)
    model.calls.clear()
    retriever = kb.retriever(kind)
    calls: list[Callable[[], object]] = [
        lambda: retriever.retrieve("annual leave"),
        lambda: retriever.retrieve(Query("annual leave")),
        lambda: retriever.retrieve(""),
        lambda: retriever.search("annual leave"),
        lambda: asyncio.run(retriever.aretrieve("annual leave")),
    ]
    for call in calls:
        with pytest.raises(ScopeRequiredError):
            call()
    assert model.calls == []
    assert len(retriever.for_scope(ACME).retrieve("annual leave")) == 1
    assert len(retriever.retrieve(Query("annual leave", scope=ACME))) == 1
    assert retriever.for_scope(GLOBEX).retrieve("annual leave") == []


def test_a_required_scope_is_required_of_retrievers_built_on_the_same_backend(
    open_kb: Open, model: FakeEmbedding
) -> None:
    kb = open_kb(require_scope=True)
    kb.add([Document(id_="d", text="annual leave")], scope=ACME)
    own = VectorRetriever(kb.retriever("hybrid").backend, embed_model=model)
    with pytest.raises(ScopeRequiredError):
        own.retrieve("annual leave")
    assert len(own.for_scope(ACME).retrieve("annual leave")) == 1


def test_a_required_scope_is_required_of_every_operation(open_kb: Open) -> None:
    kb = open_kb(require_scope=True)
    calls: list[Callable[[], object]] = [
        lambda: kb.add([Document(text="x", metadata={"tenant_id": "acme"})]),
        lambda: kb.delete("d"),
        lambda: kb.delete_where(MetadataFilters.from_dicts([{"key": "year", "value": 2022}])),
        lambda: kb.get("d"),
        kb.clear,
        kb.documents,
        kb.count,
    ]
    for call in calls:
        with pytest.raises(ScopeRequiredError):
            call()


@pytest.mark.slow
def test_a_required_scope_is_recorded_and_cannot_be_withdrawn(open_kb: Open) -> None:
    with open_kb(require_scope=True) as kb:
        kb.add([Document(text="leave")], scope=ACME)
    with pytest.raises(ConfigurationError, match="leave it out"):
        open_kb(require_scope=False)
    kb = open_kb()
    assert kb.info().require_scope
    for call in (kb.documents, kb.sources, kb.metadata_fields, lambda: kb.search("leave")):
        with pytest.raises(ScopeRequiredError):
            call()
    assert len(kb.search("leave", scope=ACME).hits) == 1


def test_a_scope_can_be_required_for_one_object_only(open_kb: Open) -> None:
    open_kb().close()
    with open_kb(require_scope=True) as strict, pytest.raises(ScopeRequiredError):
        strict.count()
    assert open_kb().count() == 0


def test_a_scope_of_another_type_is_refused_with_what_to_write(kb: KnowledgeBase) -> None:
    wrong: Any = "acme"
    calls: list[Callable[[], object]] = [
        lambda: kb.add([Document(text="x")], scope=wrong),
        lambda: kb.delete("d", scope=wrong),
        lambda: kb.documents(scope=wrong),
        lambda: kb.count(scope=wrong),
        lambda: kb.retriever(scope=wrong),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=r"write Scope\('acme'\)"):
            call()
