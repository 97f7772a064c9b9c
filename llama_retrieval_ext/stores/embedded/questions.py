"""Puts questions to the engine's shard and makes rankings of the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from qdrant_edge import (
    EdgeShard,
    Filter,
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


@dataclass(frozen=True, slots=True)
class Question:
    """One search.

    Attributes:
        query: What to look for.
        top_k: How many to return.
        filter: What each must match; None for everything.
        params: How to search; None for the engine's own way.
        score: From the engine's score to ours: finite, higher is better.
    """

    query: Query
    top_k: int
    filter: Filter | None
    params: SearchParams | None
    score: Callable[[float], float]

    def request(self, limit: int, *, with_payload: bool = True) -> QueryRequest:
        """The request for the best ``limit`` points."""
        return QueryRequest(
            limit=limit,
            query=self.query,
            filter=self.filter,
            params=self.params,
            with_payload=[NODE] if with_payload else False,
        )


def answers(shard: EdgeShard, questions: Sequence[Question]) -> list[list[Found]]:
    """One ranking a question, all asked at once: best first, equal scores by node id."""
    count = shard.info().points_count  # the engine makes room for as many as it is asked for
    # One more than wanted shows whether there is a tie where the ranking is cut.
    requests = [question.request(min(question.top_k, count) + 1) for question in questions]
    if len(requests) == 1:
        pages = [shard.query(requests[0])]
    else:
        pages = shard.query_batch(QueryBatchRequest(requests))
    return [
        _ranking(shard, question, points) for question, points in zip(questions, pages, strict=True)
    ]


def found(point: ScoredPoint, score: Callable[[float], float]) -> Found:
    """The node of a point, with its score."""
    text: str = (point.payload or {})[NODE]
    return Found.later(node_id_in(text), score(point.score), lambda: node_from_text(text))


def _ranking(shard: EdgeShard, question: Question, points: list[ScoredPoint]) -> list[Found]:
    top_k, score = question.top_k, question.score
    if len(points) > top_k and score(points[top_k - 1].score) == score(points[top_k].score):
        points = _with_ties(shard, question, points)
    ranking = [found(point, score) for point in points]
    ranking.sort(key=lambda each: (-each.score, each.node_id))
    return ranking[:top_k]


def _with_ties(
    shard: EdgeShard, question: Question, points: list[ScoredPoint]
) -> list[ScoredPoint]:
    """All points as good as the last that is wanted, so that ids can decide between them."""
    worst = question.score(points[-1].score)
    limit = len(points)
    while len(points) == limit and question.score(points[-1].score) == worst and limit < MOST_TIES:
        limit = min(4 * limit, MOST_TIES)
        points = shard.query(question.request(limit, with_payload=False))
    good = sum(question.score(point.score) >= worst for point in points)
    return shard.query(question.request(good))
