"""A server that is down or silent: one clear error in time, and it works again after."""

import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import grpc
import httpx
import pytest
from grpc.aio import AioRpcError, Metadata, UsageError
from qdrant_client.http.exceptions import UnexpectedResponse

from llama_retrieval_ext.errors import StoreClosedError, StoreError, StoreUnavailableError
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.client import translate_error
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url
from tests.servers.qdrant import by_grpc, by_http
from tests.stores.server_contract import NODE, ServerContract

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "error", [ValueError("Cannot invoke RPC on closed channel!"), UsageError("Channel is closed.")]
)
def test_a_closed_channel_is_a_closed_store(error: Exception) -> None:
    assert type(translate_error(error, "db")) is StoreClosedError
