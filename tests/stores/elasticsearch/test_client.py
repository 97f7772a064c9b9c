"""URLs of Elasticsearch, credentials, and errors of shards."""

import asyncio
import base64
import gc
import http.server
import json
import threading
from collections.abc import Callable, Iterator

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, KeywordRetriever
from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.elasticsearch.client import (
    FORM,
    Json,
    ShardsMissingError,
    Transport,
    error_of_part,
    request_of,
)
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchVectorStore,
    open_elasticsearch,
)
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.urls import Address
from tests.cases import cases
from tests.patience import SOON_S, in_time, soon
from tests.servers.forwarder import Forwarder
from tests.servers.given import local_port
from tests.stores.server_contract import CALLS, NODE, OTHER, ServerContract

pytestmark = pytest.mark.slow


def _transport(address: Address) -> Transport:
    transport = Transport.of_address(address)
    transport.close()
    return transport


@cases(
    ("url", "where", "index"),
    [
        ("elasticsearch://localhost/docs", "http://localhost:9200", "docs"),
        ("elasticsearchs://es.example/proxy/es/docs", "https://es.example:9200/proxy/es", "docs"),
        ("elasticsearch://[::1]:9201/docs-1.2_x", "http://[::1]:9201", "docs-1.2_x"),
    ],
)
def test_a_url_names_a_server_and_an_index(url: str, where: str, index: str) -> None:
    address = FORM.parse(url)
    assert (address.url, address.collection) == (where, index)


@cases("index", ["", "_all", "*", "a,b", "Upper", "-a", "..", "a#b"])
def test_an_index_name_that_names_none_or_several_is_refused(index: str) -> None:
    with pytest.raises(ConfigurationError, match="index"):
        FORM.parse(f"elasticsearch://localhost/{index.replace('#', '%23')}")


def test_credentials_come_from_the_environment_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ES_USER", "elastic")
    monkeypatch.setenv("ES_PASSWORD", "hunter2")
    address = FORM.parse("elasticsearch://localhost/docs?user_env=ES_USER&password_env=ES_PASSWORD")
    transport = _transport(address)
    assert transport.options["basic_auth"] == ("elastic", "hunter2")
    assert "hunter2" not in f"{address!r} {transport!r}"
    monkeypatch.setenv("ES_KEY", "hunter2")
    keyed = FORM.parse("elasticsearch://localhost/docs?api_key_env=ES_KEY&timeout_s=5")
    transport = _transport(keyed)
    assert transport.options["api_key"] == "hunter2"
    assert transport.timeout_s == 5.0
    for user in ("user_env=ES_USER&password_env=ES_PASSWORD", "user_env=ES_USER"):
        with pytest.raises(ConfigurationError, match="not both"):
            _transport(FORM.parse(f"elasticsearch://h/d?api_key_env=ES_KEY&{user}"))


