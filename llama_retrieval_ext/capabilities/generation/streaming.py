"""What a model says while it says it: in time, and without what it only thinks."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, TypeVar

from llama_retrieval_ext.errors import DeadlineExceededError
from llama_retrieval_ext.execution.drivers import pool
from llama_retrieval_ext.llm.parsing import cleaned

T = TypeVar("T")

_LONGEST_TAG: Final = 24


def timed(parts: Callable[[], Iterator[T]], timeout_s: float) -> Iterator[T]:
    """Yield what an iterator gives, which runs in a thread and may take so long altogether.

    Args:
        parts: Starts it. It is left to itself when it is late, and ends after its next part.
        timeout_s: Seconds.

    Raises:
        DeadlineExceededError: It is late.

    Examples:
        >>> list(timed(lambda: iter("ab"), 5))
        ['a', 'b']

    """
    queue: SimpleQueue[T | None] = SimpleQueue()
    stopped = Event()

    def work() -> None:
        for part in parts():
            if stopped.is_set():
                return
            queue.put(part)

    context = copy_context()
    future = pool.submit(lambda: context.run(work))
    future.add_done_callback(lambda _: queue.put(None))
    deadline = time.monotonic() + timeout_s
    try:
        while (part := _next(queue, deadline, timeout_s)) is not None:
            yield part
    finally:
        stopped.set()
    future.result()


def _next(queue: "SimpleQueue[T | None]", deadline: float, timeout_s: float) -> T | None:
    try:
        return queue.get(timeout=max(0.0, deadline - time.monotonic()))
    except Empty:
        raise _late(timeout_s) from None


async def atimed(parts: Awaitable[AsyncIterator[T]], timeout_s: float) -> AsyncIterator[T]:
    """`timed` on the event loop."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    try:
        async with asyncio.timeout_at(deadline):
            iterator = await parts
    except TimeoutError:
        raise _late(timeout_s) from None
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                part = await anext(iterator, None)
        except TimeoutError:
            raise _late(timeout_s) from None
        if part is None:
            return
        yield part


def _late(timeout_s: float) -> DeadlineExceededError:
    return DeadlineExceededError(f"its {timeout_s} s are over", by_query=False)


def visible(answer: str) -> str:
    """Return an unfinished answer without thoughts, and without what may turn out to be a tag.

    Examples:
        >>> visible("<think>25?</think>25 days <th")
        '25 days'

    """
    text = cleaned(answer)
    for sign in "<[◁":
        start = text.rfind(sign)
        if start >= 0 and len(text) - start < _LONGEST_TAG and not _is_closed(text[start:]):
            text = text[:start].rstrip()
    return text


def _is_closed(tag: str) -> bool:
    return any(sign in tag for sign in ">]▷")
