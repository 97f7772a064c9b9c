"""Where an answer stands: its deadline, what it shares between its legs, and the step it is in.

A frame lives in a context variable, so that it follows the query through threads, tasks and foreign
retrievers without being passed along.
"""

import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent

from llama_retrieval_ext.errors import DeadlineExceededError, describe
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.single_flight import SingleFlight
from llama_retrieval_ext.results import Degradation, Detail, DetailValue, Hit, Trace

# What a composite keeps of its time for itself: a share of what is left, and at most so much.
_SPARE_SHARE = 0.1
_SPARE_S = 0.05

OnPartial: TypeAlias = Callable[[list[Hit]], None]


@dataclass(slots=True)
class Session:
    """What all parts of one answer, or of several that are asked for together, share.

    Attributes:
        embeddings: Of texts, by model.
        ahead: What was searched for in a batch before any part asked for it, by what it asks.
        unreached: The errors of what was to be found ahead, or embedded, one for each query that
            asks for it.
        degraded: What failed and was left out.
        details: What stages add to the result.
    """

    embeddings: SingleFlight = field(default_factory=SingleFlight)
    prefetch: dict[Hashable, object] = field(default_factory=dict)
    unreached: dict[Hashable, list[Exception]] = field(default_factory=dict)
    degraded: list[Degradation] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)

    def apart(self) -> "Session":
        """The session of one of several answers: it shares all but what its result says."""
        return replace(self, degraded=[], details=[])

    def take_unreached(self, key: Hashable) -> Exception | None:
        """The error of what was to be found ahead, once for each query; None if there is none."""
        try:
            return self.unreached.get(key, []).pop()
        except IndexError:  # never failed, or all queries know already
            return None


@dataclass(frozen=True, slots=True)
class Context:
    """Where one part of an answer stands.

    Attributes:
        session: What it shares with the other parts.
        deadline: Monotonic time at which it must be done; None for no limit.
        trace: The step it is in; None when nobody asked for a trace.
        path: Ids that were entered on the way here.
        legs: Names of the legs on the way here.
        on_partial: Wants to know what is found on the way; only the outermost fusion tells it.
    """

    session: Session
    deadline: float | None = None
    trace: Trace | None = None
    on_partial: OnPartial | None = None
    path: frozenset[str] = frozenset()
    legs: tuple[str, ...] = ()

    def within(self, timeout_s: float | None) -> "Context":
        """The frame of a task inside: due in ``timeout_s``, and a little before this one.

        The little is for making an answer of what the tasks gave; without it, a composite whose leg
        hangs until the query's deadline would itself be late, at every level.
        """
        now = time.monotonic()
        limits = [] if timeout_s is None else [now + timeout_s]
        if self.deadline is not None:
            left = max(0.0, self.deadline - now)
            limits.append(self.deadline - min(_SPARE_S, _SPARE_SHARE * left))
        return replace(self, deadline=min(limits)) if limits else self

    def remaining_s(self) -> float | None:
        """Seconds left, never below 0; None for no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check_time(self) -> None:
        """Nothing, while there is time.

        Raises:
            DeadlineExceededError: The deadline has passed.
        """
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlineExceededError("the time of the query ran out")


_frame: ContextVar[Context | None] = ContextVar("llama_retrieval_ext_frame", default=None)


def current_context() -> Context | None:
    """The frame of the answer being worked on here; None outside one."""
    return _frame.get()


@contextmanager
def entered(frame: Context) -> Generator[Context]:
    """Make a frame the current one for a while."""
    token = _frame.set(frame)
    try:
        yield frame
    finally:
        _frame.reset(token)


_dispatcher = get_dispatcher(__name__)


class RetrievalDegradedEvent(BaseEvent):
    """A part of an answer failed and was left out.

    Attributes:
        where: The leg or stage, behind the legs it is in: ``outer/inner``.
        reason: What went wrong there.
    """

    where: str
    reason: str

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the event."""
        return "RetrievalDegradedEvent"


def note_degraded(where: str, reason: BaseException | str) -> None:
    """Note that the current answer lacks a part.

    Args:
        where: The leg or stage; the legs on the way to it are put before it.
        reason: What went wrong there.
    """
    told = reason if isinstance(reason, str) else describe(reason)
    frame = current_context()
    if frame is not None:
        where = "/".join((*frame.legs, where))
        frame.session.degraded.append(Degradation(where, told))
    _dispatcher.event(RetrievalDegradedEvent(where=where, reason=told))


T = TypeVar("T")


def call(effect: Call[T]) -> Plan[T]:
    """The plan that is one call."""
    value: T = yield effect
    return value


def note_legs(rankings: Mapping[str, Sequence[str]]) -> None:
    """Put what each leg of one request found into the trace, where one is kept.

    Args:
        rankings: Node ids, best first, by the name of the leg.
    """
    frame = current_context()
    if frame is not None and frame.trace is not None:
        frame.trace.end_legs(rankings)


def step(name: str, plan: Plan[T], *, tells: bool = False) -> Plan[T]:
    """The same plan as a step of the trace, where one is kept.

    Args:
        name: What it is called in the trace.
        plan: What runs.
        tells: Whether what it finds on its way is told, as a retriever's is; not a stage's.
    """
    frame = current_context()
    if frame is None or frame.trace is None:
        return (yield from plan)
    trace = frame.trace.begin(name)
    try:
        on_partial = frame.on_partial if tells else None
        with entered(replace(frame, trace=trace, on_partial=on_partial)):
            value = yield from plan
    except BaseException as error:
        trace.end(error=error)
        raise
    trace.end(result=value)
    return value


def note_details(*, is_total: bool = False, **values: DetailValue) -> None:
    """Add to the details of the current answer; what one stage notes twice adds up.

    Args:
        is_total: Whether the short name has the sum over all stages, or the outermost's value.
        values: Lists or counts, by name.
    """
    frame = current_context()
    if frame is not None:
        frame.session.details.extend(
            Detail(frame.legs, name, value, is_total) for name, value in values.items()
        )
