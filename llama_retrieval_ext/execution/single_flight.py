"""One computation for all parts of an answer that need its result."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, Generic, TypeVar

from llama_retrieval_ext.errors import DeadlineExceededError
from llama_retrieval_ext.execution.plan import Call, Plan

T = TypeVar("T")


class _AbandonedError(Exception):
    """The computation was cancelled or late; another request may start it again."""


class _StuckError(Exception):
    """Waiting would block the event loop that the computation needs."""


class SingleFlight:
    """Results by key; concurrent requests wait for one computation. Failures are not kept."""

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, _Value[Any]] = {}  # each key's type is its caller's affair
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Call[T]]) -> Plan[T]:
        """Return the plan for the value of a key, computed once however many legs request it.

        Args:
            key: What identifies the value.
            make: Returns the call that computes it.
        """
        while True:
            with self._lock:
                known = self._values.get(key)
                if known is None:
                    mine: _Value[T] = _Value()
                    self._values[key] = mine
                    break
            try:
                value: T = yield known.awaited()
            except _AbandonedError:
                continue
            except _StuckError:
                value = yield make()
            return value
        return (yield from self._make(key, mine, make()))

    def has(self, key: Hashable) -> bool:
        """Return whether the value is known or being computed."""
        return key in self._values

    def keep(self, key: Hashable, value: object) -> None:
        """Keep a value under a key, unless there is one, or one being computed.

        Args:
            key: What identifies the value.
            value: The value, computed in a batch.
        """
        with self._lock:
            if key not in self._values:
                known = self._values[key] = _Value()
                known.future.set_result(value)

    def _make(self, key: Hashable, mine: "_Value[T]", call: Call[T]) -> Plan[T]:
        try:
            value: T = yield call
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            mine.failed(error)
            raise
        mine.future.set_result(value)
        return value


class _Value(Generic[T]):
    """A value that is being computed."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        self.future: Future[T] = Future()
        # A running future cannot be cancelled: a leg that is cancelled while it waits takes neither
        # the one who is at it nor the others with it.
        self.future.set_running_or_notify_cancel()
        self._loop = _running_loop()

    def awaited(self) -> Call[T]:
        if self.future.done():
            return Call(self.future.result, self._ready)
        return Call(self._wait, lambda: asyncio.wrap_future(self.future))

    def failed(self, error: BaseException) -> None:
        # A failure is everybody's; a cancellation or a deadline only the leg's that met it.
        own = not isinstance(error, Exception) or isinstance(error, DeadlineExceededError)
        self.future.set_exception(_AbandonedError() if own else error)

    def _wait(self) -> T:
        if self._loop is not None and not self.future.done() and _running_loop() is self._loop:
            raise _StuckError
        return self.future.result()

    async def _ready(self) -> T:
        return self.future.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
