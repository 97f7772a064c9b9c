"""Plain LlamaIndex retrievers that know nothing of this package, and misbehave on demand."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from threading import Event
from typing import TypeAlias

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

Row: TypeAlias = (
    tuple[str, float | None]
    | tuple[str, float | None, str]
    | tuple[str, float | None, str, Mapping[str, object]]
)


class FakeRetriever(BaseRetriever):
    """Answers every query with the same hits, by a blocking call only.

    Like some retrievers in the wild it hands out the very same objects every time: whoever changes
    one of its hits changes its next answer.

    Args:
        rows: Node id, score, and perhaps text (the id, if not) and metadata of each hit.
        delay_s: Seconds an answer takes.
        error: Raised instead of an answer, after the delay.

    Examples:
        >>> retriever = FakeRetriever([("a", 0.9), ("b", 0.5, "text of b", {"lang": "en"})])
        >>> [hit.node_id for hit in retriever.retrieve("anything")]
        ['a', 'b']
        >>> retriever.calls[0].query_str
        'anything'

    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        delay_s: float = 0.0,
        error: BaseException | None = None,
    ) -> None:
        super().__init__()
        self.hits = [_hit(row) for row in rows]
        self.delay_s = delay_s
        self.error = error
        self.calls: list[QueryBundle] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        if self.delay_s:  # even a sleep of 0 s hands the processor to somebody else
            time.sleep(self.delay_s)
        return self._answer()

    def _answer(self) -> list[NodeWithScore]:
        if self.error is not None:
            raise self.error
        return list(self.hits)


class FakeAsyncRetriever(FakeRetriever):
    """A `FakeRetriever` that also has a real async way."""

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        await asyncio.sleep(self.delay_s)
        return self._answer()


class FlakyRetriever(FakeRetriever):
    """A `FakeRetriever` that fails a few times, and then answers.

    Args:
        rows: As for `FakeRetriever`.
        failures: How many calls fail first.
        error: What they raise; a ``ConnectionError`` unless given.
        delay_s: Seconds each call takes.

    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        failures: int = 1,
        error: Exception | None = None,
        delay_s: float = 0.0,
    ) -> None:
        super().__init__(rows, delay_s=delay_s)
        self.failures = failures
        self._failure = error or ConnectionError("the source cannot be reached")

    def _answer(self) -> list[NodeWithScore]:
        if len(self.calls) <= self.failures:
            raise self._failure
        return super()._answer()


class HangingRetriever(FakeRetriever):
    """A `FakeRetriever` that answers only once `release` is called.

    Args:
        rows: As for `FakeRetriever`.
        error: Raised instead of an answer.

    Attributes:
        asked: Set as soon as the retriever has been called.
    """

    def __init__(self, rows: Iterable[Row] = (), *, error: BaseException | None = None) -> None:
        super().__init__(rows, error=error)
        self.asked = Event()
        self._released = Event()

    def release(self) -> None:
        """Let all answers go, those still to be asked for included."""
        self._released.set()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle)
        self.asked.set()
        self._released.wait()
        return self._answer()


def _hit(row: Row) -> NodeWithScore:
    node_id, score = row[0], row[1]
    text = row[2] if len(row) > 2 else node_id
    metadata = dict(row[3]) if len(row) > 3 else {}
    return NodeWithScore(node=TextNode(id_=node_id, text=text, metadata=metadata), score=score)