def test_a_server_that_is_not_there_cannot_be_opened() -> None:
    with pytest.raises(StoreUnavailableError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        open_elasticsearch("elasticsearch://127.0.0.1:9/docs")


@cases("status", [404, 503])
def test_the_error_of_a_recovering_shard_is_recognised(status: int) -> None:
    reason = "CurrentState[RECOVERING] operations only allowed when shard state is one of [STARTED]"
    body = {"error": {"type": "illegal_index_shard_state_exception", "reason": reason}}
    assert isinstance(error_of_part(status, body, "an index"), ShardsMissingError)


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
    """Answers every request with the same status and JSON, or with 401 without the credentials."""

    status = 200
    body: Json
    authorization: str | None = None
    product = "Elasticsearch"
    url = ""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        known = self.authorization in (None, self.headers.get("authorization"))
        content = json.dumps(self.body).encode()
        self.send_response(self.status if known else 401)
        self.send_header("content-type", "application/json")
        self.send_header("x-elastic-product", self.product)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - their names there

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
        (403, "security_exception", "does not allow it"),
        (429, "circuit_breaking_exception", "circuit_breaking_exception"),  # out of memory
        (503, "cluster_block_exception", "in trouble"),
        (503, None, "in trouble"),  # of what stands before the server
    ],
)
def test_an_error_status_is_unavailable_and_the_next_request_works(
    answering: type[Answering], status: int, kind: str | None, reason: str
) -> None:
    error = {"type": kind, "reason": "as in a test"}
    url = f"{answering.url.replace('http', 'elasticsearch')}/docs"
    reads: list[Callable[[EngineStore], object]] = [
        EngineStore.count,
        lambda store: asyncio.run(store.aget_nodes()),
    ]
    with open_elasticsearch(url) as store:
        for read in reads:
            answering.body = {} if kind is None else {"error": {**error, "root_cause": [error]}}
            answering.status = status
            with soon(), pytest.raises(StoreUnavailableError, match=reason):
                read(store)
            answering.body, answering.status = {}, 200
            assert not read(store)


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
    store = open_through(timeout_s=60)
    asyncio.run(store.aget_nodes())
    line.silent.set()

    async def waiting() -> None:
        reading = asyncio.create_task(store.aget_nodes())
        await asyncio.sleep(0.2)
        await asyncio.to_thread(store.close)
        with pytest.raises((StoreClosedError, StoreUnavailableError)):
            await asyncio.wait_for(reading, SOON_S)

    asyncio.run(waiting())
    line.down()


def test_a_server_that_is_not_elasticsearch_is_refused(answering: type[Answering]) -> None:
    answering.product = "other"
    with pytest.raises(StoreUnavailableError, match="is not Elasticsearch"):
        open_elasticsearch(f"{answering.url.replace('http', 'elasticsearch')}/docs")


def test_only_the_right_credentials_open_a_store_and_nothing_shows_them(
    answering: type[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering.authorization = f"Basic {base64.b64encode(b'elastic:hunter2').decode()}"
    base = f"{answering.url.replace('http', 'elasticsearch')}/docs"
    monkeypatch.setenv("ES_USER", "elastic")
    monkeypatch.setenv("ES_PASSWORD", "wrong")
    named = f"{base}?user_env=ES_USER&password_env=ES_PASSWORD"
    for attempt in (base, named):
        with pytest.raises(StoreUnavailableError, match=r"HTTP 401.*user_env"):
            open_elasticsearch(attempt)
    monkeypatch.setenv("ES_PASSWORD", "hunter2")
    with open_elasticsearch(named) as store:
        assert asyncio.run(store.aget_nodes()) == store.get_nodes() == []
        transport = Transport.of_client(store.client)
        transport.perform(request_of("GET", "_cluster", "health"))
        transport.close()
        assert transport.where == answering.url
        for shown in (repr(store), str(store.describe()), repr(transport)):
            assert "hunter2" not in shown


def test_a_request_that_the_server_refuses_fails_with_its_reason(
    store: ElasticsearchVectorStore,
) -> None:
    url = f"{store.transport.where.replace('http', 'elasticsearch')}/lre-odd"
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


async def test_answers_after_the_deadline_leave_no_unretrieved_exception(
    open_through: Callable[..., ElasticsearchVectorStore],
    line: Forwarder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = in_time(lambda: open_through(timeout_s=1.5))
    keyword = KeywordRetriever(store)
    legs = keyword | KeywordRetriever(store)
    hybrid = legs >> RRF()
    assert in_time(lambda: keyword.search(NODE.text))
    line.silent.set()
    late = [
        *(asyncio.wait_for(keyword.aretrieve(NODE.text), 0.1) for _ in range(4)),  # cancelled
        *(each.asearch(NODE.text, timeout_s=0.2) for each in (keyword, hybrid) for _ in range(4)),
        *(keyword.asearch(NODE.text) for _ in range(4)),  # the client's own time limit
    ]
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert sum(isinstance(outcome, Exception) for outcome in outcomes) > 4
    line.down()
    line.up()
    line.silent.clear()
    await asyncio.sleep(1.5)
    store.close()
    gc.collect()
    await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
