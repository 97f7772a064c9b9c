"""Awaits LlamaIndex parts whose async way was perhaps never made to work."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Final, TypeVar

from llama_retrieval_ext.errors import RetrievalExtError
from llama_retrieval_ext.execution.pool import pool

T = TypeVar("T")

# Raised for a store without its async client, or a parameter with another name. A source that
# cannot be reached raises none of them, and is not called a second time.
_NO_ASYNC: Final = (AssertionError, AttributeError, NotImplementedError, TypeError, ValueError)


async def awaited_or_in_thread(attempt: Callable[[], Awaitable[T]], blocking: Callable[[], T]) -> T:
    """Return what the async way gives, or the blocking way in a thread if there is no async way.

    Args:
        attempt: The async way. An error that says that it cannot work leads to ``blocking``; any
            other is raised.
        blocking: The blocking way; its error, if any, is raised.
    """
    try:
        return await attempt()
    except RetrievalExtError:
        raise
    except _NO_ASYNC:
        context = copy_context()
        return await asyncio.wrap_future(pool.submit(lambda: context.run(blocking)))
