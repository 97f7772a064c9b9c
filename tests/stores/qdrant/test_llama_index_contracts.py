"""The contracts of backends and retrievers, on LlamaIndex's `QdrantVectorStore`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import arun
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stores.engine.backend import Candidate, KeywordQuery, Search, VectorQuery
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing.backend_contract import BackendContract, assert_same, found_by
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract
from tests.stores.qdrant.fake_server import FakeServer, serving
from tests.stores.qdrant.llama_index_stores import Named, llama_index_store, nodes_with_uuids

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()


@pytest.fixture(scope="module", params=["local", "http"])
def any_hybrid(request: pytest.FixtureRequest) -> Iterator[Named]:
    """A store with sparse vectors: in local mode, and over HTTP with both clients."""
    with made(request.param) as backend:
        yield backend


@pytest.fixture(scope="module", params=["local async", "http sync", "http async"])
def one_client(request: pytest.FixtureRequest) -> Iterator[Named]:
    """A store with sparse vectors that has only the sync client, or only the async one."""
    with made(request.param) as backend:
        yield backend


@pytest.fixture(scope="module")
def hybrid() -> Iterator[Named]:
    with made("local") as backend:
        yield backend


@contextmanager
def made(kind: str) -> Iterator[Named]:
    if kind == "local":
        store = llama_index_store(QdrantClient(":memory:"), hybrid=True)
        store.add(nodes_with_uuids(MODEL))
        yield Named(LlamaIndexQdrantBackend(store))
        store.client.close()
        return
    if kind == "local async":
        aclient = AsyncQdrantClient(":memory:")
        store = llama_index_store(None, aclient, hybrid=True)
        asyncio.run(store.async_add(nodes_with_uuids(MODEL)))
        yield Named(LlamaIndexQdrantBackend(store))
        asyncio.run(aclient.close())
        return
    with serving(FakeServer()) as fake:
        options: dict[str, Any] = {"url": fake.url, "check_compatibility": False}
        client = QdrantClient(**options)
        llama_index_store(client, hybrid=True).add(nodes_with_uuids(MODEL))
        store = llama_index_store(
            None if kind == "http async" else client,
            None if kind == "http sync" else AsyncQdrantClient(**options),
            hybrid=True,
        )
        yield Named(LlamaIndexQdrantBackend(store))
        client.close()


@pytest.fixture(scope="module")
def dense() -> Iterator[Named]:
    store = llama_index_store(QdrantClient(":memory:"))
    store.add(nodes_with_uuids(MODEL))
    yield Named(LlamaIndexQdrantBackend(store))
    store.client.close()


class TestHybridBackend(BackendContract):
    @pytest.fixture
    def backend(self, any_hybrid: Named) -> Named:
        return any_hybrid


class TestDenseBackend(BackendContract):
    @pytest.fixture
    def backend(self, dense: Named) -> Named:
        return dense


class TestVectorRetriever(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, dense: Named) -> VectorRetriever:
        return VectorRetriever(dense, embed_model=MODEL, top_k=5)


class TestHybridRetriever(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, hybrid: Named) -> HybridRetriever:
        return HybridRetriever(hybrid, embed_model=MODEL, top_k=5)


@pytest.mark.parametrize("scope", [None, ACME, Scope("nobody")])
@pytest.mark.parametrize("text", [*SAMPLE_QUERIES, "?!"])
def test_a_store_with_one_client_answers_sync_and_async_as_others_do(
    one_client: Named, hybrid: Named, text: str, scope: Scope | None
) -> None:
    search = Search(5, None if scope is None else scope.condition, scope)
    vector = tuple(MODEL.get_query_embedding(text))
    for query in (VectorQuery(vector, search), KeywordQuery(text, search)):
        expected = found_by(_search(hybrid, query))
        assert_same(found_by(_search(one_client, query)), expected)
        assert_same(asyncio.run(arun(call(_search(one_client, query)))), expected)


def _search(backend: Named, query: VectorQuery | KeywordQuery) -> Call[list[Candidate]]:
    if isinstance(query, VectorQuery):
        return backend.dense(query.embedding, query.search)
    return backend.keyword(query.text, query.search)
