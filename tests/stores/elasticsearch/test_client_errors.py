"""A server that is down, slow, restarting or refuses: one clear error in time, and then on."""

import asyncio
import gc
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
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import StoreClosedError, StoreError, StoreUnavailableError
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever
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
from tests.servers.elasticsearch import USER
from tests.servers.forwarder import Forwarder
from tests.servers.given import local_port
from tests.stores.server_contract import CALLS, NODE, OTHER, ServerContract

pytestmark = pytest.mark.slow


@pytest.fixture
def line(elasticsearch_url: str) -> Iterator[Forwarder]:
    port = local_port(elasticsearch_url)
    if port is None:
        pytest.skip("the server is not on this machine, or speaks TLS")
    with Forwarder(port) as forwarder:
        yield forwarder


@pytest.fixture
def open_through(
    line: Forwarder, store: ElasticsearchVectorStore
) -> Iterator[Callable[..., ElasticsearchVectorStore]]:
    stores: list[ElasticsearchVectorStore] = []

    def open_(timeout_s: float) -> ElasticsearchVectorStore:
        url = f"elasticsearch://127.0.0.1:{line.port}/{store.index}?timeout_s={timeout_s}"
        stores.append(open_elasticsearch(url))
        return stores[-1]

    store.add([NODE])
    yield open_
    for each in stores:
        each.close()


class TestServer(ServerContract[ElasticsearchVectorStore]):
    pass


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
    store.add([NODE])
    url = f"{answering.url.replace('http', 'elasticsearch')}/{store.index}"
    calls = [CALLS[name] for name in ("search", "async search", "hybrid search", "add", "count")]
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
    open_through: Callable[..., ElasticsearchVectorStore], line: Forwarder
) -> None:
    store = open_through(timeout_s=10)
    for name in ("search", "async search", "search", "async search"):
        assert CALLS[name](store)
        line.down()
        line.up()


def test_closing_a_store_ends_waiting_requests_with_an_error(
    open_through: Callable[..., ElasticsearchVectorStore], line: Forwarder
) -> None:
    store = open_through(timeout_s=10)
    asyncio.run(store.aget_nodes())
    line.silent.set()

    async def waiting() -> None:
        reading = asyncio.create_task(store.aget_nodes())
        await asyncio.sleep(0.2)
        await asyncio.to_thread(store.close)
        with pytest.raises((StoreClosedError, StoreUnavailableError)):
            await asyncio.wait_for(reading, 5)

    asyncio.run(waiting())
    line.down()


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
        store.add([NODE])
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
    store.add([NODE])
    settings = store.client.indices.put_settings
    settings(index=store.index, settings={"index.blocks.read_only_allow_delete": True})
    with pytest.raises(StoreUnavailableError, match="read-only"):
        store.add([OTHER])
    assert store.count() == 1
    settings(index=store.index, settings={"index.blocks.read_only_allow_delete": None})
    store.add([OTHER])
    assert store.count() == 2


@pytest.mark.parametrize("end", ["speaks again", "is cut"])
async def test_answers_after_the_deadline_leave_no_unretrieved_exception(
    open_through: Callable[..., ElasticsearchVectorStore],
    line: Forwarder,
    caplog: pytest.LogCaptureFixture,
    end: str,
) -> None:
    store = open_through(timeout_s=1.5)
    keyword = KeywordRetriever(ElasticsearchBackend(store))
    legs = keyword | KeywordRetriever(ElasticsearchBackend(store))
    hybrid = legs >> RRF()
    assert await keyword.asearch(NODE.text)
    line.silent.set()
    late = [
        *(asyncio.wait_for(keyword.aretrieve(NODE.text), 0.1) for _ in range(4)),  # cancelled
        *(each.asearch(NODE.text, timeout_s=0.2) for each in (keyword, hybrid) for _ in range(4)),
        *(keyword.asearch(NODE.text) for _ in range(4)),  # the client's own time limit
    ]
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert sum(isinstance(each, Exception) for each in outcomes) > 4
    if end == "is cut":
        line.down()
        line.up()
    line.silent.clear()
    await asyncio.sleep(1.5)
    store.close()
    gc.collect()
    await asyncio.sleep(0)
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []
