"""Work that is wanted more than once in an answer and done once."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

from llama_retrieval_ext.execution.effects import Call, Plan

T = TypeVar("T")


class _AbandonedError(Exception):
    """The one who was at it gave up; somebody else may try."""


class Memo:
    """Results by key; who asks for one in the making waits for it. Failures are not kept."""

    __slots__ = ("_futures", "_lock")

    def __init__(self) -> None:
        self._futures: dict[Hashable, Future[Any]] = {}  # each key's type is its caller's affair
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Call[T]]) -> Plan[T]:
        """The plan for the value of a key: made once, however many legs ask for it at a time.

        Args:
            key: What identifies the value.
            make: The call that makes it.
        """
        while True:
            with self._lock:
                future = self._futures.get(key)
                if future is None:
                    mine: Future[T] = Future()
                    self._futures[key] = mine
                    break
            try:
                value: T = yield _wait(future)
            except _AbandonedError:
                continue
            return value
        return (yield from self._make(key, mine, make()))

    def _make(self, key: Hashable, mine: "Future[T]", call: Call[T]) -> Plan[T]:
        try:
            value: T = yield call
        except BaseException as error:
            with self._lock:
                self._futures.pop(key, None)
            # A failure is everybody's; a cancellation only the leg's that was cancelled.
            mine.set_exception(error if isinstance(error, Exception) else _AbandonedError())
            raise
        mine.set_result(value)
        return value


def _wait(future: "Future[T]") -> Call[T]:
    if future.done():
        return Call(future.result, lambda: _ready(future))
    return Call(future.result, lambda: asyncio.wrap_future(future))


async def _ready(future: "Future[T]") -> T:
    return future.result()
