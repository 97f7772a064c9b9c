"""Legs (named children of composites), and `ask`, which calls them and skips failed ones."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.arguments import value_expression
from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.errors import (
    CircuitOpenError,
    CompositionError,
    ConfigurationError,
    DeadlineExceededError,
    DimensionMismatchError,
    MissingDependencyError,
    ModelMismatchError,
    ScopeError,
    ScoreError,
    TooFewLegsError,
    UnsupportedFilterError,
    UnsupportedModeError,
    describe,
)
from llama_retrieval_ext.execution.context import current_context, note_degraded
from llama_retrieval_ext.execution.plan import Outcome, Plan, Sleep, Task, Together
from llama_retrieval_ext.execution.retrieval import retrieval
from llama_retrieval_ext.execution.running import WhileOpen, reporting
from llama_retrieval_ext.parameters import Count, Range, Seconds, TimeLimit, Weight, WholeNumber
from llama_retrieval_ext.query import Query


class CircuitBreaker(Part):
    """Circuit breaker: opens after consecutive failures and later allows one trial call.

    Pass it to a `Leg`: ``Leg("web", retriever, breaker=CircuitBreaker(failures=3, reset_s=10))``.
    Legs that share a source may share one.

    Args:
        failures: Number of consecutive failures that open it, at least 1.
        reset_s: Seconds until an open breaker allows one trial call.
        clock: Returns the monotonic time in seconds.

    Raises:
        ConfigurationError: A value is out of range.

    Source:
        M. Nygard, Release It!, 2nd edition, 2018, chapter 5, "Circuit Breaker".

    Examples:
        >>> breaker = CircuitBreaker(failures=1, reset_s=60)
        >>> breaker.failed()
        >>> breaker.is_open
        True

    """

    def __init__(
        self,
        *,
        failures: Count = 5,
        reset_s: Seconds = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = failures
        self.reset_s = reset_s
        self._clock = clock
        self._lock = Lock()
        self._in_a_row = 0
        self._retry_at: float | None = None

    # A copy, perhaps in another process, starts without failures; a lock cannot be copied.
    def __getstate__(self) -> dict[str, object]:
        kept = {name: value for name, value in vars(self).items() if name != "_lock"}
        return {**kept, "_in_a_row": 0, "_retry_at": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=Lock())

    @property
    def is_open(self) -> bool:
        """Whether calls are currently rejected."""
        retry_at = self._retry_at  # read once: another thread may close the breaker meanwhile
        return retry_at is not None and self._clock() < retry_at

    def check(self) -> None:
        """Raise unless a call is allowed.

        Raises:
            CircuitOpenError: The breaker is open.
        """
        with self._lock:
            if self._retry_at is None:
                return
            wait_s = self._retry_at - self._clock()
            if wait_s > 0:
                raise CircuitOpenError(
                    f"left alone after {self._in_a_row} failures in a row; "
                    f"tried again in {wait_s:.1f} s"
                )
            # Other calls are rejected until this trial call ends.
            self._retry_at = self._clock() + self.reset_s

    def succeeded(self) -> None:
        """Record a successful call and close the breaker."""
        with self._lock:
            self._in_a_row = 0
            self._retry_at = None

    def failed(self) -> None:
        """Record a failed call."""
        with self._lock:
            self._in_a_row += 1
            if self._in_a_row >= self.failures:
                self._retry_at = self._clock() + self.reset_s


T = TypeVar("T")

# Errors of the caller, not of a source: degrading the answer would hide them.
MISTAKES = (
    CompositionError,
    ConfigurationError,
    DimensionMismatchError,
    MissingDependencyError,
    ModelMismatchError,
    ScopeError,
    UnsupportedFilterError,
    UnsupportedModeError,
)


def or_degraded(where: str, plan: Plan[T], otherwise: T) -> Plan[T]:
    """Return the plan with a fallback result; a failure degrades the answer, mistakes raise."""
    try:
        return (yield from plan)
    except MISTAKES:
        raise
    except Exception as error:  # noqa: BLE001 - noted as degraded
        note_degraded(where, error)
        return otherwise


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Leg(Part):
    """Named child of a composite, with its limits and failure handling.

    A failed leg is left out and the answer is marked degraded, unless the leg is ``required``. The
    composite's ``min_success`` (of `branches`, or of any fusion) is the number of legs that must
    answer.

    Args:
        name: Name in weights, traces and contributions.
        retriever: Any LlamaIndex retriever.
        weight: Weight in fusions that use weights; finite, not negative.
        top_k: Number of hits to request; None for the retriever's own number. A retriever of
            another package always returns its own number.
        timeout_s: Time limit in seconds; None for the time limit of the query.
        required: Whether a failure of the leg fails the query. Otherwise the leg is left out and
            the answer is degraded.
        retries: Number of further calls after a failure, within ``timeout_s``.
        backoff_s: Seconds before the first retry; doubled before each further one.
        breaker: Skips the leg for some time after repeated failures; by default after five
            consecutive failures, for 30 s.
        languages: Languages that its embedding model knows, such as ``("en",)``: for a question in
            another script it has at most a tenth of the weight. Empty for no such limit.

    Raises:
        ConfigurationError: A value is out of range or of another type.

    Examples:
        >>> from llama_retrieval_ext import RRF, CircuitBreaker, branches
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> law, web = FakeRetriever([("a", 0.9)]), FakeRetriever(error=ConnectionError("down"))
        >>> once = CircuitBreaker(failures=1, reset_s=60)
        >>> both = branches(Leg("law", law, required=True), Leg("web", web, breaker=once)) >> RRF()
        >>> for _ in range(2):
        ...     print(both.search("annual leave").degraded[0].reason[:38])
        ConnectionError: down
        CircuitOpenError: left alone after 1 f

    """

    name: str
    retriever: BaseRetriever
    weight: Weight = 1.0
    top_k: Count | None = None
    timeout_s: TimeLimit = None
    required: bool = False
    retries: WholeNumber = 0
    backoff_s: Annotated[float, Range(least=0, unit="of seconds")] = 0.1
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    languages: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a leg needs a name")

    if not TYPE_CHECKING:  # a type checker reports this earlier

        def __or__(self, other: object) -> object:
            return _beside(self, other, other)

        def __ror__(self, other: object) -> object:
            return _beside(other, self, other)


def _beside(left: object, right: object, other: object) -> object:
    """Raise for a leg beside a part that does not know ``|`` either."""
    is_operand = hasattr(other, "__ror__") and not isinstance(other, Leg)
    if is_operand or not isinstance(other, Leg | BaseRetriever):
        return NotImplemented
    left, right = value_expression(left), value_expression(right)
    raise CompositionError(
        f"a Leg has | only with a retriever of this package, got {left} | {right}; put them side "
        f"by side with branches: branches({left}, {right}) >> RRF()"
    )


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to a leg."""

    leg: Leg
    query: Query
    top_k: int | None = None
    failure: BaseException | None = None  # of an earlier part of its work: it fails without a call


