"""`SingleFlight`: values by key, each computed once for all that ask for it at the same time."""

import asyncio
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

from llama_retrieval_ext.errors import DeadlineExceededError
from llama_retrieval_ext.execution.plan import Call, Plan

U = TypeVar("U")


class _AbandonedError(Exception):
    """The computation was cancelled or timed out; another request may restart it."""


class _StuckError(Exception):
    """Waiting would block the event loop that the computation needs."""


@dataclass(slots=True, kw_only=True)
class SingleFlight:
    """Results by key; concurrent requests share one computation. Failures are not stored.

    With ``most``, the oldest results are dropped.
    """

    most: int | None = None
    # Any: the type belongs to the key.
    _values: "dict[Hashable, _Value[Any]]" = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def get(self, key: Hashable, call: Call[U]) -> Plan[U]:
        """Return the plan for the value of a key, which the call of one of the legs computes."""
        while True:
            with self._lock:
                shared = self._values.get(key)
                if shared is None:
                    new: _Value[U] = _Value()
                    self._values[key] = new
                    if self.most is not None and len(self._values) > self.most:
                        del self._values[next(iter(self._values))]
                    break
            try:
                value: U = yield shared.awaited()
            except _AbandonedError:
                continue
            except _StuckError:
                value = yield call
            return value
        try:
            value = yield call
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            new.failed(error)
            raise
        new.future.set_result(value)
        return value

    def has(self, key: Hashable) -> bool:
        """Return whether the value exists or is being computed."""
        return key in self._values


class _Value(Generic[U]):
    """A value that is being computed."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        self.future: Future[U] = Future()
        # A running future cannot be cancelled, so cancelling one waiting leg affects neither the
        # computation nor the other legs.
        self.future.set_running_or_notify_cancel()
        self._loop = _running_loop()

    def awaited(self) -> Call[U]:
        if self.future.done():
            return Call(self.future.result, self._ready)
        return Call(self._wait, lambda: asyncio.wrap_future(self.future))

    def failed(self, error: BaseException) -> None:
        # All waiting legs share a failure, but not a cancellation or a deadline of one leg.
        is_of_one = not isinstance(error, Exception) or isinstance(error, DeadlineExceededError)
        self.future.set_exception(_AbandonedError() if is_of_one else error)

    def _wait(self) -> U:
        if self._loop is not None and not self.future.done() and _running_loop() is self._loop:
            raise _StuckError
        return self.future.result()

    async def _ready(self) -> U:
        return self.future.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
