"""What is special about LlamaIndex's own `QdrantVectorStore`: its traps stay its own."""

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from llama_retrieval_ext import HybridRetriever, VectorRetriever
from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError, UnsupportedModeError
from llama_retrieval_ext.execution import Call
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import arun
from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing import FakeEmbedding
from llama_retrieval_ext.testing.backend_contract import BackendContract, assert_same, found_by
from llama_retrieval_ext.testing.corpus import ACME, SAMPLE_QUERIES
from tests.quick import in_turn
from tests.servers.forwarder import Forwarder
from tests.servers.given import local_port
from tests.servers.qdrant import http_address
from tests.stores.qdrant.conftest import KEY
from tests.stores.qdrant.llama_index_stores import llama_index_store, named, nodes_with_uuids

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()
VECTOR = MODEL.get_query_embedding("annual leave")


@pytest.fixture
def client() -> Iterator[QdrantClient]:
    opened = QdrantClient(":memory:")
    yield opened
    opened.close()


def test_keyword_search_without_sparse_vectors_is_no_vector_search(client: QdrantClient) -> None:
    store = llama_index_store(client)
    store.add(nodes_with_uuids(MODEL))
    for other in (store, llama_index_store(client, hybrid=True)):
        backend = LlamaIndexQdrantBackend(other)
        assert backend.features.keyword is None
        with pytest.raises(UnsupportedModeError, match="enable_hybrid"):
            backend.hybrid(VECTOR, "leave", Search(3), nodes_last=False)
        with pytest.raises(UnsupportedModeError, match="enable_hybrid"):
            backend.keyword("leave", Search(3))
        # Its texts are read from the store.
        (best, *_) = HybridRetriever(backend, embed_model=MODEL).search("leave")
        assert {part.leg for part in best.contributions} == {"vector", "keyword"}


def test_a_query_before_the_first_node_and_after_the_last_finds_nothing(
    client: QdrantClient,
) -> None:
    store = llama_index_store(client, hybrid=True)
    backend = LlamaIndexQdrantBackend(store)

    def found() -> tuple[int, int]:
        both = backend.hybrid(VECTOR, "leave", Search(3), nodes_last=False).function()
        return len(both.vector), len(both.keyword)

    assert found() == (0, 0)
    store.add(nodes_with_uuids(MODEL))
    assert found() == (3, 3)
    store.clear()
    assert found() == (0, 0)
    store.add(nodes_with_uuids(MODEL))
    assert found() == (3, 3)


def test_a_query_is_encoded_by_the_current_functions_of_the_store(client: QdrantClient) -> None:
    store = llama_index_store(client, hybrid=True)
    store.add(nodes_with_uuids(MODEL))
    backend = LlamaIndexQdrantBackend(store)
    assert backend.keyword("leave", Search(3)).function()
    store.set_query_functions(sparse_query_fn=lambda texts: ([[] for _ in texts], [[]]))
    assert backend.keyword("leave", Search(3)).function() == []


@pytest.mark.parametrize(
    ("distance", "declared", "scores"),
    [
        ("Cosine", ScoreRange("cosine", -1.0, 1.0), [1.0, -1.0]),
        ("Dot", ScoreRange("dot"), [2.0, -1.0]),
        ("Manhattan", ScoreRange("negative_distance", None, 0.0), [-1.0, -2.0]),
    ],
)
def test_higher_is_better_whatever_the_distance(
    client: QdrantClient, distance: str, declared: ScoreRange, scores: list[float]
) -> None:
    config = models.VectorParams(size=2, distance=models.Distance(distance))
    store = llama_index_store(client, dense_config=config)
    assert LlamaIndexQdrantBackend(store).features.dense == declared
    store.add([TextNode(text="t", embedding=vector) for vector in ([2.0, 0.0], [-1.0, 0.0])])
    backend = LlamaIndexQdrantBackend(
        llama_index_store(client)
    )  # which reads it from the collection
    assert backend.features.dense == declared
    found = backend.dense([1.0, 0.0], Search(2)).function()
    assert [each.score for each in found] == pytest.approx(scores)


def test_ids_keep_the_spelling_of_the_node(client: QdrantClient) -> None:
    spelt = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    store = llama_index_store(client)
    store.add([TextNode(id_=spelt, text="t", embedding=[1.0, 0.0])])
    (found,) = LlamaIndexQdrantBackend(store).dense([1.0, 0.0], Search(1)).function()
    assert found.node_id == found.node.node_id == spelt


