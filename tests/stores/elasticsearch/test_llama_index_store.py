"""LlamaIndex's own ``ElasticsearchStore``, handed in: raw scores, exact filters, any loop."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from elasticsearch import AsyncElasticsearch, Elasticsearch
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import FilterOperator
from llama_index.vector_stores.elasticsearch import base

from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores.elasticsearch import llama_index_store
from llama_retrieval_ext.stores.elasticsearch import store as own_store
from llama_retrieval_ext.stores.elasticsearch.llama_index_store import (
    LlamaIndexElasticsearchBackend,
)
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.open import backend_for
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.retriever_contract import RankingContract

pytestmark = pytest.mark.slow

OPERATORS = (FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS, FilterOperator.IS_EMPTY)


def index_of_llama_index(url: str, nodes: list[TextNode]) -> LlamaIndexElasticsearchBackend:
    """Nodes in an index that LlamaIndex's store filled, and our backend for it."""
    name = f"lre-llama-index-{uuid.uuid4().hex}"
    # As the store would make it, but with exact scores, and whole on one server.
    vector = {
        "type": "dense_vector",
        "dims": len(nodes[0].embedding or ()),
        "similarity": "cosine",
        "index_options": {"type": "hnsw"},
    }
    with Elasticsearch(url) as client:
        client.indices.create(
            index=name,
            settings={"number_of_replicas": 0},
            mappings={"properties": {"embedding": vector}},
        )
    with pytest.MonkeyPatch.context() as patch:
        # What the store does to asyncio when it is made is kept from the other tests.
        patch.setattr("nest_asyncio.apply", lambda: None)
        store = base.ElasticsearchStore(name, es_client=AsyncElasticsearch(url))

    async def fill() -> None:
        await store.async_add([*nodes])
        await store.client.indices.refresh(index=name)
        await store.client.close()

    asyncio.run(fill())
    return LlamaIndexElasticsearchBackend(store)


@pytest.fixture(scope="module")
def llama_index(elasticsearch_url: str) -> Iterator[LlamaIndexElasticsearchBackend]:
    backend = index_of_llama_index(elasticsearch_url, sample_nodes(FakeEmbedding()))
    yield backend
    with Elasticsearch(elasticsearch_url) as client:
        client.indices.delete(index=backend.store.index_name)


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(
        self, llama_index: LlamaIndexElasticsearchBackend
    ) -> LlamaIndexElasticsearchBackend:
        return llama_index


class TestHybridRetriever(RankingContract):
    @pytest.fixture
    def retriever(
        self, llama_index: LlamaIndexElasticsearchBackend, embed_model: BaseEmbedding
    ) -> Retriever:
        return HybridRetriever(llama_index, embed_model=embed_model, top_k=5)


def test_filters_distinguish_values_that_the_index_does_not(elasticsearch_url: str) -> None:
    values = ["3", 3, 3.0, "a", ["a"], "a" * 300, 0.1, 0.1000000001, None, []]
    nodes = [
        TextNode(id_=f"n{place}", text="word", embedding=[1.0, 0.0], metadata={f"k{place}": value})
        for place, value in enumerate(values)
    ]
    backend = index_of_llama_index(elasticsearch_url, nodes)
    for place in range(len(values)):
        for value in ("3", 3, "a", "a" * 300, 0.1):
            for operator in OPERATORS:
                operand = None if operator is FilterOperator.IS_EMPTY else value
                condition = Compare(f"k{place}", operator, operand)
                found = backend.dense([1.0, 0.0], Search(20, condition)).function()
                expected = {n.node_id for n in nodes if matches(condition, n.metadata)}
                assert {each.node_id for each in found} == expected, condition
    with Elasticsearch(elasticsearch_url) as client:
        client.indices.delete(index=backend.store.index_name)


def test_a_scope_sees_what_names_nobody_or_one_of_its_principals(elasticsearch_url: str) -> None:
    lists = {
        "open": None,
        "none": [],
        "hr": ["group:hr"],
        "it": ["group:it", "a\\'b"],
        "no": "group:hr",
    }
    model = FakeEmbedding(dim=16)
    nodes = [
        TextNode(
            id_=name,
            text=f"leave {name}",
            metadata={"tenant_id": "acme", **({} if names is None else {"allowed": names})},
            embedding=model.get_text_embedding(f"leave {name}"),
        )
        for name, names in lists.items()
    ]
    backend = index_of_llama_index(elasticsearch_url, nodes)
    retrievers = [
        VectorRetriever(backend, embed_model=model, top_k=10),
        KeywordRetriever(backend, top_k=10),
        HybridRetriever(backend, embed_model=model, top_k=10),
    ]
    for principals, expected in (
        ([], {"open", "none"}),
        (["group:hr"], {"open", "none", "hr"}),
        (["a\\'b", *map(str, range(199))], {"open", "none", "it"}),
    ):
        for retriever in retrievers:
            found = retriever.retrieve(Query("leave", scope=Scope("acme", principals=principals)))
            assert {hit.node_id for hit in found} == expected, (retriever, principals)
    with Elasticsearch(elasticsearch_url) as client:
        client.indices.delete(index=backend.store.index_name)


def test_hits_have_all_metadata_of_their_nodes(llama_index: LlamaIndexElasticsearchBackend) -> None:
    originals = {node.node_id: node for node in sample_nodes()}
    for each in llama_index.keyword(SAMPLE_QUERIES[0], Search(5)).function():
        assert each.node.metadata == originals[each.node_id].metadata


async def test_the_backend_of_a_store_of_llama_index_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nest_asyncio.apply", lambda: None)
    client = AsyncElasticsearch("http://127.0.0.1:9", api_key="hunter2")
    store = base.ElasticsearchStore("docs", es_client=client)
    backend = backend_for(store)
    await client.close()
    assert isinstance(backend, LlamaIndexElasticsearchBackend)
    assert backend.describe()["url"] == "http://127.0.0.1:9"
    assert "hunter2" not in str(backend.describe())


def test_a_store_of_another_engine_has_no_backend_here() -> None:
    assert llama_index_store.backend_of(SimpleVectorStore()) is None
    assert own_store.backend_of(SimpleVectorStore()) is None
