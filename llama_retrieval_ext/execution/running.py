"""Functions that run a plan: blocking, async, with a time limit, or with partial results."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from inspect import signature, unwrap
from typing import Any, ParamSpec, TypeAlias, TypeVar, get_args

from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.streaming import Report, astream, stream

P = ParamSpec("P")
T = TypeVar("T")
# Returns a plan that reports partial results to a function, if given.
Reporting: TypeAlias = Callable[[Report[T] | None], Plan[T]]


def blocking(plan: Callable[P, Plan[T]]) -> Callable[P, T]:
    """Return a function that runs the plan of the decorated function and returns its result.

    Examples:
        >>> from llama_retrieval_ext.execution import Call
        >>> @blocking
        ... def doubled(number: int) -> Plan[int]:
        ...     return 2 * (yield Call(lambda: number))
        >>> doubled(21), asynchronous(doubled).__name__
        (42, 'adoubled')

    """

    @wraps(plan)
    def blocked(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(plan(*args, **kwargs))

    _show_result(blocked, plan)
    return blocked


def asynchronous(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the async twin of a function that `blocking` decorates.

    Args:
        function: The decorated function; the twin has its name with the prefix ``a``.
    """
    plan: Any = unwrap(function)  # the function that `blocking` wraps

    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await arun(plan(*args, **kwargs))
        return result

    wraps(plan)(awaited)
    _show_result(awaited, plan)
    prefix, _, name = plan.__qualname__.rpartition(".")
    awaited.__name__ = f"a{name}"
    awaited.__qualname__ = ".".join(filter(None, [prefix, f"a{name}"]))
    awaited.__doc__ = f"`{name}` without blocking the event loop."
    return awaited


def _show_result(function: Any, plan: Any) -> None:  # noqa: ANN401 - any signature
    """Set a function's signature to the plan's, with the type of its result."""
    shown = signature(plan)
    result = get_args(shown.return_annotation)[-1:] or (shown.return_annotation,)
    function.__signature__ = shown.replace(return_annotation=result[0])


def called(
    function: Callable[P, T],
    twin: Callable[P, Awaitable[T]],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Plan[T]:
    """Return the plan that calls a function, or its async twin, with arguments."""
    result: T = yield Call(lambda: function(*args, **kwargs), lambda: twin(*args, **kwargs))
    return result


def within(name: str, plan: Plan[T], timeout_s: float | None) -> Plan[T]:
    """Return the plan with a time limit."""
    if timeout_s is None:
        return (yield from plan)
    outcomes: list[Outcome[T]] = yield Together([Task(name, plan, timeout_s)])
    return outcomes[0].result()


def partials(plan: Reporting[T]) -> Iterator[T]:
    """Yield the partial results of a plan, then its result."""
    return stream(lambda report: run(plan(report)))


def apartials(plan: Reporting[T]) -> AsyncIterator[T]:
    """Yield the same as `partials` without blocking the event loop."""
    return astream(lambda report: arun(plan(report)))
