"""Puts questions to a collection and makes rankings of the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk

# Of more nodes than these that tie where the ranking is cut, the engine's choice stands: sending
# all of them to order them by id would take seconds.
MOST_TIES: Final = 10_000

Score: TypeAlias = Callable[[float], float]
# From what is stored of a point, and its score of ours, to its node.
Read: TypeAlias = Callable[[models.ScoredPoint, float], Found]
Vector: TypeAlias = list[float] | models.SparseVector | models.NearestQuery


@dataclass(frozen=True, slots=True)
class Question:
    """One search.

    Attributes:
        query: What to look for.
        using: Name of the vectors to look in; None for those without a name.
        top_k: How many to return.
        filter: What each must match; None for everything.
        params: How to search; None for the engine's own way.
        score: From the engine's score to ours: finite, higher is better.
        positive: Whether a score of 0 or less is no hit, as of a text that shares no term.
    """

    query: Vector
    using: str | None
    top_k: int
    filter: models.Filter | None
    params: models.SearchParams | None
    score: Score
    positive: bool = False

    def request(self, limit: int, payload: bool | list[str]) -> models.QueryRequest:  # noqa: FBT001 - the client's word for it
        """The request for the best ``limit`` points, with their payload or the fields named."""
        return models.QueryRequest(
            query=self.query,
            using=self.using,
            filter=self.filter,
            params=self.params,
            limit=limit,
            with_payload=payload,
        )


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks a collection.

    Attributes:
        collection: Its name.
        read: Makes nodes of points, at once or later.
        payload: What of the payload that takes: all, or fields by name.
    """

    collection: str
    read: Read
    payload: bool | list[str]

    def rankings(self, questions: Sequence[Question]) -> Talk[list[list[Found]]]:
        """One ranking a question, asked in one request: best first, equal scores by node id.

        Raises:
            CollectionMissingError: There is no such collection.
        """
        # One more than wanted shows whether there is a tie where the ranking is cut.
        requests = [question.request(question.top_k + 1, self.payload) for question in questions]
        pages = yield from self._points(requests)
        rankings = []
        for question, points in zip(questions, pages, strict=True):
            rankings.append((yield from self._ranking(question, points)))
        return rankings

    def in_order(self, question: Question) -> Talk[list[Found]]:
        """The points in the engine's own order, as after diversification.

        Raises:
            CollectionMissingError: There is no such collection.
        """
        request = question.request(question.top_k, self.payload)
        (points,) = yield from self._points([request])
        return [self.read(point, question.score(point.score)) for point in points]

    def _ranking(
        self, question: Question, points: list[models.ScoredPoint]
    ) -> Talk[list[Found]]:
        top_k, score = question.top_k, question.score
        if len(points) > top_k:
            tied = score(points[top_k - 1].score) == score(points[top_k].score)
            points = (yield from self._with_ties(question, points)) if tied else points[:top_k]
        ranking = [
            self.read(point, score(point.score))
            for point in points
            if not question.positive or point.score > 0
        ]
        ranking.sort(key=lambda each: (-each.score, each.node_id))
        return ranking[:top_k]

    def _with_ties(
        self, question: Question, points: list[models.ScoredPoint]
    ) -> Talk[list[models.ScoredPoint]]:
        """All points as good as the last that is wanted, so that ids can decide between them."""
        worst = question.score(points[-1].score)
        limit = len(points)
        while (
            len(points) == limit < MOST_TIES and question.score(points[-1].score) == worst
        ):
            limit = min(4 * limit, MOST_TIES)
            (points,) = yield from self._points([question.request(limit, payload=False)])
        good = sum(question.score(point.score) >= worst for point in points)
        (points,) = yield from self._points([question.request(good, self.payload)])
        return points

    def _points(self, requests: list[models.QueryRequest]) -> Talk[list[list[models.ScoredPoint]]]:
        pages = yield Request(
            "query_batch_points", {"collection_name": self.collection, "requests": requests}
        )
        return [page.points for page in pages]
