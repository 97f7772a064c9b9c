"""The context of an answer: its deadline, shared state, and the current step of its trace.

It is stored in a context variable, so threads, tasks and retrievers of other packages inherit it
without an argument.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.errors import DeadlineExceededError, describe
from llama_retrieval_ext.execution.events import RetrievalDegradedEvent, emit
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.trace import Degradation, Detail, DetailValue, ScoredId, Trace

T = TypeVar("T")


class _AbandonedError(Exception):
    """The computation was cancelled or timed out; another request may restart it."""


class _StuckError(Exception):
    """Waiting would block the event loop that the computation needs."""


class SingleFlight:
    """Results by key; concurrent requests share one computation. Failures are not stored."""

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, _Value[Any]] = {}  # the type belongs to the key
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Call[T]]) -> Plan[T]:
        """Return the plan for the value of a key, computed once for all legs."""
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
        """Return whether the value exists or is being computed."""
        return key in self._values

    def keep(self, key: Hashable, value: object) -> None:
        """Store a value under a key, unless one exists or is being computed."""
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
        # A running future cannot be cancelled, so cancelling one waiting leg affects neither the
        # computation nor the other legs.
        self.future.set_running_or_notify_cancel()
        self._loop = _running_loop()

    def awaited(self) -> Call[T]:
        if self.future.done():
            return Call(self.future.result, self._ready)
        return Call(self._wait, lambda: asyncio.wrap_future(self.future))

    def failed(self, error: BaseException) -> None:
        # All waiting legs share a failure, but not a cancellation or a deadline of one leg.
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


# The time reserved for the composite itself: a share of the remaining time, up to a limit.
_SPARE_SHARE = 0.1
_SPARE_S = 0.05

OnPartial: TypeAlias = Callable[[list[Hit]], object]


class SharesRankings(Protocol):
    """Shared rankings of retrievers, for several answers to one query."""

    def ranking(
        self, retriever: BaseRetriever, query: Query, plan: Plan[list[NodeWithScore]]
    ) -> Plan[list[NodeWithScore]]:
        """Return the plan for a ranking; it may reuse the result of an earlier plan."""
        ...


@dataclass(slots=True)
class Session:
    """Shared state of the parts of one answer, or of the answers of one batch.

    Attributes:
        embeddings: Embeddings by model and text.
        prefetch: Results of searches that a batch ran in advance, by search.
        unreached: The errors of the prefetched searches and embeddings of a batch, one for each
            query that needs the result.
        degraded: Parts that failed and were left out.
        details: The details that stages add to the result.
        confidences: Confidence of each search that has an estimate; see `SearchResult`.
        shared_rankings: Shares retriever calls between several pipelines; None to share only
            within the answer.
    """

    embeddings: SingleFlight = field(default_factory=SingleFlight)
    prefetch: dict[Hashable, object] = field(default_factory=dict)
    unreached: dict[Hashable, list[Exception]] = field(default_factory=dict)
    degraded: list[Degradation] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    shared_rankings: SharesRankings | None = None

    def apart(self) -> "Session":
        """Return the session of one answer of a batch, with its own degradations and details."""
        return replace(self, degraded=[], details=[], confidences=[])

    @property
    def confidence(self) -> float | None:
        """The maximum of the confidences; None if there are none."""
        return max(self.confidences, default=None)

    def take_unreached(self, key: Hashable) -> Exception | None:
        """Return the error of a prefetched search, once for each query; None if there is none."""
        try:
            return self.unreached.get(key, []).pop()
        except IndexError:  # it never failed, or each query has received the error
            return None


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one part of an answer.

    Attributes:
        session: State shared with the other parts.
        deadline: Monotonic time of the deadline; None for no limit.
        trace: The current step; None if tracing is off.
        on_partial: Callback for partial results; only the outermost fusion calls it.
        path: Ids entered on the path to this part.
        legs: Names of the enclosing legs, outermost first.
    """

    session: Session = field(default_factory=Session)
    deadline: float | None = None
    trace: Trace | None = None
    on_partial: OnPartial | None = None
    path: frozenset[str] = frozenset()
    legs: tuple[str, ...] = ()

    def within(self, timeout_s: float | None) -> "Context":
        """Return the context of a nested task: its deadline is slightly before this one's.

        The deadline is also at most ``timeout_s`` away. The reserve is for combining the results of
        the tasks. Without it, a leg that hangs until the query's deadline would make its composite
        late as well, at every level.
        """
        now = time.monotonic()
        limits = [] if timeout_s is None else [now + timeout_s]
        if self.deadline is not None:
            left = max(0.0, self.deadline - now)
            limits.append(self.deadline - min(_SPARE_S, _SPARE_SHARE * left))
        return replace(self, deadline=min(limits)) if limits else self

    def remaining_s(self) -> float | None:
        """Return the remaining seconds, at least 0; None for no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check_time(self) -> None:
        """Raise `DeadlineExceededError` if the deadline has passed."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlineExceededError("the time of the query ran out")


