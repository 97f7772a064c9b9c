"""Partial results of plans; the blocking and the async twin of a method that returns a plan."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import wraps
from inspect import signature, unwrap
from queue import SimpleQueue
from threading import Lock
from typing import Any, Generic, ParamSpec, Self, TypeAlias, TypeVar

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.execution.context import OnPartial, call, current_context, entered
from llama_retrieval_ext.execution.drivers import arun, asynchronous, blocking, pool, run, show_as
from llama_retrieval_ext.execution.plan import Call, Plan

T = TypeVar("T")
# Receives a partial result; returns False when partial results are no longer read.
Report = Callable[[T], object]


def stream(work: Callable[[Report[T]], T]) -> Iterator[T]:
    """Yield partial results as they are reported, then the return value."""
    reports: SimpleQueue[T | None] = SimpleQueue()
    with WhileOpen(reports.put) as report:
        future = pool.submit(lambda: work(report))
        future.add_done_callback(lambda _: reports.put(None))
        while (value := reports.get()) is not None:
            yield value
        yield future.result()


async def astream(work: Callable[[Report[T]], Awaitable[T]]) -> AsyncIterator[T]:
    """Yield the same as `stream` on the event loop; closing it early cancels the work."""
    reports: asyncio.Queue[T | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def report(value: T | None) -> None:  # legs without an async client report from their thread
        loop.call_soon_threadsafe(reports.put_nowait, value)

    task = asyncio.ensure_future(work(report))
    task.add_done_callback(lambda _: report(None))
    try:
        while (value := await reports.get()) is not None:
            yield value
        yield await task
    finally:
        task.cancel()


class WhileOpen(Generic[T]):
    """Forwards values until its ``with`` block ends; later values, of late threads, are dropped.

    Examples:
        >>> with WhileOpen(print) as report:
        ...     report("in time")
        in time
        True
        >>> report("too late")
        False

    """

    __slots__ = ("_lock", "_report")

    def __init__(self, report: Report[T] | None) -> None:
        self._report = report
        self._lock = Lock()

    def __call__(self, value: T) -> bool:
        """Forward the value unless the block has ended; return False if values are not read."""
        with self._lock:
            return self._report is not None and self._report(value) is not False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._report = None


def reporting(plan: Plan[T], on_partial: OnPartial | None) -> Plan[T]:
    """Return the plan with its partial results reported only to ``on_partial``.

    The tasks of a plan report nothing unless they are wrapped: parallel reports would interleave.
    """
    context = current_context()
    if context.on_partial is on_partial:
        return (yield from plan)
    with entered(replace(context, on_partial=on_partial)):
        return (yield from plan)


P = ParamSpec("P")
# Returns a plan that reports partial results to a function.
Reporting: TypeAlias = Callable[[Report[T]], Plan[T]]


def callers(
    plan: Callable[P, Plan[T] | Call[T]],
) -> tuple[Callable[P, T], Callable[P, Coroutine[Any, Any, T]]]:
    """Return the blocking twin ``x`` and the async twin ``ax`` of a function ``plan_x``.

    Twins of a method make the call, or run the plan, that the object's own ``plan_x`` returns.

    Examples:
        >>> from llama_retrieval_ext.execution import Call
        >>> def plan_doubled(number: int) -> Call[int]:
        ...     return Call(lambda: 2 * number)
        >>> doubled, adoubled = callers(plan_doubled)
        >>> doubled(21), asyncio.run(adoubled(21)), adoubled.__name__
        (42, 42, 'adoubled')

    """
    source: Any = plan
    is_method = next(iter(signature(plan).parameters), "") == "self"

    def planned(*args: P.args, **kwargs: P.kwargs) -> Plan[T]:
        arguments: Any = args
        if is_method:  # it may be overridden
            made = getattr(arguments[0], source.__name__)(*arguments[1:], **kwargs)
        else:
            made = plan(*args, **kwargs)
        return call(made) if isinstance(made, Call) else made

    named: Any = wraps(plan)(planned)
    named.__name__ = source.__name__.removeprefix("plan_")
    named.__qualname__ = source.__qualname__.replace(source.__name__, named.__name__)
    named.__signature__ = signature(plan)
    named.__isabstractmethod__ = False
    del named.__wrapped__  # `asynchronous` runs this function
    blocked = blocking(planned)
    return blocked, asynchronous(blocked)


def streamed(reporting: Callable[P, Reporting[T]]) -> Callable[P, Iterator[T]]:
    """Return a function that yields the partial results of a plan, then its result."""

    def partials(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        plan = reporting(*args, **kwargs)
        return stream(lambda report: run(plan(report)))

    show_as(partials, reporting, Iterator)
    return checked_call(partials)


def async_streamed(function: Callable[P, Iterator[T]]) -> Callable[P, AsyncIterator[T]]:
    """Return the async twin of a function that `streamed` decorates."""
    reporting: Any = unwrap(function)

    def partials(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        plan: Reporting[T] = reporting(*args, **kwargs)
        return astream(lambda report: arun(plan(report)))

    show_as(partials, reporting, AsyncIterator, prefix="a")
    return checked_call(partials)
