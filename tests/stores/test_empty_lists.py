"""An empty list of documents allows none: no engine finds anything for it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.servers.elasticsearch import elasticsearch_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url"]

MODEL = FakeEmbedding()
ENGINES = ("embedded", "qdrant", "milvus", "elasticsearch")
MODES = (
    VectorStoreQueryMode.DEFAULT,
    VectorStoreQueryMode.SPARSE,
    VectorStoreQueryMode.TEXT_SEARCH,
    VectorStoreQueryMode.HYBRID,
    VectorStoreQueryMode.MMR,
)
NODES = [
    TextNode(
        id_=name,
        text=f"leave policy {name}",
        metadata={"document": f"{name}.md"},
        embedding=MODEL.get_text_embedding(f"leave policy {name}"),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{name}.md")},
    )
    for name in ("a", "b", "c")
]


@pytest.fixture(scope="module", params=ENGINES)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    folder = tmp_path_factory.mktemp("engine")
    with filled(request.param, NODES, request=request, folder=folder) as opened:
        yield opened


@pytest.fixture
def store(backend: Backend) -> EngineStore:
    opened = backend.store
    assert isinstance(opened, EngineStore)
    return opened


def _modes(backend: Backend) -> list[VectorStoreQueryMode]:
    return [each for each in MODES if backend.features.mmr or each != MODES[-1]]


def _found(store: EngineStore, mode: VectorStoreQueryMode, **options: Any) -> list[list[str]]:
    query = VectorStoreQuery(
        query_embedding=MODEL.get_query_embedding("leave"),
        query_str="leave",
        similarity_top_k=5,
        mode=mode,
        **options,
    )
    return [store.query(query).ids or [], asyncio.run(store.aquery(query)).ids or []]


def test_a_query_restricted_to_no_documents_finds_nothing(
    backend: Backend, store: EngineStore
) -> None:
    for mode in _modes(backend):
        assert _found(store, mode, doc_ids=[]) == [[], []]
        assert _found(store, mode, doc_ids=[], node_ids=[]) == [[], []]
        assert _found(store, mode, doc_ids=[], node_ids=["a"]) == [[], []]


def test_no_node_ids_restrict_nothing_as_llama_index_means_it(
    backend: Backend, store: EngineStore
) -> None:
    for mode in _modes(backend):
        for found in _found(store, mode, node_ids=[]):
            assert sorted(found) == ["a", "b", "c"]


def test_a_llama_index_retriever_restricted_to_no_documents_finds_nothing(
    store: EngineStore,
) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=MODEL)
    retriever = index.as_retriever(doc_ids=[])
    assert retriever.retrieve("leave") == []
    assert asyncio.run(retriever.aretrieve("leave")) == []
    assert len(index.as_retriever(similarity_top_k=5).retrieve("leave")) == len(NODES)


def test_empty_lists_read_and_delete_nothing(store: EngineStore) -> None:
    none = MetadataFilters(
        filters=[MetadataFilter(key="document", value=[], operator=FilterOperator.IN)]
    )
    assert store.get_nodes([]) == []
    assert store.get_nodes(filters=none) == []
    assert asyncio.run(store.aget_nodes([])) == []
    store.delete_nodes([])
    store.delete_nodes(filters=none)
    asyncio.run(store.adelete_nodes([]))
    assert store.count() == len(NODES)
    assert store.count(none) == 0
