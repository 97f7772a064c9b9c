"""Puts questions to a collection and makes rankings of the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.points.payload import DOC_KEY
from llama_retrieval_ext.stores.qdrant.layout import Score
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk

# Of more nodes than these that tie where the ranking is cut, the engine's choice stands: sending
# all of them to order them by id would take seconds.
MOST_TIES: Final = 10_000
# Of no more than these, the payload comes with the answer that shows how many tie.
_FEW: Final = 512
# The engine leaves out what is below; it calculates in 32 bits.
_ABOVE_ZERO: Final = 1e-30

# From what is stored of a point, and its score of ours, to its node.
Read: TypeAlias = Callable[[models.ScoredPoint, float], Found]
Vector: TypeAlias = list[float] | models.SparseVector | models.NearestQuery
Fusing: TypeAlias = models.RrfQuery | models.FusionQuery | models.FormulaQuery


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
        legs: What it fuses, each with its own filter.
        spare: How many more than wanted to ask for at first, so that a tie where the ranking is
            cut shows, and is not cut through. Fused ranks often tie in pairs.
    """

    query: Vector | Fusing
    using: str | None
    top_k: int
    filter: models.Filter | None
    params: models.SearchParams | None
    score: Score
    positive: bool = False
    legs: tuple["Question", ...] = ()
    spare: int = 1

    def request(self, limit: int, payload: bool | list[str]) -> models.QueryRequest:  # noqa: FBT001 - the client's word for it
        """The request for the best ``limit`` points, with their payload or the fields named."""
        return models.QueryRequest(
            prefetch=[leg.prefetch() for leg in self.legs] or None,
            query=self.query,
            using=self.using,
            filter=self.filter,
            params=self.params,
            limit=limit,
            with_payload=payload,
        )

    def prefetch(self) -> models.Prefetch:
        """This question as a leg of another."""
        return models.Prefetch(
            query=self.query,
            using=self.using,
            filter=self.filter,
            params=self.params,
            limit=self.top_k,
            score_threshold=_ABOVE_ZERO if self.positive else None,
        )


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks a collection.

    Attributes:
        collection: Its name.
        read: Makes nodes of points, at once or later.
        payload: What of the payload that takes: all, or fields by name.
        grain: Scores that differ by no more are equal: local mode's have such noise.
        slack: How many more keyword hits to ask for than it takes to see a tie, where they cost
            less than to ask again.
    """

    collection: str
    read: Read
    payload: bool | list[str]
    grain: float
    slack: int

    def rankings(self, questions: Sequence[Question]) -> Talk[list[list[Found]]]:
        """One ranking a question, asked in one request: best first, equal scores by node id.

        Raises:
            CollectionMissingError: There is no such collection.
        """
        requests = [question.request(self._limit(question), self.payload) for question in questions]
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

    def groups(self, question: Question, size: int) -> Talk[list[Found]]:
        """The best points of as many documents as the question wants points, best first.

        Raises:
            CollectionMissingError: There is no such collection.
        """
        answer = yield Request(
            "query_points_groups",
            {
                "collection_name": self.collection,
                "query": question.query,
                "using": question.using,
                "query_filter": question.filter,
                "search_params": question.params,
                "score_threshold": _ABOVE_ZERO if question.positive else None,
                "group_by": DOC_KEY,
                "limit": question.top_k,
                "group_size": size,
                "with_payload": self.payload,
            },
        )
        points = [point for group in answer.groups for point in group.hits]
        found = [self.read(point, question.score(point.score)) for point in points]
        return sorted(found, key=lambda each: (-each.score, each.node_id))

    def _ranking(self, question: Question, points: list[models.ScoredPoint]) -> Talk[list[Found]]:
        top_k, scores = question.top_k, self._scores(question, points)
        if len(points) == self._limit(question) and scores[-1] == scores[top_k - 1]:
            points = yield from self._with_ties(question, points)
            scores = self._scores(question, points)
        ranking = [
            self.read(point, score)
            for point, score in zip(points, scores, strict=True)
            if score > 0 or not question.positive
        ]
        ranking.sort(key=lambda each: (-each.score, each.node_id))
        return ranking[:top_k]

    def _with_ties(
        self, question: Question, points: list[models.ScoredPoint]
    ) -> Talk[list[models.ScoredPoint]]:
        """All points as good as the last that is wanted, so that ids can decide between them."""
        limit, last = len(points), question.top_k - 1
        scores = self._scores(question, points)
        while len(points) == limit < MOST_TIES and scores[-1] == scores[last]:
            limit = min(4 * limit, MOST_TIES)
            payload = self.payload if limit <= _FEW else False
            (points,) = yield from self._points([question.request(limit, payload)])
            scores = self._scores(question, points)
        if limit > _FEW:
            good = sum(score >= scores[last] for score in scores)
            (points,) = yield from self._points([question.request(good, self.payload)])
        return points

    def _limit(self, question: Question) -> int:
        # Among scores of keywords there often is a tie where the ranking is cut.
        return question.top_k + question.spare + (self.slack if question.positive else 0)

    def _scores(self, question: Question, points: Sequence[models.ScoredPoint]) -> list[float]:
        scores = [question.score(point.score) for point in points]
        # Fused scores may all be near to 0, and close together without being equal.
        return levelled(scores, grain=0.0 if question.legs else self.grain)

    def _points(self, requests: list[models.QueryRequest]) -> Talk[list[list[models.ScoredPoint]]]:
        pages = yield Request(
            "query_batch_points", {"collection_name": self.collection, "requests": requests}
        )
        return [page.points for page in pages]


def levelled(scores: Sequence[float], *, grain: float) -> list[float]:
    """Falling scores, those as good as equal made equal.

    Examples:
        >>> levelled([0.75, 0.7499999, 0.5], grain=1e-6)
        [0.75, 0.75, 0.5]

    """
    levels: list[float] = []
    for score in scores:
        level = levels[-1] if levels else score
        near = abs(level - score) <= grain * max(1.0, abs(level))
        levels.append(level if near else score)
    return levels
