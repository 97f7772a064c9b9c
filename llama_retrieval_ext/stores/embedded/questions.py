"""Puts questions to the engine's shard and makes rankings of the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from qdrant_edge import (
    EdgeShard,
    Filter,
    Formula,
    Fusion,
    Prefetch,
    Query,
    QueryBatchRequest,
    QueryRequest,
    ScoredPoint,
    SearchParams,
)

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.nodes.stored_node import node_from_text, node_id_in
from llama_retrieval_ext.stores.points.payload import NODE

# Of more nodes than these that tie where the ranking is cut, the engine's choice stands: reading
# all of them to order them by id would take seconds.
MOST_TIES: Final = 10_000


Fusing: TypeAlias = Fusion | Formula


@dataclass(frozen=True, slots=True)
class Question:
    """One search.

    Attributes:
        query: What to look for.
        top_k: How many to return.
        filter: What each must match; None for everything.
        params: How to search; None for the engine's own way.
        score: From the engine's score to ours: finite, higher is better.
        legs: What it fuses, each with its own filter.
        spare: How many more than wanted to ask for at first, so that a tie where the ranking is
            cut shows, and is not cut through. Fused ranks often tie in pairs.
    """

    query: Query | Fusing
    top_k: int
    filter: Filter | None
    params: SearchParams | None
    score: Callable[[float], float]
    legs: tuple["Question", ...] = ()
    spare: int = 1

    def request(self, limit: int, *, most: int, with_payload: bool = True) -> QueryRequest:
        """The request for the best ``limit`` points of a shard that has ``most``."""
        return QueryRequest(
            limit=limit,
            query=self.query,
            prefetches=[leg.prefetch(most) for leg in self.legs] or None,
            filter=self.filter,
            params=self.params,
            with_payload=[NODE] if with_payload else False,
        )

    def prefetch(self, most: int) -> Prefetch:
        """This question as a leg of another."""
        if not isinstance(self.query, Query):
            raise TypeError(f"a leg is a search, not {self.query!r}")
        return Prefetch(
            min(self.top_k, most), query=self.query, params=self.params, filter=self.filter
        )


def answers(shard: EdgeShard, questions: Sequence[Question]) -> list[list[Found]]:
    """One ranking a question, all asked at once: best first, equal scores by node id."""
    count = shard.info().points_count  # the engine makes room for as many as it is asked for
    requests = [
        question.request(min(question.top_k, count) + question.spare, most=count)
        for question in questions
    ]
    if len(requests) == 1:
        pages = [shard.query(requests[0])]
    else:
        pages = shard.query_batch(QueryBatchRequest(requests))
    return [
        _ranking(shard, question, points, most=count)
        for question, points in zip(questions, pages, strict=True)
    ]


def found(point: ScoredPoint, score: Callable[[float], float]) -> Found:
    """The node of a point, with its score."""
    text: str = (point.payload or {})[NODE]
    return Found.later(node_id_in(text), score(point.score), lambda: node_from_text(text))


def _ranking(
    shard: EdgeShard, question: Question, points: list[ScoredPoint], *, most: int
) -> list[Found]:
    top_k, score = question.top_k, question.score
    is_full = len(points) == top_k + question.spare
    if is_full and score(points[top_k - 1].score) == score(points[-1].score):
        points = _with_ties(shard, question, points, most=most)
    ranking = [found(point, score) for point in points]
    ranking.sort(key=lambda each: (-each.score, each.node_id))
    return ranking[:top_k]


def _with_ties(
    shard: EdgeShard, question: Question, points: list[ScoredPoint], *, most: int
) -> list[ScoredPoint]:
    """All points as good as the last that is wanted, so that ids can decide between them."""
    worst = question.score(points[-1].score)
    limit = len(points)
    while len(points) == limit and question.score(points[-1].score) == worst and limit < MOST_TIES:
        limit = min(4 * limit, MOST_TIES)
        points = shard.query(question.request(limit, most=most, with_payload=False))
    good = sum(question.score(point.score) >= worst for point in points)
    return shard.query(question.request(good, most=most))
