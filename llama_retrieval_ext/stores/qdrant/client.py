"""`QdrantConnection`: the clients of one store, for threads and event loops; URLs and errors."""

import re
import sqlite3
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, finalize

import grpc
from llama_index.core.vector_stores.types import FilterOperator
from qdrant_client import AsyncQdrantClient, QdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    UnsupportedFilterError,
    describe,
)
from llama_retrieval_ext.execution.drivers import in_thread
from llama_retrieval_ext.filters import Condition, comparisons
from llama_retrieval_ext.stores.engine.backend import EVERY_OPERATOR
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.engine.connection import (
    AsyncClient,
    Connection,
    SharedByPath,
    Steps,
)
from llama_retrieval_ext.urls import Address, UrlForm, local_path

MEMORY: Final = ":memory:"
FORM: Final = UrlForm(
    engine="Qdrant",
    scheme="qdrant",
    example="qdrant://host:6333/collection, qdrants://host/collection?api_key_env=NAME for TLS, "
    "qdrant:./directory or qdrant::memory:",
    credentials="?api_key_env=NAME",
    options=("api_key_env", "timeout_s", "prefer_grpc", "grpc_port"),
    local_options=("collection",),
)
_GRPC_PORT: Final = 6334
# Otherwise a channel waits for many seconds before it looks whether a server is back.
_RECONNECTS: Final = {
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 500,
}
_PAGE: Final = 256
_PORTS: Final = range(1, 65_536)


def parse_address(url: str) -> Address:
    """Return the address of a collection's URL.

    Examples:
        >>> parse_address("qdrants://db.example.com/handbook?api_key_env=QDRANT_KEY").url
        'https://db.example.com:6333'

    """
    address = FORM.parse(url)
    if not address.timeout_s.is_integer():
        raise ConfigurationError(
            f"timeout_s must be a whole number of seconds, got {address.timeout_s}"
        )
    grpc, port = address.options.get("prefer_grpc", "false"), address.options.get("grpc_port")
    if grpc not in {"true", "false"}:
        raise ConfigurationError(f"prefer_grpc must be true or false, got {grpc!r}")
    if port is not None and (grpc == "false" or int(port if port.isdecimal() else 0) not in _PORTS):
        raise ConfigurationError(
            f"grpc_port must be a port from 1 to 65535, beside prefer_grpc=true; got {port!r}"
        )
    return address


@dataclass(frozen=True, slots=True)
class MethodCall:
    """A call of a client method; steps receive its result or a translated error."""

    method: str
    arguments: Mapping[str, object]


def scroll(collection: str, **arguments: object) -> Steps[list[models.Record]]:
    """Return all records of a collection that match; read in pages."""
    records: list[models.Record] = []
    offset: models.ExtendedPointId | None = None
    while True:
        page = {"collection_name": collection, "limit": _PAGE, "offset": offset, **arguments}
        part, offset = yield MethodCall("scroll", page)
        records += part
        if offset is None:
            return records


T = TypeVar("T")

# Local mode is not thread-safe. Several stores may share one client, so each client has a lock.
_locks: Final[WeakKeyDictionary[object, RLock]] = WeakKeyDictionary()
_locks_lock: Final = RLock()


