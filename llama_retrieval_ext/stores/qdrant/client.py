"""`Connection`: the clients of one store, for threads and event loops alike."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, finalize

from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_retrieval_ext.execution.plan import Call, Steps, arun_steps, run_steps
from llama_retrieval_ext.stores.qdrant.errors import translate_error
from llama_retrieval_ext.stores.qdrant.url import MEMORY, Address


@dataclass(frozen=True, slots=True)
class Request:
    """Call a method of the client; the steps get its result, or its error as one of ours."""

    method: str
    arguments: Mapping[str, object]


T = TypeVar("T")

# Local mode is not made for threads. Several stores may share one client; it has one lock.
_locks: Final[WeakKeyDictionary[object, RLock]] = WeakKeyDictionary()
_locks_lock: Final = RLock()


class Connection:
    """Runs steps against a Qdrant: each step is a `Request`, or a function that takes a while.

    Args:
        client: The sync client; None where there is only an async one.
        aclient: The async client; None to let async callers wait in a thread.
        where: The store, for messages; never a secret.
    """

    def __init__(
        self, client: QdrantClient | None, aclient: AsyncQdrantClient | None, *, where: str
    ) -> None:
        self.where = where
        inner = getattr(client if client is not None else aclient, "_client", None)
        self.is_local = isinstance(inner, QdrantLocal | AsyncQdrantLocal)
        self.real_async = aclient is not None and not self.is_local
        self._client = client
        self._aclient = aclient
        self._lock = _lock_of(inner) if self.is_local else None
        self._by_loop = LoopClients(lambda: AsyncQdrantClient(**_options(aclient)))

    def named(self, where: str) -> "Connection":
        """Return a connection of the same clients, for another store."""
        return Connection(self._client, self._aclient, where=where)

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps."""
        coroutine = (lambda: self.arun(steps())) if self.real_async else None
        return Call(lambda: self.run(steps()), coroutine)

    def run(self, steps: Steps[T]) -> T:
        """Run steps; blocks."""
        return run_steps(steps, self._perform)

    async def arun(self, steps: Steps[T]) -> T:
        """Run steps on the running event loop, which it never blocks."""
        if not self.real_async:
            return await asyncio.to_thread(self.run, steps)
        return await arun_steps(steps, self._aperform)

    def close_async(self) -> None:
        """Close the clients of event loops."""
        self._by_loop.close()

    def _perform(self, step: Request | Callable[[], object]) -> object:
        if not isinstance(step, Request):
            return step()
        with self._clear_errors():
            if self._lock is None:
                return _send(self._sync_client(), step)
            with self._lock:
                if self._client is not None:
                    return _send(self._client, step)
                return _result_of(_send(self._aclient, step))

    async def _aperform(self, step: Request | Callable[[], object]) -> object:
        if not isinstance(step, Request):
            return await asyncio.to_thread(step)
        with self._clear_errors():
            return await _send(await self._by_loop.of_this_loop(), step)

    def _sync_client(self) -> QdrantClient:
        if self._client is None:
            self._client = QdrantClient(**_options(self._aclient))
            finalize(self, self._client.close)  # the owner of the other does not know of this one
        return self._client

    @contextmanager
    def _clear_errors(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            translated = translate_error(error, self.where)
            if translated is error:
                raise
            raise translated from error


def _options(client: AsyncQdrantClient | None) -> Mapping[str, Any]:
    options: dict[str, Any] = client.init_options if client is not None else {}
    # The other client has checked the server's version.
    return {**options, "check_compatibility": False}


def _send(client: object, request: Request) -> Any:  # noqa: ANN401 - as the method says
    return getattr(client, request.method)(**request.arguments)


def _result_of(coroutine: Coroutine[None, None, T]) -> T:
    """The result of a coroutine of local mode, which never waits for anything."""
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
    """A local client and how many use it; when nobody does, it is closed."""

    client: QdrantClient
    users: int = 0


class LocalClients:
    """The directories this process has open: Qdrant's local mode opens each only once.

    A notebook cell that opens a store is run again and again. The garbage collector releases stores
    at any line of any thread; therefore the lock is reentrant.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know of none: a forked child can use nothing of what its parent has open."""
        self._lock = RLock()
        self._open: dict[Path, _Shared] = {}

    def acquire(self, path: str) -> tuple[QdrantClient, Callable[[], None]]:
        """The client of a directory, and what releases it."""
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


# Module state, because a process can have a directory open once, whoever opens it.
local_clients: Final = LocalClients()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=local_clients.forget)


