"""`Connection`: the clients of one store, asked by threads or on an event loop alike."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from threading import RLock
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, finalize

from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.local.async_qdrant_local import AsyncQdrantLocal
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.qdrant.failures import meaning
from llama_retrieval_ext.stores.qdrant.loop_clients import LoopClients
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk, Work

T = TypeVar("T")

# Local mode is not made for threads. Several stores may share one client; it has one lock.
_locks: Final[WeakKeyDictionary[object, RLock]] = WeakKeyDictionary()
_locks_lock: Final = RLock()


class Connection:
    """Carries out talks with a Qdrant.

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
        # Local mode multiplies matrices, whose last digits depend on where in memory they lie.
        self.grain = 1e-6 if self.is_local else 0.0
        # There a question costs the same whatever its limit.
        self.slack = 50 if self.is_local else 0
        self.real_async = aclient is not None and not self.is_local
        self._client = client
        self._aclient = aclient
        self._lock = _lock_of(inner) if self.is_local else None
        self._by_loop = LoopClients(lambda: AsyncQdrantClient(**_options(aclient)))

    def named(self, where: str) -> "Connection":
        """The same clients, for another store."""
        return Connection(self._client, self._aclient, where=where)

    def call(self, talk: Callable[[], Talk[T]]) -> Call[T]:
        """What a plan yields to have a talk carried out."""
        coroutine = (lambda: self.aask(talk())) if self.real_async else None
        return Call(lambda: self.ask(talk()), coroutine)

    def ask(self, talk: Talk[T]) -> T:
        """Carry out a talk; blocks."""
        try:
            wanted = next(talk)
            while True:
                try:
                    answer = self._answer(wanted)
                except Exception as error:  # noqa: BLE001 - the talk decides what it means
                    wanted = talk.throw(self._meant(error))
                else:
                    wanted = talk.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # Any in every generator

    async def aask(self, talk: Talk[T]) -> T:
        """Carry out a talk on the running event loop, which it never blocks."""
        if not self.real_async:
            return await asyncio.to_thread(self.ask, talk)
        try:
            wanted = next(talk)
            while True:
                try:
                    answer = await self._aanswer(wanted)
                except Exception as error:  # noqa: BLE001 - the talk decides what it means
                    wanted = talk.throw(self._meant(error))
                else:
                    wanted = talk.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # Any in every generator

    def close_async(self) -> None:
        """Close the clients of event loops."""
        self._by_loop.close()

    def _answer(self, wanted: Request | Work) -> object:
        if isinstance(wanted, Work):
            return wanted.function()
        if self._lock is None:
            return _called(self._sync_client(), wanted)
        with self._lock:
            if self._client is not None:
                return _called(self._client, wanted)
            return _finished(_called(self._aclient, wanted))

    async def _aanswer(self, wanted: Request | Work) -> object:
        if isinstance(wanted, Work):
            return await asyncio.to_thread(wanted.function)
        return await _called(await self._by_loop.of_this_loop(), wanted)

    def _sync_client(self) -> QdrantClient:
        if self._client is None:
            self._client = QdrantClient(**_options(self._aclient))
            finalize(self, self._client.close)  # who has made the other does not know of this one
        return self._client

    def _meant(self, error: Exception) -> Exception:
        meant = meaning(error, self.where)
        if meant is not error:
            meant.__cause__ = error
        return meant


def _options(client: AsyncQdrantClient | None) -> Mapping[str, Any]:
    options: dict[str, Any] = client.init_options if client is not None else {}
    # Whoever made the client has been told about the server's version.
    return {**options, "check_compatibility": False}


def _called(client: object, request: Request) -> Any:  # noqa: ANN401 - as the method says
    return getattr(client, request.method)(**request.arguments)


def _finished(coroutine: Coroutine[None, None, T]) -> T:
    """The result of a coroutine of local mode, which never waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # Any in every coroutine
    raise RuntimeError("qdrant-client's local mode waits for something; use a sync client")


def _lock_of(local: object) -> RLock:
    with _locks_lock:
        return _locks.setdefault(local, RLock())