class QdrantConnection(Connection):
    """Connection to Qdrant; each step is a `MethodCall` or a slow function.

    Args:
        client: The sync client; None if there is only an async client.
        aclient: The async client; None to run async calls in a thread.
        where: The location for messages, without secrets.
        release: Closes or releases the sync client.

    Attributes:
        version: Version of the server, once it was read.
    """

    def __init__(
        self,
        client: QdrantClient | None,
        aclient: AsyncQdrantClient | None,
        *,
        where: str,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.where = where
        inner = getattr(client if client is not None else aclient, "_client", None)
        self.is_local = isinstance(inner, QdrantLocal | AsyncQdrantLocal)
        self.real_async = aclient is not None and not self.is_local
        self._client = client
        self._aclient = aclient
        self._release = release
        self.version = UNKNOWN
        self._lock: RLock | None = None
        if self.is_local:
            with _locks_lock:
                self._lock = _locks.setdefault(inner, RLock())
        options = _options(aclient)
        self._async = AsyncClient(lambda: AsyncQdrantClient(**options), self.closed_error)

    @classmethod
    def of_address(cls, address: Address) -> Self:
        """Return a connection to an address."""
        where = address.url or f"qdrant:{address.path}"
        with _clear_errors(where):
            client, release = _local(address.path) if address.path else _remote(address)
        aclient = None if address.path else AsyncQdrantClient(**_options(client))
        return cls(client, aclient, where=where, release=release)

    def read_version(self) -> Steps[None]:
        """Ask the server for its version; 0.0 if it does not report one."""
        try:
            info = yield MethodCall("info", {})
        except StoreUnavailableError:
            raise
        except StoreError:
            return
        self.version = Version.of(info.version)

    @property
    def client(self) -> QdrantClient:
        """The sync client, created on first use if there is only an async client."""
        if self._client is None:
            self._client = QdrantClient(**_options(self._aclient))
            finalize(self, self._client.close)  # the owner of the async client has no reference
        return self._client

    def close(self) -> None:
        """Close the async client, and the sync client if this connection created it."""
        self._async.close()
        if self._release is not None:
            self._release()

    def perform(self, request: MethodCall | Callable[[], object]) -> object:
        """Return the result of a request or a function; blocks."""
        if not isinstance(request, MethodCall):
            return request()
        with _clear_errors(self.where):
            if self._lock is None:
                return _send(self.client, request)
            with self._lock:
                if self._client is not None:
                    return _send(self._client, request)
                return _result_of(_send(self._aclient, request))

    async def aperform(self, request: MethodCall | Callable[[], object]) -> object:
        """`perform`, without blocking the event loop."""
        if not isinstance(request, MethodCall):
            return await in_thread(request)
        with _clear_errors(self.where):
            return await self._async.run(lambda client: _send(client, request))


@contextmanager
def _clear_errors(where: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        translated = translate_error(error, where)
        if translated is error:
            raise
        raise translated from error


def _options(client: QdrantClient | AsyncQdrantClient | None) -> Mapping[str, Any]:
    options: dict[str, Any] = dict(client.init_options) if client is not None else {}
    if channel := options.get("grpc_options"):  # to which the other client has added its name
        options["grpc_options"] = {
            name: value for name, value in channel.items() if name != "grpc.primary_user_agent"
        }
    # The other client has already checked the server's version.
    return {**options, "check_compatibility": False}


def _send(client: object, request: MethodCall) -> Any:  # noqa: ANN401 - as the method says
    return getattr(client, request.method)(**request.arguments)


def _result_of(coroutine: Coroutine[None, None, T]) -> T:
    """Return the result of a coroutine of local mode, which never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # Any in every coroutine
    raise RuntimeError("qdrant-client's local mode waits for something; use a sync client")


_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


_directories: Final = SharedByPath(
    lambda path: QdrantClient(path=str(path), force_disable_check_same_thread=True),
    QdrantClient.close,
)


def _local(path: str) -> tuple[QdrantClient, Callable[[], None]]:
    if path == MEMORY:
        client = QdrantClient(MEMORY)
        return client, client.close
    shared = _directories.acquire(local_path(path))
    return shared.resource, lambda: _directories.release(shared)


def _remote(address: Address) -> tuple[QdrantClient, Callable[[], None]]:
    key = next(iter(address.secrets("api_key_env")), None)
    # The client warns about unencrypted keys, which are safe on the loopback interface.
    quiet = key is not None and urlsplit(address.url).hostname in _LOOPBACK
    client = QdrantClient(
        url=address.url,
        port=None,
        api_key=None if quiet else key,
        headers={"api-key": key} if quiet and key is not None else None,
        timeout=int(address.timeout_s),
        prefer_grpc=address.options.get("prefer_grpc") == "true",
        grpc_port=int(address.options.get("grpc_port", _GRPC_PORT)),
        grpc_options=dict(_RECONNECTS),  # the client adds to it
        check_compatibility=False,  # it warns from a thread; `server_version` checks instead
    )
    return client, client.close


_IDF_CORPUS: Final = (1, 19)
_SUBSTRINGS: Final = (1, 20)
_WITHIN_TEXT: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}
# First version with collection metadata and the RRF constant; other fusions are older.
_OLDEST: Final = (1, 16)


class Version(NamedTuple):
    """The version of a Qdrant server."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the version of a text such as ``1.20.0``; 0.0 if it is not a version."""
        numbers = re.match(r"(\d+)\.(\d+)", text)
        return cls(*map(int, numbers.groups())) if numbers else cls(0, 0)

    @property
    def measures_rarity(self) -> bool:
        """Whether IDF is of a corpus: the nodes of a filter, without deleted ones.

        Older servers ignore the parameter. Their IDF is of the whole index, and includes nodes that
        were deleted or replaced until the server rewrites the segment.
        """
        return self >= _IDF_CORPUS

    @property
    def fuses(self) -> bool:
        """Whether the server's fusions compute our formulas."""
        return self >= _OLDEST

    @property
    def operators(self) -> frozenset[FilterOperator]:
        """Filter operators that the server evaluates."""
        if self >= _SUBSTRINGS:
            return EVERY_OPERATOR
        return EVERY_OPERATOR - _WITHIN_TEXT

    def check_server(self, where: str) -> None:
        """Raise `ConfigurationError` if the server is too old for this package."""
        if UNKNOWN < self < _OLDEST:
            raise ConfigurationError(
                f"the Qdrant of {where} is {self.major}.{self.minor}, and must be 1.16 or newer, "
                "which keep with a collection what it was made with; update the server, or hand "
                "in LlamaIndex's QdrantVectorStore over it"
            )

    def check(self, condition: Condition) -> None:
        """Raise `UnsupportedFilterError` if the server cannot evaluate the condition."""
        for comparison in () if self >= _SUBSTRINGS else comparisons(condition):
            if comparison.operator not in self.operators:
                raise UnsupportedFilterError(
                    f"TEXT_MATCH needs Qdrant 1.20, this is {self.major}.{self.minor}: older ones "
                    "compare whole words, in any case; use EQ or IN, or update the server",
                    comparison.operator.name,
                )


UNKNOWN: Final = Version(0, 0)


_REFUSED: Final = {401, 403}
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_BUSY: Final = {408, _TOO_MANY}
_BROKEN: Final = 500
_UNREACHABLE: Final = 1000  # no status of HTTP: no server answers
# Of the errors that a closed client raises.
_MAY_BE_CLOSED: Final = (0, 503, _UNREACHABLE)
# HTTP status by gRPC code.
_RPC: Final[Mapping[object, int]] = {
    grpc.StatusCode.UNAVAILABLE: _UNREACHABLE,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.ABORTED: 503,
    grpc.StatusCode.CANCELLED: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
# Messages of closed clients: of HTTP, of local mode, and of gRPC channels, sync and async.
_CLOSED: Final = re.compile(
    "client has been closed|instance is closed|closed channel|channel (is )?closed", re.IGNORECASE
)


def translate_error(error: Exception, where: str) -> Exception:
    """Return our error for a client error; return other errors unchanged."""
    status, answer = _status_of(error)
    message = " ".join(answer.split())
    if status is None:
        return error
    if status in _MAY_BE_CLOSED and _CLOSED.search(message):
        return StoreClosedError(f"{where} was closed; open it again")
    if status == _NOT_FOUND:
        return CollectionMissingError(f"{where} has no such collection: {message}")
    if status in _REFUSED:
        message = (
            "refused the credentials; name the environment variable that holds the right key: "
            "?api_key_env=NAME"
        )
    elif status == _UNREACHABLE:
        by_grpc = isinstance(error, grpc.Call | grpc.aio.AioRpcError)  # the second is not the first
        parts = f"?grpc_port= ({_GRPC_PORT} without it)" if by_grpc else "port"
        message = (
            f"cannot be reached, or what answers is no Qdrant: {message}; check host, {parts} and "
            "whether the server runs"
        )
    elif status in _BUSY or status >= _BROKEN:
        message = f"cannot answer now: {message}"
    else:
        return StoreError(f"{where} refused the request: {message}")
    return StoreUnavailableError(f"{where} {message}")


def _status_of(error: Exception) -> tuple[int | None, str]:  # noqa: PLR0911 - one a kind
    """Return the HTTP status that stands for an error, and the message; None for other errors."""
    message = str(error)
    match error:
        case UnexpectedResponse():
            content = error.content[:500].decode(errors="replace")
            return error.status_code or 0, f"{error.status_code} {error.reason_phrase}: {content}"
        case ResponseHandlingException():
            return _UNREACHABLE, describe(error.source)
        case ResourceExhaustedResponse():
            return _TOO_MANY, message
        case grpc.Call() | grpc.aio.AioRpcError():
            code = error.code()
            return _RPC.get(code, 0), f"{code.name}: {error.details()}"
        case sqlite3.Error() | OSError():  # of local mode, as what follows
            return _BROKEN, f"it cannot be read or written: {describe(error)}"
        case RuntimeError() if "already accessed" in message:
            reason = "another process, or another client in this one, has it open; close it there"
            return _BROKEN, f"{reason}, or use a server"
        case ValueError() if message.startswith("Collection") and "not found" in message:
            return _NOT_FOUND, message
        case _:
            return 0 if _CLOSED.search(message) else None, message
