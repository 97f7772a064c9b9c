"""A retriever of this package that finds what it was told to find."""

import asyncio
import time
from collections.abc import Iterable

from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit, ordered
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.testing.fake_retrievers import FakeRetriever, Row


class FixedRetriever(Retriever):
    """Answers every query with the same rows, as far as scope, filters and ``top_k`` let it.

    Args:
        rows: Node id, score, and perhaps text and metadata of each hit; as for `FakeRetriever`.
        top_k: How many hits to return when the query does not say.
        name: Name in traces and ``Hit.source``, and the representation.
        delay_s: Seconds an answer takes; the event loop is free meanwhile.
        error: Raised instead of an answer, after the delay.

    Attributes:
        calls: Every query it was asked, oldest first.

    Examples:
        >>> retriever = FixedRetriever([("a", 0.9), ("b", 0.5)], name="fixed")
        >>> [hit.node_id for hit in retriever.search("anything", top_k=1).hits]
        ['a']

    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        top_k: int = 10,
        name: str = "fixed",
        delay_s: float = 0.0,
        error: Exception | None = None,
    ) -> None:
        super().__init__(top_k=top_k, name=name)
        self.hits = FakeRetriever(rows).hits
        self.delay_s = delay_s
        self.error = error
        self.calls: list[Query] = []

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        self.calls.append(query)
        if self.delay_s:
            yield Call(lambda: time.sleep(self.delay_s), lambda: asyncio.sleep(self.delay_s))
        if self.error is not None:
            raise self.error
        condition = query.condition
        return ordered(
            Hit(node=hit.node, score=hit.score, source=self.name)
            for hit in self.hits
            if matches(condition, hit.node.metadata)
        )[: query.top_k]

    def __repr__(self) -> str:
        return self.name
