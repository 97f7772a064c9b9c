"""A server that is down, slow, restarting or refuses: one clear error in time, and then on."""

import asyncio
import http.server
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message

import pytest
from elasticsearch import Elasticsearch
from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext.errors import (
    DeadlineExceededError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stores.elasticsearch.client import (
    ClientConfig,
    Json,
    Transport,
    json_request,
)
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
    open_elasticsearch,
)
from llama_retrieval_ext.stores.engine.backend import Search
from tests.servers.elasticsearch import USER
from tests.servers.forwarder import Forwarder
from tests.servers.given import local_port

pytestmark = pytest.mark.slow

QUERY = Query("word", embedding=[1.0, 0.0])


@pytest.fixture
def forwarder(elasticsearch_url: str) -> Iterator[Forwarder]:
    port = local_port(elasticsearch_url)
    if port is None:
        pytest.skip("the server is not on this machine, or speaks TLS")
    with Forwarder(port) as forwarder:
        yield forwarder


@pytest.fixture
def store(
    forwarder: Forwarder, store: ElasticsearchVectorStore
) -> Iterator[ElasticsearchVectorStore]:
    """The same index, through the forwarder."""
    store.add([TextNode(id_="a", text="word", embedding=[1.0, 0.0])])
    url = f"elasticsearch://127.0.0.1:{forwarder.port}/{store.index}"
    with open_elasticsearch(url) as through:
        yield through


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers every request with the same status and JSON, or as a server does."""

    url = ""
    server_url: str | None = None
    status = 200
    body: Json

    def do_GET(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length", 0))) or None
        if self.server_url is None:
            self._answer(self.status, Message(), json.dumps(self.body).encode())
            return
        request = urllib.request.Request(
            self.server_url + self.path, sent, dict(self.headers), method=self.command
        )
        try:
            with urllib.request.urlopen(request) as response:
                self._answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.headers, error.read())

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - their names there

    def _answer(self, status: int, headers: Message, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", headers.get("content-type", "application/json"))
        if "x-elastic-product" in headers:
            self.send_header("x-elastic-product", headers["x-elastic-product"])
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture
def answering() -> Iterator[type[Answering]]:
    handler: type[Answering] = type("Handler", (Answering,), {"body": {}})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler
        server.shutdown()


Call = Callable[[ElasticsearchVectorStore], object]

CALLS: dict[str, Call] = {
    "search": lambda store: VectorRetriever(ElasticsearchBackend(store)).retrieve(QUERY),
    "async search": lambda store: asyncio.run(
        KeywordRetriever(ElasticsearchBackend(store)).aretrieve(QUERY)
    ),
    "one round trip": lambda store: (
        ElasticsearchBackend(store)
        .hybrid([1.0, 0.0], "word", Search(5), nodes_last=True)
        .function()
    ),
    "add": lambda store: store.add([TextNode(id_="b", embedding=[1.0, 0.0])]),
    "async add": lambda store: asyncio.run(
        store.async_add([TextNode(id_="b", embedding=[1.0, 0.0])])
    ),
    "delete": lambda store: store.delete_nodes(["b"]),
    "read": lambda store: store.get_nodes(),
    "count": lambda store: store.count(),
    "clear": lambda store: store.clear(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_server_that_is_down_is_unavailable_and_back_when_it_is_back(
    store: ElasticsearchVectorStore, forwarder: Forwarder, call: Call
) -> None:
    KeywordRetriever(ElasticsearchBackend(store)).retrieve(QUERY)
    for _ in range(2):
        forwarder.down()
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            call(store)
        assert time.monotonic() - started < 5
        forwarder.up()
        call(store)


def test_opening_at_a_closed_port_fails_at_once(forwarder: Forwarder) -> None:
    forwarder.down()
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        open_elasticsearch(f"elasticsearch://127.0.0.1:{forwarder.port}/kb")
    assert time.monotonic() - started < 5


def test_an_optional_leg_on_a_server_that_is_down_is_left_out(
    store: ElasticsearchVectorStore, forwarder: Forwarder
) -> None:
    other = BM25Retriever([TextNode(id_="m", text="word")])
    both = (KeywordRetriever(ElasticsearchBackend(store)) | other) >> RRF()
    assert {hit.node_id for hit in both.search(QUERY).hits} == {"a", "m"}
    forwarder.down()
    result = both.search(QUERY)
    assert [hit.node_id for hit in result.hits] == ["m"]
    assert [part.where for part in result.degraded] == ["keyword"]
    forwarder.up()
    assert not both.search(QUERY).degraded


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (401, "security_exception", "does not accept the credentials"),
        (403, "security_exception", "does not allow it"),
        (429, "circuit_breaking_exception", "circuit_breaking_exception"),  # out of memory
        (429, "es_rejected_execution_exception", "es_rejected_execution_exception"),  # too busy
        (500, "exception", "in trouble"),
        (503, "cluster_block_exception", "in trouble"),
        (503, None, "in trouble"),  # of what stands before the server
    ],
)
def test_an_error_status_is_unavailable_and_the_next_request_works(
    store: ElasticsearchVectorStore,
    elasticsearch_url: str,
    answering: type[Answering],
    status: int,
    kind: str | None,
    reason: str,
) -> None:
    error = {"type": kind, "reason": "as in a test"}
    answering.body = {} if kind is None else {"error": {**error, "root_cause": [error]}}
    answering.status = status
    answering.server_url = elasticsearch_url
    url = f"{answering.url.replace('http', 'elasticsearch')}/{store.index}"
    calls = [CALLS[name] for name in ("search", "async search", "one round trip", "add", "count")]
    with open_elasticsearch(url) as through:
        for call in calls:
            call(through)
            answering.server_url = None
            started = time.monotonic()
            with pytest.raises(StoreUnavailableError, match=reason):
                call(through)
            assert time.monotonic() - started < 5
            answering.server_url = elasticsearch_url
            call(through)


def test_a_server_that_restarts_between_two_calls_is_not_noticed(
    store: ElasticsearchVectorStore, forwarder: Forwarder
) -> None:
    for name in ("search", "async search", "search", "async search"):
        assert CALLS[name](store)
        forwarder.down()
        forwarder.up()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_silent_server_takes_no_longer_than_the_timeout_of_the_query(
    store: ElasticsearchVectorStore, forwarder: Forwarder, way: str
) -> None:
    retriever = VectorRetriever(ElasticsearchBackend(store))

    def retrieve(query: Query) -> list[NodeWithScore]:
        if way == "sync":
            return retriever.retrieve(query)
        return asyncio.run(retriever.aretrieve(query))

    retrieve(QUERY)
    forwarder.silent.set()
    started = time.monotonic()
    with pytest.raises((StoreUnavailableError, DeadlineExceededError)):
        retrieve(QUERY.but(timeout_s=0.3))
    assert time.monotonic() - started < 5
    forwarder.down()
    forwarder.silent.clear()
    forwarder.up()
    assert retrieve(QUERY.but(timeout_s=5))


def test_a_request_ends_at_the_timeout_of_the_connection(
    store: ElasticsearchVectorStore, forwarder: Forwarder
) -> None:
    url = f"elasticsearch://127.0.0.1:{forwarder.port}/{store.index}?timeout_s=1"
    with open_elasticsearch(url) as hurried:
        forwarder.silent.set()
        with pytest.raises(StoreUnavailableError, match="did not answer in time"):
            hurried.count()
        with pytest.raises(StoreUnavailableError, match="did not answer in time"):
            asyncio.run(hurried.aget_nodes())
        forwarder.down()


def test_closing_a_store_ends_waiting_requests_with_an_error(
    store: ElasticsearchVectorStore, forwarder: Forwarder
) -> None:
    asyncio.run(store.aget_nodes())
    forwarder.silent.set()

    async def waiting() -> None:
        reading = asyncio.create_task(store.aget_nodes())
        await asyncio.sleep(0.2)
        await asyncio.to_thread(store.close)
        with pytest.raises((StoreClosedError, StoreUnavailableError)):
            await asyncio.wait_for(reading, 5)

    asyncio.run(waiting())
    forwarder.down()


def test_a_hybrid_search_without_its_server_raises(
    store: ElasticsearchVectorStore, forwarder: Forwarder
) -> None:
    hybrid = HybridRetriever(ElasticsearchBackend(store))
    assert hybrid.retrieve(QUERY)
    forwarder.down()
    with pytest.raises(StoreUnavailableError):
        hybrid.retrieve(QUERY)


def test_a_server_that_is_not_elasticsearch_is_refused(answering: type[Answering]) -> None:
    with pytest.raises(StoreUnavailableError, match="is not Elasticsearch"):
        open_elasticsearch(f"{answering.url.replace('http', 'elasticsearch')}/docs")


def test_wrong_credentials_are_unavailable_and_right_ones_work(
    secured_elasticsearch: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, password = secured_elasticsearch
    base = f"{url.replace('http', 'elasticsearch')}/lre-secured"
    monkeypatch.setenv("ES_USER", USER)
    monkeypatch.setenv("ES_PASSWORD", "wrong")
    named = f"{base}?user_env=ES_USER&password_env=ES_PASSWORD"
    for attempt in (base, named):
        with pytest.raises(StoreUnavailableError, match="HTTP 401") as caught:
            open_elasticsearch(attempt)
        assert "user_env" in str(caught.value)
    monkeypatch.setenv("ES_PASSWORD", password)
    with open_elasticsearch(named, store_params={"number_of_replicas": 0}) as store:
        store.add([TextNode(id_="a", text="word", embedding=[1.0, 0.0])])
        assert KeywordRetriever(ElasticsearchBackend(store)).retrieve("word")
        assert asyncio.run(KeywordRetriever(ElasticsearchBackend(store)).aretrieve("word"))
        assert password not in repr(store)
        assert password not in str(store.describe())
        store.clear()


def test_the_connection_of_a_client_keeps_its_credentials(
    secured_elasticsearch: tuple[str, str],
) -> None:
    url, password = secured_elasticsearch
    with Elasticsearch(url, basic_auth=(USER, password)) as client:
        connection = ClientConfig.of_client(client)
    assert connection.where == url
    assert password not in repr(connection)
    transport = Transport(connection)
    try:
        transport.perform(json_request("GET", "_cluster", "health"))
    finally:
        transport.close()


def test_a_request_that_the_server_refuses_fails_with_its_reason(
    store: ElasticsearchVectorStore,
) -> None:
    url = f"{store.transport.config.where.replace('http', 'elasticsearch')}/lre-odd"
    params = {"index_options": {"type": "no such"}}
    with (
        open_elasticsearch(url, store_params=params) as odd,
        pytest.raises(StoreError, match="Unknown vector index options") as caught,
    ):
        odd.add([TextNode(id_="a", embedding=[1.0])])
    assert not isinstance(caught.value, StoreUnavailableError)


def test_a_full_disk_is_unavailable_and_what_was_stored_stays(
    store: ElasticsearchVectorStore,
) -> None:
    settings = store.client.indices.put_settings
    settings(index=store.index, settings={"index.blocks.read_only_allow_delete": True})
    with pytest.raises(StoreUnavailableError, match="read-only"):
        store.add([TextNode(id_="b", embedding=[1.0, 0.0])])
    assert store.count() == 1
    settings(index=store.index, settings={"index.blocks.read_only_allow_delete": None})
    store.add([TextNode(id_="b", embedding=[1.0, 0.0])])
    assert store.count() == 2
