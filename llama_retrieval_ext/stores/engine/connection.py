"""`Connection`: sends the requests of an engine's steps, from threads and event loops.

`Steps` are one operation of an engine as a generator of requests to its client. They are for
engines what plans are for retrievers: `execution.plan` knows calls, time limits and parallel tasks;
steps know only the engine's own requests, and the connection answers them. `Connection.call` makes
one `Call` of all requests of an operation, so that an async client stays on its event loop, and a
blocking one in its thread, from the first request to the last.
"""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.execution.drivers import adrive, drive, in_thread
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.urls import Address

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Requests and answers are of any type; see the engine's `Connection`.
Steps: TypeAlias = Generator[Any, Any, T_co]


class Connection(ABC):
    """The clients of one store. Steps are generators that yield engine-specific requests.

    An engine without an async client implements only `perform`; async callers then use a thread.

    Attributes:
        where: The engine's location for messages, without secrets.
        real_async: Whether `aperform` needs no thread to keep the event loop free.
    """

    where: str
    real_async: bool = False

    @classmethod
    @abstractmethod
    def of_address(cls, address: Address) -> Self:
        """Connect to the server, file or directory of an address."""

    @abstractmethod
    def perform(self, request: Any) -> object:  # noqa: ANN401 - as the engine's steps have it
        """Return the response to one request, or raise an error of this package; blocks."""

    async def aperform(self, request: Any) -> object:  # noqa: ANN401 - as for `perform`
        """`perform`, without blocking the event loop."""
        return await in_thread(lambda: self.perform(request))

    @abstractmethod
    def close(self) -> None:
        """Close the clients."""

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps."""
        return Call(
            lambda: self.run(steps()), (lambda: self.arun(steps())) if self.real_async else None
        )

    def run(self, steps: Steps[T]) -> T:
        """Run steps and return their result; blocks."""
        return drive(steps, self.perform)

    async def arun(self, steps: Steps[T]) -> T:
        """`run`, without blocking the event loop."""
        return await adrive(steps, self.aperform)

    def closed_error(self) -> StoreClosedError:
        """Return the error for a call after `close`."""
        return StoreClosedError(f"the store at {self.where} was closed; open it again")


class _Closable(Protocol):
    def close(self) -> Coroutine[Any, Any, object]: ...


C = TypeVar("C", bound=_Closable)


class LoopThread:
    """Event loop in its own thread that runs coroutines for other threads and loops."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it runs; a forked child process does not inherit its parent's thread."""
        return self._thread.is_alive()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine; cancelling the caller cancels the coroutine."""
        watched = _watched(coroutine)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(watched, self._loop))

    def run_blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """`run` for another thread, which it blocks; an interrupt cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # no effect on a completed one

    def close(self, last: Coroutine[Any, Any, object] | None = None) -> None:
        """Run a last coroutine, cancel the others, then stop the loop and the thread."""
        if not self.is_alive:
            if last is not None:
                last.close()
            return
        ended = asyncio.run_coroutine_threadsafe(_ended(last), self._loop)
        ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        # The garbage collector may close a store on any thread, including this one.
        if threading.current_thread() is not self._thread:
            self._thread.join()
            ended.result()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


