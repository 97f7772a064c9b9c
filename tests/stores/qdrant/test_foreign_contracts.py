"""The contracts of backends and retrievers, on LlamaIndex's `QdrantVectorStore`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.keyword import KeywordRetriever
from llama_retrieval_ext.retrievers.vector import VectorRetriever
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract
from tests.stores.qdrant.fake_server import FakeServer, serving
from tests.stores.qdrant.foreign_stores import Named, foreign_store, nodes_with_uuids

MODEL = FakeEmbedding()
KINDS = ["local", "local async", "http", "http sync", "http async"]


@pytest.fixture(scope="module", params=KINDS)
def any_hybrid(request: pytest.FixtureRequest) -> Iterator[Named]:
    """A store with sparse vectors, with a sync client, an async one, or both."""
    with made(request.param) as backend:
        yield backend


@pytest.fixture(scope="module")
def hybrid() -> Iterator[Named]:
    with made("local") as backend:
        yield backend


@contextmanager
def made(kind: str) -> Iterator[Named]:
    if kind == "local":
        store = foreign_store(QdrantClient(":memory:"), hybrid=True)
        store.add(nodes_with_uuids(MODEL))
        yield Named(LlamaIndexQdrantBackend(store))
        store.client.close()
        return
    if kind == "local async":
        aclient = AsyncQdrantClient(":memory:")
        store = foreign_store(None, aclient, hybrid=True)
        asyncio.run(store.async_add(nodes_with_uuids(MODEL)))
        yield Named(LlamaIndexQdrantBackend(store))
        asyncio.run(aclient.close())
        return
    with serving(FakeServer()) as fake:
        options: dict[str, Any] = {"url": fake.url, "check_compatibility": False}
        client = QdrantClient(**options)
        foreign_store(client, hybrid=True).add(nodes_with_uuids(MODEL))
        store = foreign_store(
            None if kind == "http async" else client,
            None if kind == "http sync" else AsyncQdrantClient(**options),
            hybrid=True,
        )
        yield Named(LlamaIndexQdrantBackend(store))
        client.close()


@pytest.fixture(scope="module")
def dense() -> Iterator[Named]:
    store = foreign_store(QdrantClient(":memory:"))
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


class TestVectorRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, dense: Named) -> VectorRetriever:
        return VectorRetriever(dense, embed_model=MODEL, top_k=5)


class TestKeywordRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, hybrid: Named) -> KeywordRetriever:
        return KeywordRetriever(hybrid, top_k=5)


class TestHybridRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, hybrid: Named) -> HybridRetriever:
        return HybridRetriever(hybrid, embed_model=MODEL, top_k=5)
