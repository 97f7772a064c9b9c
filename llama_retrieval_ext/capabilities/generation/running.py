"""Runs the plan of a capability: sync, async, within a time limit, or in partial results."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeAlias, TypeVar

from llama_retrieval_ext.execution.context import current_context, in_answer
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.streaming import Report, astream, stream

T = TypeVar("T")
# The plan that reports partial results to a function, if there is one.
Reporting: TypeAlias = Callable[[Report[T] | None], Plan[T]]


def result(plan: Plan[T]) -> T:
    """Return the result of a plan."""
    with in_answer():
        return run(plan)


async def aresult(plan: Plan[T]) -> T:
    """`result` without blocking the event loop."""
    with in_answer():
        return await arun(plan)


def within(name: str, plan: Plan[T], timeout_s: float | None) -> Plan[T]:
    """Return the plan with a time limit for all of it."""
    if timeout_s is None:
        return (yield from plan)
    outcomes: list[Outcome[T]] = yield Together([Task(name, plan, timeout_s)])
    return outcomes[0].result()


def partials(plan: Reporting[T]) -> Iterator[T]:
    """Yield what a plan reports, and last its result."""
    return stream(lambda report: result(plan(report)))


def apartials(plan: Reporting[T]) -> AsyncIterator[T]:
    """`partials` without blocking the event loop."""
    return astream(lambda report: aresult(plan(report)))


def degraded_since(count: int) -> list[str]:
    """Return what the current answer lacks, after the first ``count`` parts, in words."""
    return [f"{each.where}: {each.reason}" for each in current_context().session.degraded[count:]]


def degraded_count() -> int:
    """Return how many parts the current answer lacks so far."""
    return len(current_context().session.degraded)
