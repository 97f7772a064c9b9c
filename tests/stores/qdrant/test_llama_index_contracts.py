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
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing.backend_contract import BackendContract, assert_same, found_by
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
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


class TestHybridRetriever(IsolationContract):
    @pytest.fixture
    def retriever(self, hybrid: Named) -> HybridRetriever:
        return HybridRetriever(hybrid, embed_model=MODEL, top_k=5)


def test_a_store_with_one_client_answers_sync_and_async_as_others_do(
    one_client: Named, hybrid: Named
) -> None:
    search, text = Search(5, ACME.condition, ACME), SAMPLE_QUERIES[0]
    vector = MODEL.get_query_embedding(text)

    def searches(backend: Named) -> list[Call[list[Candidate]]]:
        return [backend.dense(vector, search), backend.keyword(text, search)]

    for ours, theirs in zip(searches(one_client), searches(hybrid), strict=True):
        expected = found_by(theirs)
        assert_same(found_by(ours), expected)
        assert_same(asyncio.run(arun(call(ours))), expected)