Rankings: TypeAlias = dict[str, list[NodeWithScore]]
_Task: TypeAlias = Task[list[NodeWithScore]]


def ask(
    asks: Mapping[str, Ask],
    *,
    min_success: int = 1,
    on_answer: Callable[[Rankings], object] | None = None,
) -> Plan[Rankings]:
    """Return the plan that sends requests to legs in parallel; failed ones are left out."""
    tasks: dict[str, _Task] = {}
    for name, this in asks.items():
        leg = this.leg
        tasks[name] = Task(leg.name, _answer(this), leg.timeout_s, leg=leg.name)
    if on_answer is None and (len(tasks) > 1 or current_context().on_partial is None):
        outcomes: list[Outcome[list[NodeWithScore]]] = yield Together([*tasks.values()])
    else:
        outcomes = yield from _with_partials(tasks, on_answer)
    rankings: Rankings = {}
    failures: dict[str, BaseException] = {}
    for (name, this), outcome in zip(asks.items(), outcomes, strict=True):
        if outcome.error is None:
            this.leg.breaker.succeeded()
            rankings[name] = outcome.value or []
        else:
            failures[name] = outcome.error
    if failures:
        _degrade(asks, rankings, failures, min_success)
    return rankings


def attempt(leg: str, part: str, plan: Plan[T], breaker: CircuitBreaker) -> Plan[Outcome[T]]:
    """Return the plan for a part of a leg's work, with its error as an outcome."""

    def checked() -> Plan[T]:
        breaker.check()
        return (yield from plan)

    outcomes: list[Outcome[T]] = yield Together([Task(part, checked(), leg=leg)])
    (outcome,) = outcomes
    if outcome.error is None:
        breaker.succeeded()
    elif not isinstance(outcome.error, (*MISTAKES, CircuitOpenError)):
        outcome.error.add_note(f"in leg {leg!r}")
    return outcome


