"""The context of an answer: deadline, shared state, current step of the trace, and its events.

It is stored in a context variable, so threads, tasks and retrievers of other packages inherit it
without an argument. Events contain no text of a query or a node.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.dispatcher import Dispatcher
from llama_index_instrumentation.event_handlers import NullEventHandler
from llama_index_instrumentation.span_handlers import NullSpanHandler
from pydantic import Field

from llama_retrieval_ext.errors import DeadlineExceededError, describe
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.trace import Degradation, Detail, DetailValue, Trace

T = TypeVar("T")
U = TypeVar("U")

_dispatcher = get_dispatcher(__name__)
# It has the spans and events of every retriever.
_base_dispatcher = get_dispatcher(BaseRetriever.__module__)


class _Event(BaseEvent):
    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name of the event."""
        return cls.__name__


class RetrievalDegradedEvent(_Event):
    """A part of an answer failed and was left out.

    Attributes:
        where: Path of the leg or stage: ``outer/inner``.
        reason: The error.
    """

    where: str
    reason: str


class FusionEvent(_Event):
    """Several rankings were fused.

    Attributes:
        source: Name of the retriever that fused them.
        fusion: The fusion, as an expression.
        found: Number of hits of each leg that answered, by its name.
        leg_weights: The weight of each of these legs.
        returned: Number of hits in the fused ranking.
    """

    source: str
    fusion: str
    found: dict[str, int] = Field(default_factory=dict)
    leg_weights: dict[str, float] = Field(default_factory=dict)
    returned: int


class ScopeViolationEvent(_Event):
    """A store returned hits from outside the scope or the filters of a query.

    They are dropped, or the search raises an error.

    Attributes:
        store: The store.
        source: Name of the retriever that searched it.
        violations: Number of hits outside.
        returned: Number of hits that the store returned.
    """

    store: str
    source: str
    violations: int
    returned: int


def emit(event: BaseEvent) -> None:
    """Emit an event; if creating it takes time, create it only if it `is_heard`."""
    _dispatcher.event(event)


def is_heard(dispatcher: Dispatcher = _dispatcher, *, spans: bool = False) -> bool:
    """Return whether a handler gets a dispatcher's events; with ``spans``, events or spans."""
    while set(map(type, dispatcher.event_handlers)) <= {NullEventHandler}:
        if spans and not set(map(type, dispatcher.span_handlers)) <= {NullSpanHandler}:
            return True
        if not dispatcher.propagate:
            return False
        dispatcher = dispatcher.parent
    return True


def is_observed(retriever: BaseRetriever) -> bool:
    """Return whether a handler of LlamaIndex gets the spans, events or callbacks of a retrieval."""
    return bool(retriever.callback_manager.handlers) or is_heard(_base_dispatcher, spans=True)


def emit_fusion(
    source: str,
    fusion: object,
    rankings: Mapping[str, Sequence[object]],
    leg_weights: Mapping[str, float],
    *,
    returned: int,
) -> None:
    """Emit the event of a fusion of the rankings of the legs that answered."""
    event = FusionEvent(
        source=source,
        fusion=repr(fusion),
        found={name: len(ranking) for name, ranking in rankings.items()},
        leg_weights={name: leg_weights[name] for name in rankings},
        returned=returned,
    )
    emit(event)


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
        def wait() -> U:
            is_here = self._loop is not None and _running_loop() is self._loop
            if is_here and not self.future.done():
                raise _StuckError
            return self.future.result()

        return Call(wait, lambda: asyncio.wrap_future(self.future))

    def failed(self, error: BaseException) -> None:
        # All waiting legs share a failure, but not a cancellation or a deadline of one leg.
        is_of_one = not isinstance(error, Exception) or isinstance(error, DeadlineExceededError)
        self.future.set_exception(_AbandonedError() if is_of_one else error)


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


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A look at what is missing, after the search and only if it is needed.

    Attributes:
        plan: Returns the plan for the hints; its failure adds none.
        always: Whether it runs if there are hits, too: the part that noted it is suspicious itself.
    """

    plan: Callable[[], Plan[Iterable[str]]]
    always: bool = False


@dataclass(slots=True)
class Session:
    """Shared state of the parts of one answer, or of the answers of one batch.

    Attributes:
        embeddings: Embeddings by model and text.
        degraded: Parts that failed and were left out.
        hints: What was looked for and is not there, in sentences.
        inquiries: What may lead to more hints, by what is asked: equal ones run once.
        shares_words: Whether a keyword search beside a vector search has found something.
        weighs_fields: Whether a keyword search has taken the weights of fields.
        details: The details that stages add to the result.
        shared_rankings: Shares retriever calls between several pipelines; None to share only
            within the answer.
    """

    embeddings: SingleFlight = field(default_factory=SingleFlight)
    degraded: list[Degradation] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    inquiries: dict[Hashable, Inquiry] = field(default_factory=dict)
    shares_words: bool = False
    weighs_fields: bool = False
    details: list[Detail] = field(default_factory=list)
    shared_rankings: SharesRankings | None = None

    def apart(self) -> "Session":
        """Return the session of one answer of a batch, with its own notes and details."""
        return Session(self.embeddings, shared_rankings=self.shared_rankings)

    def add_notes(self, other: "Session") -> None:
        """Add what is missing in a part of the answer, which ran in another session."""
        self.degraded += other.degraded
        self.hints += other.hints
        self.inquiries |= other.inquiries
        self.shares_words |= other.shares_words
        self.weighs_fields |= other.weighs_fields


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


def in_answer() -> bool:
    """Return whether an answer is being made, whose notes its maker shows."""
    return _context.get() is not None


@contextmanager
def entered(context: Context) -> Generator[Context]:
    """Make a context current for the ``with`` block."""
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def note_degraded(where: str, reason: BaseException | str) -> None:
    """Record a missing part of the current answer."""
    text = reason if isinstance(reason, str) else describe(reason)
    context = current_context()
    path = "/".join((*context.legs, where))
    context.session.degraded.append(Degradation(path, text))
    emit(RetrievalDegradedEvent(where=path, reason=text))


def note_hint(text: str) -> None:
    """Record a sentence on what was looked for and is not there."""
    current_context().session.hints.append(text)


def note_inquiry(key: Hashable, plan: Callable[[], Plan[Iterable[str]]], *, always: bool) -> None:
    """Record what to look at if the whole answer is empty, or ``always``."""
    inquiries = current_context().session.inquiries
    inquiries[key] = Inquiry(plan, always or (key in inquiries and inquiries[key].always))


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
        earlier = trace.notes.get("merged")
        trace.notes["merged"] = {**(earlier if isinstance(earlier, dict) else {}), **merged}


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
    for name, value in values.items():
        context.session.details.append(Detail(context.legs, name, value, is_total))