def test_payloads_of_old_releases_are_read(client: QdrantClient) -> None:
    client.create_collection("c", models.VectorParams(size=2, distance=models.Distance.COSINE))
    payload = {"text": "old text", "color": "red", "doc_id": "d", "node_info": json.dumps({})}
    client.upsert("c", [models.PointStruct(id=7, vector=[1.0, 0.0], payload=payload)])
    red = Compare("color", FilterOperator.EQ, "red")
    (found,) = (
        LlamaIndexQdrantBackend(llama_index_store(client))
        .dense([1.0, 0.0], Search(1, red))
        .function()
    )
    assert found.node_id == "7"
    assert found.node.get_content() == "old text"


def test_a_collection_without_the_named_vectors_is_refused(client: QdrantClient) -> None:
    other = {"other": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    client.create_collection("c", other)
    with pytest.raises(StoreFormatError, match="other"):
        LlamaIndexQdrantBackend(llama_index_store(client))


@pytest.fixture
def line(server: str) -> Iterator[Forwarder]:
    """A line to the server, which has no collection named as the store's is."""
    client = QdrantClient(server)
    client.delete_collection("c")
    with Forwarder(local_port(server) or 0) as forwarder:
        yield forwarder
    client.delete_collection("c")
    client.close()


async def test_a_store_without_an_async_client_works_in_async_code(line: Forwarder) -> None:
    client = QdrantClient(f"http://127.0.0.1:{line.port}", check_compatibility=False)
    store = llama_index_store(client)
    store.add(nodes_with_uuids(MODEL))
    backend = LlamaIndexQdrantBackend(store)
    assert not backend.features.real_async
    assert backend.dense(VECTOR, Search(1)).coroutine is None
    assert len(await VectorRetriever(backend, embed_model=MODEL, top_k=4).aretrieve("leave")) == 4
    client.close()


def test_a_key_of_the_store_is_not_shown(keyed_url: str) -> None:
    address = keyed_url.replace("qdrant", "http", 1)
    client = QdrantClient(address, check_compatibility=False, headers={"api-key": KEY})
    backend = LlamaIndexQdrantBackend(llama_index_store(client, api_key=KEY))
    assert backend.dense(VECTOR, Search(1)).function() == []
    assert KEY not in str(backend.describe())
    assert KEY not in repr(VectorRetriever(backend, embed_model=MODEL))
    client.close()


def test_connections_that_are_kept_open_survive_the_end_of_an_event_loop(line: Forwarder) -> None:
    found, connections = _asked_on_three_loops(line)
    gc.collect()
    assert found == [9, 9, 9]
    assert connections == 1  # of one client, for all loops


def _asked_on_three_loops(line: Forwarder) -> tuple[list[int], int]:
    url = f"http://127.0.0.1:{line.port}"
    client = QdrantClient(url, check_compatibility=False)
    llama_index_store(client).add(nodes_with_uuids(MODEL))
    # With a server on another machine this is the client's own setting.
    limits = httpx.Limits(max_keepalive_connections=5)
    aclient = AsyncQdrantClient(url, check_compatibility=False, limits=limits)
    backend = LlamaIndexQdrantBackend(llama_index_store(client, aclient))
    call = backend.dense(MODEL.get_query_embedding("leave"), Search(3))

    async def thrice() -> int:
        assert call.coroutine is not None
        return sum([len(await call.coroutine()) for _ in range(3)])

    before = line.connections
    found = [asyncio.run(thrice()) for _ in range(3)]
    client.close()
    return found, line.connections - before


def test_a_retriever_is_made_though_the_server_is_down(line: Forwarder) -> None:
    client = QdrantClient(f"http://127.0.0.1:{line.port}", check_compatibility=False)
    store = llama_index_store(client)
    store.add(nodes_with_uuids(MODEL))
    line.down()
    retriever = VectorRetriever(LlamaIndexQdrantBackend(store), embed_model=MODEL)
    with pytest.raises(StoreUnavailableError):
        retriever.retrieve("leave")
    line.up()
    assert retriever.retrieve("leave")
    client.close()


@pytest.fixture(scope="module", params=in_turn("local", "http"))
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
