"""URLs of Qdrant, keys that are never shown, and versions of servers."""

import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import grpc
import httpx
import pytest
from grpc.aio import AioRpcError, Metadata, UsageError
from qdrant_client.http.exceptions import UnexpectedResponse

from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.client import Version, parse_address, translate_error
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.urls import Address
from tests.cases import cases
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url
from tests.servers.qdrant import by_grpc, by_http
from tests.stores.qdrant.conftest import KEY
from tests.stores.server_contract import NODE, ServerContract

pytestmark = pytest.mark.slow


@cases(
    ("url", "expected"),
    [
        ("qdrant://db/kb", Address("kb", url="http://db:6333")),
        (
            "qdrants://db/kb?api_key_env=K&timeout_s=5&prefer_grpc=true",
            Address("kb", "https://db:6333", "", 5.0, {"api_key_env": "K", "prefer_grpc": "true"}),
        ),
        ("qdrant:./dir", Address("nodes", path="./dir")),
        ("qdrant:/var/lib/kb?collection=x", Address("x", path="/var/lib/kb")),
        ("qdrant::memory:", Address("nodes", path=":memory:")),
    ],
)
def test_a_url_names_a_server_or_a_folder_and_a_collection(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


def test_a_timeout_of_a_part_of_a_second_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="whole number of seconds"):
        parse_address("qdrant://db/kb?timeout_s=0.5")


@cases("options", ["grpc_port=6334", "prefer_grpc=true&grpc_port=0", "prefer_grpc=yes"])
def test_options_of_grpc_that_would_be_ignored_are_refused(options: str) -> None:
    with pytest.raises(ConfigurationError, match=r"prefer_grpc(=| must be )true"):
        parse_address(f"qdrant://db/kb?{options}")


def test_the_key_reaches_the_server_and_nothing_that_is_shown(
    keyed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_QDRANT_KEY", KEY)
    with QdrantStore(f"{keyed_url}/kb?api_key_env=TEST_QDRANT_KEY") as store:
        assert store.count() == 0
        shown = [repr(store), str(store), store.model_dump_json(), str(vars(store))]
        shown.append(str(store.describe()))
    assert not any(KEY in text for text in shown)
    monkeypatch.setenv("WRONG_KEY", "wrong")
    for url in (f"{keyed_url}/kb", f"{keyed_url}/kb?api_key_env=WRONG_KEY"):
        with pytest.raises(StoreUnavailableError, match="refused the credentials") as caught:
            QdrantStore(url)
        assert "wrong" not in str(caught.value)


@cases("version", ["1.15.5", "0.11.2"])
def test_a_server_that_keeps_no_settings_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must be 1\.16 or newer"):
        Version.of(version).check_server("db")


@cases("version", ["1.16.0", "2.0.0", "unknown"])
def test_a_server_of_another_version_is_accepted(version: str) -> None:
    Version.of(version).check_server("db")


class PatientForwarder(Forwarder):
    """Is up when channels of gRPC, which try twice a second, have seen it."""

    def up(self) -> None:
        again = self.port != 0
        super().up()
        time.sleep(1.5 if again else 0)


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, qdrant_url: str) -> str:
    return by_http(qdrant_url) if request.param == "http" else by_grpc(qdrant_url)


@pytest.fixture
def line(url: str) -> Iterator[Forwarder]:
    port = url.partition("grpc_port=")[2] or urlsplit(url).port
    kind = PatientForwarder if "grpc_port=" in url else Forwarder
    with kind(int(port or 0)) as forwarder:
        yield forwarder


@pytest.fixture
def open_through(url: str, line: Forwarder) -> Iterator[Callable[..., QdrantStore]]:
    stores: list[QdrantStore] = []
    direct_url = collection_url(url, f"line{uuid4().hex}")
    place, _, options = direct_url.partition("?")
    if options:
        through = f"{place}?prefer_grpc=true&grpc_port={line.port}"
    else:
        through = f"qdrant://127.0.0.1:{line.port}/{place.rpartition('/')[2]}?"

    def open_(timeout_s: float) -> QdrantStore:
        stores.append(QdrantStore(f"{through}&timeout_s={timeout_s}"))
        return stores[-1]

    with QdrantStore(direct_url) as direct:
        direct.add([NODE])
        yield open_
        for store in stores:
            store.close()
        direct.clear()


class TestServer(ServerContract[QdrantStore]):
    pass


def test_what_is_no_qdrant_is_unavailable(qdrant_url: str) -> None:
    port = by_grpc(qdrant_url).partition("grpc_port=")[2]
    with pytest.raises(StoreUnavailableError, match="no Qdrant"):
        QdrantStore(f"qdrant://127.0.0.1:{port}/kb")


@cases(
    ("status", "kind", "reason"),
    [
        (401, StoreUnavailableError, "refused the credentials"),
        (429, StoreUnavailableError, "cannot answer now"),
        (503, StoreUnavailableError, "cannot answer now"),
        (404, CollectionMissingError, "no such collection"),
        (400, StoreError, "refused the request: 400"),
    ],
)
def test_an_error_status_has_a_class_and_one_line(
    status: int, kind: type[StoreError], reason: str
) -> None:
    content = b"{\n  as in a test\n}"
    translated = translate_error(
        UnexpectedResponse(status, "reason", content, httpx.Headers()), "db"
    )
    assert type(translated) is kind
    assert reason in str(translated)
    assert "\n" not in str(translated)


CODES = grpc.StatusCode


class SyncRpcError(grpc.RpcError, grpc.Call):  # type: ignore[misc]  # untyped, as grpc raises
    """An error of a synchronous call."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = lambda: code, lambda: details

    __abstractmethods__: frozenset[str] = frozenset()


@cases(
    ("code", "details", "kind"),
    [
        (CODES.NOT_FOUND, "no collection", CollectionMissingError),
        (CODES.UNAVAILABLE, "failed to\nconnect", StoreUnavailableError),
        (CODES.DEADLINE_EXCEEDED, "Deadline\nExceeded", StoreUnavailableError),
        (CODES.RESOURCE_EXHAUSTED, "busy", StoreUnavailableError),
        (CODES.UNAUTHENTICATED, "key", StoreUnavailableError),
        (CODES.INTERNAL, "channel closed", StoreUnavailableError),
        (CODES.CANCELLED, "Channel closed!", StoreClosedError),
        (CODES.INVALID_ARGUMENT, "wrong\nvector", StoreError),
    ],
)
def test_an_error_of_grpc_has_the_same_class_in_sync_and_async_calls(
    code: grpc.StatusCode, details: str, kind: type[StoreError]
) -> None:
    async_error = AioRpcError(code, Metadata(), Metadata(), details=details)
    for error in (SyncRpcError(code, details), async_error):
        translated = translate_error(error, "db")
        assert type(translated) is kind
        assert "\n" not in str(translated)


@cases(
    "error", [ValueError("Cannot invoke RPC on closed channel!"), UsageError("Channel is closed.")]
)
def test_a_closed_channel_is_a_closed_store(error: Exception) -> None:
    assert type(translate_error(error, "db")) is StoreClosedError