_context: ContextVar[Context | None] = ContextVar("llama_retrieval_ext_context", default=None)


def current_context() -> Context:
    """Return the context of the current answer; outside an answer, a new context."""
    return _context.get() or Context()


@contextmanager
def entered(context: Context) -> Generator[Context]:
    """Make a context current for the ``with`` block."""
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def in_answer() -> AbstractContextManager[Context]:
    """Enter a new context unless there is a current one."""
    context = _context.get()
    return entered(Context()) if context is None else nullcontext(context)


def note_degraded(where: str, reason: BaseException | str) -> None:
    """Record a missing part of the current answer."""
    text = reason if isinstance(reason, str) else describe(reason)
    context = current_context()
    path = "/".join((*context.legs, where))
    context.session.degraded.append(Degradation(path, text))
    emit(lambda: RetrievalDegradedEvent(where=path, reason=text))


def degraded_count() -> int:
    """Return the number of missing parts of the current answer so far."""
    return len(current_context().session.degraded)


def degraded_since(count: int) -> tuple[Degradation, ...]:
    """Return the missing parts of the current answer, after the first ``count``."""
    return tuple(current_context().session.degraded[count:])


def call(effect: Call[T]) -> Plan[T]:
    """Return a plan that consists of one call."""
    value: T = yield effect
    return value


def recording() -> Trace | None:
    """Return the current step if it is verbose, as in `explain`; else None."""
    trace = current_context().trace
    return trace if trace is not None and trace.verbose else None


def note_merged(merged: Mapping[str, str]) -> None:
    """Record the nodes that were merged into others."""
    trace = recording()
    if trace is not None and merged:
        known = trace.notes.get("merged")
        trace.notes["merged"] = {**known, **merged} if isinstance(known, dict) else dict(merged)


def note_legs(rankings: Mapping[str, Sequence[ScoredId]]) -> None:
    """Add the rankings of the legs of one request to the trace, if tracing is on."""
    trace = current_context().trace
    if trace is not None:
        trace.end_legs(rankings)


def step(part: object, plan: Plan[T], *, reports: bool = False) -> Plan[T]:
    """Return the plan, recorded as a step of the trace if tracing is on."""
    context = current_context()
    if context.trace is None:
        return (yield from plan)
    trace = context.trace.begin(part if isinstance(part, str) else repr(part))
    try:
        on_partial = context.on_partial if reports else None
        with entered(replace(context, trace=trace, on_partial=on_partial)):
            value = yield from plan
    except BaseException as error:
        trace.end(error=error)
        raise
    trace.end(result=value)
    return value


def note_details(*, is_total: bool = False, **values: DetailValue) -> None:
    """Add to the details of the current answer; repeated notes of one stage add up."""
    context = current_context()
    context.session.details.extend(
        Detail(context.legs, name, value, is_total) for name, value in values.items()
    )
