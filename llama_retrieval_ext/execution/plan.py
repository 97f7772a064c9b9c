"""Effects that a plan (a generator) yields to its driver.

A custom stage does I/O with these: it yields a `Call` for one slow operation, or a `Together` of
`Task`s for several in parallel, and receives their results. One plan works for sync and async
callers, respects the query's deadline, and appears in its trace.

Examples:
    >>> import asyncio
    >>> from llama_retrieval_ext import Call, Hit, Refine, Task, Together
    >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
    >>> async def clicks_of(node_id):  # asks a service, say
    ...     return {"a": 1, "b": 7}[node_id]
    >>> class ByClicks(Refine):
    ...     def refine_plan(self, query, hits):
    ...         tasks = [Task(f"clicks of {hit.node_id}", self.clicks(hit)) for hit in hits]
    ...         outcomes = yield Together(tasks)
    ...         scored = [
    ...             Hit(node=hit.node, score=outcome.result(), source="clicks")
    ...             for hit, outcome in zip(hits, outcomes)
    ...         ]
    ...         return sorted(scored, key=lambda hit: -hit.score)
    ...
    ...     def clicks(self, hit):
    ...         return (yield Call(
    ...             lambda: asyncio.run(clicks_of(hit.node_id)), lambda: clicks_of(hit.node_id)
    ...         ))
    >>> ranking = FakeRetriever([("a", 0.9), ("b", 0.5)]) >> ByClicks()
    >>> [hit.node_id for hit in ranking.retrieve("annual leave")]
    ['b', 'a']
    >>> [hit.node_id for hit in asyncio.run(ranking.aretrieve("annual leave"))]
    ['b', 'a']

"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

from llama_retrieval_ext.errors import DeadlineExceededError

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A slow call; the plan receives its result or its error.

    Attributes:
        function: The blocking function; without ``coroutine``, asyncio runs it in a thread.
        coroutine: The async function, if there is one that does not block.
    """

    function: Callable[[], T_co]
    coroutine: Callable[[], Awaitable[T_co]] | None = None

    def then(self, change: Callable[[T_co], U]) -> "Call[U]":
        """Return the call with its result transformed by a fast function.

        Examples:
            >>> Call(lambda: 20).then(lambda number: number + 1).function()
            21

        """
        coroutine = self.coroutine
        if coroutine is None:
            return Call(lambda: change(self.function()))

        async def changed() -> U:
            return change(await coroutine())

        return Call(lambda: change(self.function()), changed)


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause in seconds; the plan receives None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Task(Generic[T_co]):
    """A plan that runs in parallel with others.

    Attributes:
        name: Its name in the trace.
        plan: The plan to run.
        timeout_s: Time limit in seconds; None for the remaining time.
        enters: Id that the task follows, to detect cycles.
        leg: Name in the paths of degraded parts inside the task; None to keep the path unchanged.
    """

    name: str
    plan: "Plan[T_co]"
    timeout_s: float | None = None
    enters: str | None = None
    leg: str | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """Parallel tasks; the plan receives one `Outcome` per task, in order, and no error."""

    tasks: "Sequence[Task[Any]]"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """Result of a task: a value or an error."""

    value: T_co | None = None
    error: BaseException | None = None

    def result(self) -> T_co:
        """Return the value, or raise the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a value where T_co allows it


Effect: TypeAlias = Call[Any] | Sleep | Together
# The result depends on the effect, which a generator's send type cannot express.
Plan: TypeAlias = Generator[Effect, Any, T_co]


def finished(value: U) -> Plan[U]:
    """Return a plan with a known result."""
    yield from ()
    return value


class _AbandonedError(Exception):
    """The computation was cancelled or timed out; another request may restart it."""


class _StuckError(Exception):
    """Waiting would block the event loop that the computation needs."""


class SingleFlight:
    """Results by key; concurrent requests share one computation. Failures are not stored.

    With ``most``, the oldest results are dropped.
    """

    __slots__ = ("_lock", "_most", "_values")

    def __init__(self, *, most: int | None = None) -> None:
        self._most = most
        self._values: dict[Hashable, _Value[Any]] = {}  # the type belongs to the key
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Call[U]]) -> Plan[U]:
        """Return the plan for the value of a key, computed once for all legs."""
        while True:
            with self._lock:
                known = self._values.get(key)
                if known is None:
                    mine: _Value[U] = _Value()
                    self._values[key] = mine
                    if self._most is not None and len(self._values) > self._most:
                        del self._values[next(iter(self._values))]
                    break
            try:
                value: U = yield known.awaited()
            except _AbandonedError:
                continue
            except _StuckError:
                value = yield make()
            return value
        return (yield from self._make(key, mine, make()))

    def has(self, key: Hashable) -> bool:
        """Return whether the value exists or is being computed."""
        return key in self._values

    def _make(self, key: Hashable, mine: "_Value[U]", call: Call[U]) -> Plan[U]:
        try:
            value: U = yield call
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            mine.failed(error)
            raise
        mine.future.set_result(value)
        return value


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
        own = not isinstance(error, Exception) or isinstance(error, DeadlineExceededError)
        self.future.set_exception(_AbandonedError() if own else error)

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
