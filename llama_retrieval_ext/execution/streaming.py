"""Runs something that reports on its way, and yields the reports as they come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

from llama_retrieval_ext.execution.pool import pool

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
