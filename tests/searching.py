"""Searches in either of their two ways, and what they do to the event loop."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeAlias

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.ranking import SearchResult
from llama_retrieval_ext.stages.algebra.retriever import Retriever

# What the fixture ``searched`` gives.
Searched: TypeAlias = Callable[[Retriever, str | QueryBundle], SearchResult]


async def longest_pause_s(retriever: Retriever) -> float:
    """How long the event loop was busy at a stretch while a retriever answered, in seconds."""
    task = asyncio.create_task(retriever.aretrieve("query"))
    longest = 0.0
    while not task.done():
        before = time.perf_counter()
        await asyncio.sleep(0.005)
        longest = max(longest, time.perf_counter() - before)
    return longest