def connect(address: Address) -> tuple[Connection, QdrantClient, Callable[[], None]]:
    """Return a connection to an address, its sync client, and a function that closes it."""
    where = str(address)
    try:
        client, close = _local(address.path) if address.path is not None else _remote(address)
    except Exception as error:
        translated = translate_error(error, where)
        if translated is error:
            raise
        raise translated from error
    aclient = None if address.path is not None else AsyncQdrantClient(**client.init_options)
    connection = Connection(client, aclient, where=where)

    def close_all() -> None:
        connection.close_async()
        close()

    return connection, client, close_all


def _local(path: str) -> tuple[QdrantClient, Callable[[], None]]:
    if path == MEMORY:
        client = QdrantClient(MEMORY)
        return client, client.close
    return local_clients.acquire(path)


def _remote(address: Address) -> tuple[QdrantClient, Callable[[], None]]:
    key = address.api_key()
    # The client warns of keys that go unencrypted; on this machine nobody else can read them.
    quiet = key is not None and urlsplit(address.url or "").hostname in _LOOPBACK
    client = QdrantClient(
        url=address.url,
        port=None,
        api_key=None if quiet else key,
        headers={"api-key": key} if quiet and key is not None else None,
        timeout=address.timeout_s,
        prefer_grpc=address.prefer_grpc,
        check_compatibility=False,  # it warns, from a thread; what depends on the version asks
    )
    return client, client.close


class _Closable(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class LoopClients(Generic[C]):
    """Makes a client when a loop first asks, and closes it before the loop is closed.

    The connections that a client keeps open belong to the loop they were made on: a client that
    outlives its loop can neither use nor close them.

    Args:
        make: Makes a client.

    Examples:
        >>> class Client:
        ...     async def close(self):
        ...         print("closed")
        >>> clients = LoopClients(Client)
        >>> async def ask():
        ...     return await clients.of_this_loop() is await clients.of_this_loop()
        >>> asyncio.run(ask())
        closed
        True

    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._kept: dict[asyncio.AbstractEventLoop, tuple[C, AsyncGenerator[None, None]]] = {}

    async def of_this_loop(self) -> C:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._kept:
            self._forget_the_closed()
            client = self._make()
            closing = self._close_with_loop(loop, client)
            self._kept[loop] = client, closing
            # A loop ends the generators that were begun on it before it is closed: so do
            # asyncio.run and Runner, uvloop and pytest. No other sign of its end is given.
            await anext(closing)
        return self._kept[loop][0]

    def close(self) -> None:
        """Have the loops that run close their clients; those that stand do it when they end."""
        for loop, (_, closing) in list(self._kept.items()):
            if loop.is_running():
                with suppress(RuntimeError):  # it ended just now
                    asyncio.run_coroutine_threadsafe(_finish_generator(closing), loop)

    async def _close_with_loop(
        self, loop: asyncio.AbstractEventLoop, client: C
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._kept.pop(loop, None)
            await client.close()

    def _forget_the_closed(self) -> None:
        """Drop what belongs to loops that were closed without ending their generators."""
        for loop in list(self._kept):
            if loop.is_closed():
                self._kept.pop(loop, None)


async def _finish_generator(generator: AsyncGenerator[None, None]) -> None:
    await generator.aclose()
