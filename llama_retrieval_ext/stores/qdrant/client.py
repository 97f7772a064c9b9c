"""`QdrantConnection`: the clients of one store, for threads and event loops."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, finalize

from llama_index.core.vector_stores.types import FilterOperator
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedFilterError,
)
from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.stores.engine.backend import EVERY_OPERATOR
from llama_retrieval_ext.stores.engine.connection import AsyncClient, Connection
from llama_retrieval_ext.stores.qdrant.errors import translate_error
from llama_retrieval_ext.stores.qdrant.url import MEMORY, Address
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, Contains, Group


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a client method; steps receive its result or a translated error."""

    method: str
    arguments: Mapping[str, object]


T = TypeVar("T")

# Local mode is not thread-safe. Several stores may share one client, so each client has a lock.
_locks: Final[WeakKeyDictionary[object, RLock]] = WeakKeyDictionary()
_locks_lock: Final = RLock()


class QdrantConnection(Connection):
    """Connection to Qdrant; each step is a `Request` or a slow function.

    Args:
        client: The sync client; None if there is only an async client.
        aclient: The async client; None to run async calls in a thread.
        where: The location for messages, without secrets.
        release: Closes or releases the sync client.
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
        self._lock = _lock_of(inner) if self.is_local else None
        options = _options(aclient)
        self._async = AsyncClient(lambda: AsyncQdrantClient(**options), self.closed_error)

    @classmethod
    def of_address(cls, address: Address) -> Self:
        """Return a connection to an address."""
        with _clear_errors(address.where):
            client, release = _remote(address) if address.path is None else _local(address.path)
        aclient = None if address.path is not None else AsyncQdrantClient(**client.init_options)
        return cls(client, aclient, where=address.where, release=release)

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

    def perform(self, request: Request | Callable[[], object]) -> object:
        """Return the result of a request or a function; blocks."""
        if not isinstance(request, Request):
            return request()
        with _clear_errors(self.where):
            if self._lock is None:
                return _send(self.client, request)
            with self._lock:
                if self._client is not None:
                    return _send(self._client, request)
                return _result_of(_send(self._aclient, request))

    async def aperform(self, request: Request | Callable[[], object]) -> object:
        """`perform`, without blocking the event loop."""
        if not isinstance(request, Request):
            return await asyncio.to_thread(request)
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


def _options(client: AsyncQdrantClient | None) -> Mapping[str, Any]:
    options: dict[str, Any] = client.init_options if client is not None else {}
    # The other client has already checked the server's version.
    return {**options, "check_compatibility": False}


def _send(client: object, request: Request) -> Any:  # noqa: ANN401 - as the method says
    return getattr(client, request.method)(**request.arguments)


def _result_of(coroutine: Coroutine[None, None, T]) -> T:
    """Return the result of a coroutine of local mode, which never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # Any in every coroutine
    raise RuntimeError("qdrant-client's local mode waits for something; use a sync client")


def _lock_of(local: object) -> RLock:
    with _locks_lock:
        return _locks.setdefault(local, RLock())


_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


@dataclass(slots=True, eq=False)
class _Shared:
    """A local client and its number of users; the last one closes it."""

    client: QdrantClient
    users: int = 0


class LocalClients:
    """Shared clients of the open directories; local mode opens each directory only once.

    Sharing allows a notebook cell that opens a store to run repeatedly. The lock is reentrant,
    because the garbage collector can release a store at any line of any thread.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the state, because a forked child cannot use its parent's clients."""
        self._lock = RLock()
        self._open: dict[Path, _Shared] = {}

    def acquire(self, path: str) -> tuple[QdrantClient, Callable[[], None]]:
        """Return the client of a directory, and the function that releases it."""
        real = Path(path).expanduser().resolve()
        with self._lock:
            if real not in self._open:
                client = QdrantClient(path=str(real), force_disable_check_same_thread=True)
                self._open[real] = _Shared(client)
            shared = self._open[real]
            shared.users += 1
        return shared.client, lambda: self._release(real, shared)

    def _release(self, real: Path, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users == 0:
                del self._open[real]
                shared.client.close()


# Module state, because a process can open a directory only once.
local_clients: Final = LocalClients()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=local_clients.forget)


def _local(path: str) -> tuple[QdrantClient, Callable[[], None]]:
    if path == MEMORY:
        client = QdrantClient(MEMORY)
        return client, client.close
    return local_clients.acquire(path)


def _remote(address: Address) -> tuple[QdrantClient, Callable[[], None]]:
    key = address.api_key()
    # The client warns about unencrypted keys, which are safe on the loopback interface.
    quiet = key is not None and urlsplit(address.url or "").hostname in _LOOPBACK
    client = QdrantClient(
        url=address.url,
        port=None,
        api_key=None if quiet else key,
        headers={"api-key": key} if quiet and key is not None else None,
        timeout=address.timeout_s,
        prefer_grpc=address.prefer_grpc,
        check_compatibility=False,  # it warns from a thread; `server_version` checks instead
    )
    return client, client.close


_IDF_CORPUS: Final = (1, 19)
_SUBSTRINGS: Final = (1, 20)
_WITHIN_TEXT: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}
# First version with collection metadata and the RRF constant; other fusions are older.
_OLDEST: Final = (1, 16)


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a Qdrant server."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the version of a text such as ``1.20.0``; 0.0 if it is not a version."""
        major, _, rest = text.partition(".")
        minor = rest.partition(".")[0]
        numbers = major.isdecimal() and minor.isdecimal()
        return cls(int(major), int(minor)) if numbers else cls(0, 0)

    @property
    def measures_rarity_in_scope(self) -> bool:
        """Whether IDF can use a filtered corpus; older servers ignore the parameter."""
        return (self.major, self.minor) >= _IDF_CORPUS

    @property
    def fuses(self) -> bool:
        """Whether the server's fusions compute our formulas."""
        return (self.major, self.minor) >= _OLDEST

    @property
    def operators(self) -> frozenset[FilterOperator]:
        """Filter operators that the server evaluates."""
        if (self.major, self.minor) >= _SUBSTRINGS:
            return EVERY_OPERATOR
        return EVERY_OPERATOR - _WITHIN_TEXT

    def check_server(self, where: str) -> None:
        """Raise `ConfigurationError` if the server is too old for this package."""
        if (0, 0) < (self.major, self.minor) < _OLDEST:
            raise ConfigurationError(
                f"the Qdrant of {where} is {self.major}.{self.minor}, and must be 1.16 or newer, "
                "which keep with a collection what it was made with; update the server, or hand "
                "in LlamaIndex's QdrantVectorStore over it"
            )

    def check(self, clause: Clause) -> None:
        """Raise `UnsupportedFilterError` if the server cannot evaluate the clause."""
        if (self.major, self.minor) < _SUBSTRINGS and _searches_in_text(clause):
            raise UnsupportedFilterError(
                f"TEXT_MATCH needs Qdrant 1.20, this is {self.major}.{self.minor}: older ones "
                "compare whole words, in any case; use EQ or IN, or update the server",
                "TEXT_MATCH",
            )


UNKNOWN: Final = Version(0, 0)


def server_version() -> Steps[Version]:
    """Return the server's version; 0.0 if it does not report one."""
    try:
        info = yield Request("info", {})
    except StoreUnavailableError:
        raise
    except StoreError:
        return UNKNOWN
    return Version.of(info.version)


def _searches_in_text(clause: Clause) -> bool:
    if isinstance(clause, Group):
        return any(map(_searches_in_text, (*clause.every, *clause.some, *clause.no)))
    return isinstance(clause, Contains)