def _degrade(
    asks: Mapping[str, Ask],
    rankings: Rankings,
    failures: Mapping[str, BaseException],
    min_success: int,
) -> None:
    """Note the failures; raise one that must not be left out, or if too few legs answered."""
    for name, error in failures.items():
        # The caller's time limit is no failure of the source.
        is_late = isinstance(error, DeadlineExceededError) and error.by_query
        if not (is_late or isinstance(error, (*MISTAKES, CircuitOpenError))):
            asks[name].leg.breaker.failed()
    for name, error in failures.items():
        leg = asks[name].leg
        if leg.required or isinstance(error, MISTAKES):
            raise error
        note_degraded(leg.name, error)
    # A leg with several requests counts once.
    legs = {this.leg.name for this in asks.values()}
    answered = {asks[name].leg.name for name in rankings}
    if len(answered) >= min(min_success, len(legs)):
        return
    errors = {asks[name].leg.name: error for name, error in failures.items()}
    causes = {name: error for name, error in errors.items() if name not in answered}
    reasons = "; ".join(f"{name}: {describe(error)}" for name, error in causes.items())
    raise TooFewLegsError(
        f"{len(answered)} of {len(legs)} legs answered, at least {min_success} must ({reasons})",
        causes,
    ) from next(iter(causes.values()))


def _with_partials(
    tasks: Mapping[str, _Task], on_answer: Callable[[Rankings], object] | None
) -> Plan[list[Outcome[list[NodeWithScore]]]]:
    """Return the plan for the outcomes that also reports the rankings so far, or those of a leg."""
    outcomes: list[Outcome[list[NodeWithScore]]]
    if on_answer is not None:
        with WhileOpen(on_answer) as report:
            outcomes = yield Together(_reporting_all(tasks, report))
    else:
        with WhileOpen(current_context().on_partial) as report_partial:
            outcomes = yield Together(
                [
                    replace(task, plan=reporting(task.plan, report_partial))
                    for task in tasks.values()
                ]
            )
    return outcomes


def _answer(this: Ask) -> Plan[list[NodeWithScore]]:
    """Call the leg, again after a failure if it has retries."""
    if this.failure is not None:
        raise this.failure
    leg = this.leg
    leg.breaker.check()
    for number in range(leg.retries + 1):
        try:
            plan = retrieval(leg.retriever, this.query, top_k=this.top_k or leg.top_k)
            return (yield from plan)
        except (*MISTAKES, CircuitOpenError):
            raise
        except Exception as error:
            pause_s = leg.backoff_s * 2**number
            left_s = current_context().remaining_s()
            if number == leg.retries or (left_s is not None and pause_s >= left_s):
                error.add_note(f"in leg {leg.name!r}")
                raise
            yield Sleep(pause_s)
    raise AssertionError  # pragma: no cover - the last attempt returns or raises


def _reporting_all(
    tasks: Mapping[str, _Task], on_answer: Callable[[Rankings], object]
) -> list[_Task]:
    """Return the tasks, changed so that each reports all rankings so far when it ends."""
    answered: Rankings = {}
    lock = Lock()

    def reported(name: str) -> Plan[list[NodeWithScore]]:
        hits = yield from tasks[name].plan
        # In the lock, to report in order. A score that cannot be fused fails the final answer, not
        # the leg that reports.
        with lock, suppress(ScoreError):
            answered[name] = hits
            on_answer({leg: answered[leg] for leg in tasks if leg in answered})
        return hits

    return [replace(task, plan=reported(name)) for name, task in tasks.items()]
