"""Runs something that reports on its way, and yields the reports as they come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from queue import SimpleQueue
from threading import Lock
from typing import Generic, Self, TypeVar

from llama_retrieval_ext.execution.context import OnPartial, current_context, entered
from llama_retrieval_ext.execution.drivers import pool
from llama_retrieval_ext.execution.plan import Plan

T = TypeVar("T")
Report = Callable[[T], None]


def stream(work: Callable[[Report[T]], T]) -> Iterator[T]:
    """What the work reports, as it is reported, and last what it returns.

    Args:
        work: Runs in a thread, in a copy of this context; gets the function to report by.
    """
    reports: SimpleQueue[T | None] = SimpleQueue()
    context = copy_context()
    future = pool.submit(lambda: context.run(work, reports.put))
    future.add_done_callback(lambda _: reports.put(None))
    while (report := reports.get()) is not None:
        yield report
    yield future.result()


async def astream(work: Callable[[Report[T]], Awaitable[T]]) -> AsyncIterator[T]:
    """`stream` on the event loop; closing it early cancels the work."""
    reports: asyncio.Queue[T | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def report(value: T | None) -> None:  # legs without an async way report from their thread
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
    """Tells what it is told, until its ``with`` block ends: a late leg's thread lives on.

    Args:
        tell: Called by one thread at a time; None for nobody.

    Examples:
        >>> with WhileOpen(print) as tell:
        ...     tell("in time")
        in time
        >>> tell("too late")

    """

    __slots__ = ("_lock", "_tell")

    def __init__(self, tell: Callable[[T], None] | None) -> None:
        self._tell = tell
        self._lock = Lock()

    def __call__(self, told: T) -> None:
        """Tell it, if anybody still listens."""
        with self._lock:
            if self._tell is not None:
                self._tell(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._tell = None


def reporting(plan: Plan[T], on_partial: OnPartial | None) -> Plan[T]:
    """The same plan; what it finds on its way is told here, and nowhere else.

    A task of its own is not heard unless it is made so: those beside it would talk at once.

    Args:
        plan: What runs.
        on_partial: Who is told; None for nobody.
    """
    context = current_context()
    if context.on_partial is on_partial:
        return (yield from plan)
    with entered(replace(context, on_partial=on_partial)):
        return (yield from plan)
