"""LlamaIndex's own ``ElasticsearchStore``, handed in: raw scores, exact filters, any loop."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import pytest
from elasticsearch import AsyncElasticsearch, Elasticsearch
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator
from llama_index.vector_stores.elasticsearch import base

from llama_retrieval_ext import MMR, Collapse, Query, VectorRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import ORDER_OPERATORS, Compare, Scalar, matches
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stores.elasticsearch.llama_index_store import (
    LlamaIndexElasticsearchBackend,
)
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.open import backend_for
from llama_retrieval_ext.testing import BackendContract, FakeEmbedding, sample_nodes
from tests.stores.odd_metadata import EQ
from tests.stores.test_llama_index import check_principals, principal_nodes

pytestmark = pytest.mark.slow

OPERATORS = (FilterOperator.EQ, FilterOperator.NE, FilterOperator.CONTAINS, FilterOperator.IS_EMPTY)


@contextmanager
def index_of_llama_index(
    url: str, nodes: list[TextNode]
) -> Iterator[LlamaIndexElasticsearchBackend]:
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
    yield LlamaIndexElasticsearchBackend(store)
    with Elasticsearch(url) as client:
        client.indices.delete(index=name)


@pytest.fixture(scope="module")
def sample(elasticsearch_url: str) -> Iterator[LlamaIndexElasticsearchBackend]:
    with index_of_llama_index(elasticsearch_url, sample_nodes(FakeEmbedding())) as backend:
        yield backend


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, sample: LlamaIndexElasticsearchBackend) -> LlamaIndexElasticsearchBackend:
        return sample


def test_filters_distinguish_values_that_the_index_does_not(elasticsearch_url: str) -> None:
    values = ["3", 3, 3.0, "a", ["a"], "a" * 300, 0.1, 0.1000000001, None, []]
    nodes = [
        TextNode(id_=f"n{place}", text="word", embedding=[1.0, 0.0], metadata={f"k{place}": value})
        for place, value in enumerate(values)
    ]
    with index_of_llama_index(elasticsearch_url, nodes) as backend:
        sought: list[Scalar] = ["3", 3, "a", "a" * 300, 0.1]
        for place, value, operator in product(range(len(values)), sought, OPERATORS):
            operand = None if operator is FilterOperator.IS_EMPTY else value
            condition = Compare(f"k{place}", operator, operand)
            found = backend.dense([1.0, 0.0], Search(20, condition)).function()
            expected = {n.node_id for n in nodes if matches(condition, n.metadata)}
            assert {each.node_id for each in found} == expected, condition


def test_numbers_are_compared_as_they_are_where_the_index_has_integers(
    elasticsearch_url: str,
) -> None:
    values = [3, 3.5, 3.9, -1.5, 4, 2**62]  # by the first, the engine makes a field of integers
    nodes = [
        TextNode(id_=f"n{place}", text="word", embedding=[1.0, 0.0], metadata={"year": value})
        for place, value in enumerate(values)
    ]
    with index_of_llama_index(elasticsearch_url, nodes) as backend:
        for value, operator in product((3, 3.2, 3.5, -1.2, 1e39, -(2**70)), (*ORDER_OPERATORS, EQ)):
            condition = Compare("year", operator, value)
            found = backend.dense([1.0, 0.0], Search(20, condition)).function()
            expected = {n.node_id for n in nodes if matches(condition, n.metadata)}
            assert {each.node_id for each in found} == expected, condition


def test_more_hits_than_the_engine_returns_are_refused_and_not_requested_by_collapse(
    elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlamaIndexElasticsearchBackend, "most_candidates", 4)
    nodes = [
        TextNode(id_=f"n{place}", text="word", embedding=[1.0, place], metadata={"file": "a"})
        for place in range(6)
    ]
    query = Query("word", embedding=[1.0, 0.0], top_k=2)
    with index_of_llama_index(elasticsearch_url, nodes) as backend:
        result = VectorRetriever(backend, collapse=Collapse(by="file")).search(query)
        assert node_ids(result.hits) == ["n0"]
        assert "returns no more at once" in result.degraded[0].reason
        with pytest.raises(ConfigurationError, match="at most 4 hits at once, top_k is 6"):
            backend.dense([1.0, 0.0], Search(6)).function()


def test_mmr_reads_stored_embeddings_whatever_event_loop_the_client_of_the_store_had(
    sample: LlamaIndexElasticsearchBackend,
) -> None:
    pipeline = VectorRetriever(sample, top_k=8) >> MMR(0.5, top_k=4)
    query = Query("word", embedding=FakeEmbedding().get_query_embedding("word"))
    first, *others = (
        pipeline.search(query),
        *(asyncio.run(pipeline.asearch(query)) for _ in range(2)),
    )
    assert len(first.hits) == 4
    for result in (first, *others):
        assert (result.degraded, node_ids(result.hits)) == ((), node_ids(first.hits))


def test_a_scope_sees_what_names_nobody_or_one_of_its_principals(elasticsearch_url: str) -> None:
    with index_of_llama_index(elasticsearch_url, principal_nodes()) as backend:
        check_principals(backend)


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
