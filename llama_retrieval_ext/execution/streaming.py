"""Streams of partial results from work that reports them."""

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
# Receives a partial result; returns False when partial results are no longer read.
Report = Callable[[T], object]


def stream(work: Callable[[Report[T]], T]) -> Iterator[T]:
    """Yield partial results as they are reported, then the return value."""
    reports: SimpleQueue[T | None] = SimpleQueue()
    context = copy_context()
    with WhileOpen(reports.put) as report:
        future = pool.submit(lambda: context.run(work, report))
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

    Args:
        report: Receives the values, one thread at a time; None to drop all values.

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