async def _watched(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result; an error after the caller was cancelled is not logged by asyncio."""
    task = asyncio.current_task()
    if task is not None:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await coroutine


async def _ended(last: Coroutine[Any, Any, object] | None) -> None:
    if last is not None:
        await last
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()  # otherwise its caller would wait forever
    await asyncio.gather(*others, return_exceptions=True)


class AsyncClient(Generic[C]):
    """An async client with its own event loop.

    A client's connections are bound to one loop, and callers use different loops.

    Args:
        make: Creates the client at the first request.
        closed_error: Creates the error for a request after `close`.

    Examples:
        >>> class Client:
        ...     async def answer(self):
        ...         return 42
        ...     async def close(self):
        ...         print("closed")
        >>> client = AsyncClient(Client, lambda: RuntimeError("closed"))
        >>> asyncio.run(client.run(lambda client: client.answer()))
        42
        >>> client.close()
        closed

    """

    _name: ClassVar[str] = "llama-retrieval-engine"

    def __init__(self, make: Callable[[], C], closed_error: Callable[[], Exception]) -> None:
        self._make = make
        self._closed_error = closed_error
        self._lock = threading.Lock()
        self._parts: tuple[LoopThread, C] | None = None
        self._closed = False

    async def run(self, send: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function of the client on the client's loop; return its result."""
        loop, client = self._open()
        with self._closing():
            return await loop.run(send(client))

    def run_blocking(self, send: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """`run` for a thread, which it blocks."""
        loop, client = self._open()
        with self._closing():
            return loop.run_blocking(send(client))

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Translate errors of requests that `close` in another thread ended."""
        try:
            yield
        # The client raises the first of these, its loop one of the others.
        except (RuntimeError, asyncio.CancelledError, CancelledError) as error:
            if not self._closed:
                raise
            raise self._closed_error() from error

    def close(self) -> None:
        """Close the client and stop its loop; a second call is a no-op."""
        with self._lock:
            self._closed = True
            parts, self._parts = self._parts, None
        if parts is not None:
            loop, client = parts
            loop.close(client.close())

    def _open(self) -> tuple[LoopThread, C]:
        with self._lock:
            if self._closed:
                raise self._closed_error()
            if self._parts is None or not self._parts[0].is_alive:
                self._parts = LoopThread(self._name), self._make()
            return self._parts


R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Shared(Generic[R]):
    """A resource of a path, and its number of users."""

    path: Path
    resource: R
    users: int = 0
    is_closing: bool = False
    is_closed: bool = False
    closing: threading.RLock = field(default_factory=threading.RLock)


class SharedByPath(Generic[R]):
    """Resources of files and directories that a process opens only once; the last user closes them.

    Sharing allows a notebook cell that opens a store to run repeatedly. The garbage collector can
    release a store at any line of any thread. Therefore the lock is reentrant, and its holder never
    waits for another lock.

    Args:
        open_: Opens the resource of a path.
        close: Closes it.

    Examples:
        >>> files = SharedByPath(str, lambda name: print("closed", name))
        >>> shared = files.acquire(Path("kb"))
        >>> files.release(shared)
        closed kb

    """

    def __init__(self, open_: Callable[[Path], R], close: Callable[[R], None]) -> None:
        self._open_resource, self._close = open_, close
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def acquire(self, path: Path) -> Shared[R]:
        """Return the resource of a path; the caller releases it exactly once."""
        while True:
            with self._lock:
                if path not in self._open:
                    self._open[path] = Shared(path, self._open_resource(path))
                shared = self._open[path]
                if not shared.is_closing:
                    shared.users += 1
                    return shared
            self._finish(shared)  # waits for the thread that closes it

    def release(self, shared: Shared[R]) -> None:
        """Release a resource; close it if there are no other users."""
        with self._lock:
            shared.users -= 1
            if shared.users or shared.is_closing:
                return
            shared.is_closing = True
        self._finish(shared)

    def remove(self, shared: Shared[R], delete: Callable[[R], None]) -> bool:
        """Delete and close a resource, which the caller releases; return False if others use it."""
        with self._lock:
            if shared.users > 1:
                return False
            shared.is_closing = True
        try:
            delete(shared.resource)
        finally:
            self._finish(shared)
        return True

    def _finish(self, shared: Shared[R]) -> None:
        with shared.closing:
            if not shared.is_closed:
                self._close(shared.resource)
                shared.is_closed = True
        with self._lock:
            if self._open.get(shared.path) is shared:
                del self._open[shared.path]

    def _forget(self) -> None:
        """Reset the state: a forked child cannot use its parent's resources."""
        self._lock = threading.RLock()
        self._open: dict[Path, Shared[R]] = {}
