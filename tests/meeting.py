"""Retrievers that wait for each other: they show what happens side by side, without a clock."""

import asyncio
from collections.abc import Iterable
from threading import Barrier

from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext import Retriever, SearchResult
from llama_retrieval_ext.testing.fakes import FakeRetriever, Row

# Only a test that fails waits so long.
_PATIENCE_S = 60


class Meeting:
    """Whoever comes waits until all are there; who is late for it makes it fail for all.

    Args:
        size: How many have to be there at once.
    """

    def __init__(self, size: int) -> None:
        self._threads = Barrier(size, timeout=_PATIENCE_S)
        self._tasks = asyncio.Barrier(size)

    def join(self) -> None:
        """Wait in a thread."""
        self._threads.wait()

    async def ajoin(self) -> None:
        """Wait on an event loop, without blocking it."""
        async with asyncio.timeout(_PATIENCE_S):
            await self._tasks.wait()


class Meets(FakeRetriever):
    """A `FakeRetriever` that answers when all of its meeting are there; by a blocking call only.

    Args:
        rows: As for `FakeRetriever`.
        meeting: Where it waits.
    """

    def __init__(self, rows: Iterable[Row], meeting: Meeting) -> None:
        super().__init__(rows)
        self.meeting = meeting

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        self.meeting.join()
        return self._answer()


class MeetsAsync(Meets):
    """A `Meets` that also has a real async way."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        await self.meeting.ajoin()
        return self._answer()


async def met_by_the_loop(retriever: Retriever, *meetings: Meeting) -> SearchResult:
    """An answer of which parts block until the event loop, too, has come to each of the meetings.

    A retriever that blocks the loop instead of a thread keeps it from ever coming.
    """
    answer = asyncio.create_task(retriever.asearch("query"))
    await asyncio.sleep(0)  # it begins first
    for meeting in meetings:
        await asyncio.to_thread(meeting.join)
    return await answer
