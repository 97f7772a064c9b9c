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
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing.backend_contract import BackendContract, assert_same, found_by
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.servers.qdrant import http_address
from tests.stores.qdrant.llama_index_stores import llama_index_store, named, nodes_with_uuids

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()


@pytest.fixture(scope="module", params=["local", "http"])
def any_hybrid(request: pytest.FixtureRequest) -> Iterator[LlamaIndexQdrantBackend]:
    """A store with sparse vectors: in local mode, and over HTTP with both clients."""
    with made(request.param, request) as backend:
        yield backend


@contextmanager
def made(kind: str, request: pytest.FixtureRequest) -> Iterator[LlamaIndexQdrantBackend]:
    if kind == "local":
        store = llama_index_store(QdrantClient(":memory:"), hybrid=True)
        store.add(nodes_with_uuids(MODEL))
        yield named(LlamaIndexQdrantBackend(store))
        store.client.close()
        return
    if kind == "local async":
        aclient = AsyncQdrantClient(":memory:")
        store = llama_index_store(None, aclient, hybrid=True)
        asyncio.run(store.async_add(nodes_with_uuids(MODEL)))
        yield named(LlamaIndexQdrantBackend(store))
        asyncio.run(aclient.close())
        return
    options: dict[str, Any] = {"url": http_address(request.getfixturevalue("qdrant_url"))}
    client = QdrantClient(**options)
    client.delete_collection("c")
    llama_index_store(client, hybrid=True).add(nodes_with_uuids(MODEL))
    aclient = AsyncQdrantClient(**options)
    store = llama_index_store(None if kind == "http async" else client, aclient, hybrid=True)
    yield named(LlamaIndexQdrantBackend(store))
    client.delete_collection("c")
    client.close()


class TestHybridBackend(BackendContract):
    @pytest.fixture
    def backend(self, any_hybrid: LlamaIndexQdrantBackend) -> LlamaIndexQdrantBackend:
        return any_hybrid


@pytest.mark.parametrize("client", ["local async", "http async"])
def test_a_store_with_an_async_client_alone_answers_sync_and_async_as_others_do(
    client: str, request: pytest.FixtureRequest
) -> None:
    # Of the nodes that tie at 0, an engine returns any.
    search, text = Search(4, ACME.condition, ACME), SAMPLE_QUERIES[0]
    vector = MODEL.get_query_embedding(text)

    def searches(backend: LlamaIndexQdrantBackend) -> list[Call[list[Candidate]]]:
        return [backend.dense(vector, search), backend.keyword(text, search)]

    with made(client, request) as one_client, made("local", request) as both_clients:
        for ours, theirs in zip(searches(one_client), searches(both_clients), strict=True):
            expected = found_by(theirs)
            assert_same(found_by(ours), expected)
            assert_same(asyncio.run(arun(call(ours))), expected)
