"""Searches of a collection of ours, for the LlamaIndex class and for the backend alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_id_in
from llama_retrieval_ext.stores.encoding.vectors import query_vector
from llama_retrieval_ext.stores.engine.backend import Candidate, Sought, fused_here
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.qdrant.client import Request, Talk
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.distances import Score, score_of
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.params import BM25, DENSE, DISTANCES
from llama_retrieval_ext.stores.qdrant_common.config import Recipe, recipe_of
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, Wanted
from llama_retrieval_ext.stores.qdrant_common.points import DOC_KEY, NO_TERM, NODE

# Of more nodes than these that tie where the ranking is cut, the engine's choice stands: sending
# all of them to order them by id would take seconds.
MOST_TIES: Final = 10_000
# Of no more than these, the payload comes with the answer that shows how many tie.
_FEW: Final = 512
# The engine leaves out what is below; it calculates in 32 bits.
_ABOVE_ZERO: Final = 1e-30

# From what is stored of a point, and its score of ours, to its node.
Read: TypeAlias = Callable[[models.ScoredPoint, float], Candidate]
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

    def rankings(self, questions: Sequence[Question]) -> Talk[list[list[Candidate]]]:
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

    def in_order(self, question: Question) -> Talk[list[Candidate]]:
        """The points in the engine's own order, as after diversification.

        Raises:
            CollectionMissingError: There is no such collection.
        """
        request = question.request(question.top_k, self.payload)
        (points,) = yield from self._points([request])
        return [self.read(point, question.score(point.score)) for point in points]

    def groups(self, question: Question, size: int) -> Talk[list[Candidate]]:
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

    def _ranking(
        self, question: Question, points: list[models.ScoredPoint]
    ) -> Talk[list[Candidate]]:
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


# The engine's own limit.
_MOST_CANDIDATES: Final = 16_384


class TalkingSearcher:
    """Talks that search. Rankings come best first, equal scores by node id; no collection gives [].

    Args:
        collection: What is searched.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._asker = Asker(collection.name, _read, [NODE], collection.grain, collection.slack)

    @property
    def fuses(self) -> bool:
        """Whether the engine fuses by the formulas of ours."""
        return self._collection.version.fuses

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> Talk[list[Candidate]]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Candidate]]:
            return (yield from self._asker.rankings([self._nearest(embedding, wanted)]))[0]

        return self._collection.if_there(talk, empty=[])

    def keyword(self, text: str, wanted: Wanted) -> Talk[list[Candidate]]:
        """Nodes that share terms with a text, by BM25; each has a score above 0.

        Raises:
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Candidate]]:
            question = self._sharing(text, wanted)
            if question is None:
                return []
            return (yield from self._asker.rankings([question]))[0]

        return self._collection.if_there(talk, empty=[])

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> Talk[list[list[Candidate]]]:
        """Any number of them in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the collection.
            UnsupportedFilterError: The server is too old for a filter.
        """

        def talk() -> Talk[list[list[Candidate]]]:
            questions = [self._question(each, wanted) for each, wanted in asked]
            some = [each for each in questions if each is not None]
            found = iter((yield from self._asker.rankings(some)) if some else [])
            return [[] if each is None else next(found) for each in questions]

        return self._collection.if_there(talk, empty=[[] for _ in asked])

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> Talk[list[Candidate]]:
        """The best of both as the engine fuses them.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Candidate]]:
            candidates = replace(wanted, top_k=how.candidates)
            nearest = self._nearest(embedding, candidates)
            sharing = self._sharing(text, candidates)
            if sharing is None:
                (dense,) = yield from self._asker.rankings([nearest])
                return fused_here(dense, [], how, top_k=wanted.top_k)
            recipe = recipe_of(how)
            question = Question(
                _fusion(recipe),
                using=None,
                top_k=wanted.top_k,
                filter=None,  # each leg has it, before its candidates are counted
                params=None,
                score=lambda score: recipe.factor * score,
                legs=(nearest, sharing),
                spare=2,
            )
            return (yield from self._asker.rankings([question]))[0]

        return self._collection.if_there(talk, empty=[])

    def grouped(self, sought: Sought, wanted: Wanted, size: int) -> Talk[list[Candidate]]:
        """The best nodes of the best documents, best first.

        Args:
            sought: An embedding to be near to, or a text to share terms with.
            wanted: How many documents, and which nodes.
            size: How many nodes of a document.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Candidate]]:
            question = self._question(sought, wanted)
            return [] if question is None else (yield from self._asker.groups(question, size))

        return self._collection.if_there(talk, empty=[])

    def diverse(
        self, embedding: Sequence[float], wanted: Wanted, *, lambda_mult: float, candidates: int
    ) -> Talk[list[Candidate]]:
        """Near nodes that do not repeat each other, picked from the nearest by MMR.

        Args:
            embedding: What to be near to.
            wanted: How many, and which.
            lambda_mult: 1 is nearness alone, 0 is diversity alone.
            candidates: How many of the nearest to pick from.

        Returns:
            Nodes in the order picked, each with its similarity to the embedding, which need not
            fall from pick to pick.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Candidate]]:
            picks = models.NearestQuery(
                nearest=self._vector(embedding),
                mmr=models.Mmr(
                    diversity=1.0 - lambda_mult,
                    candidates_limit=min(candidates, _MOST_CANDIDATES),
                ),
            )
            filter_, params = self._filter(wanted.clause), self._params()
            question = Question(picks, DENSE, wanted.top_k, filter_, params, self._score)
            return (yield from self._asker.in_order(question))

        return self._collection.if_there(talk, empty=[])

    def _question(self, sought: Sought, wanted: Wanted) -> Question | None:
        if isinstance(sought, str):
            return self._sharing(sought, wanted)
        return self._nearest(sought, wanted)

    def _nearest(self, embedding: Sequence[float], wanted: Wanted) -> Question:
        filter_, params = self._filter(wanted.clause), self._params()
        vector = self._vector(embedding)
        return Question(vector, DENSE, wanted.top_k, filter_, params, self._score)

    def _sharing(self, text: str, wanted: Wanted) -> Question | None:
        terms = self._collection.manifest.tokenizer.query_terms(text)
        terms.pop(NO_TERM, None)
        if not terms:
            return None
        weights = models.SparseVector(
            indices=list(terms), values=[float(count) for count in terms.values()]
        )
        params = None
        if wanted.corpus is not None and self._collection.version.measures_rarity_in_scope:
            corpus = models.IdfCorpusParams(corpus=as_filter(wanted.corpus))
            params = models.SearchParams(idf=corpus)
        filter_ = self._filter(wanted.clause)
        return Question(weights, BM25, wanted.top_k, filter_, params, float, positive=True)

    def _filter(self, clause: Clause | None) -> models.Filter | None:
        if clause is None:
            return None
        self._collection.version.check(clause)
        return as_filter(clause)

    def _params(self) -> models.SearchParams | None:
        # Local mode compares every embedding, and warns of settings that have no effect.
        return None if self._collection.is_local else self._collection.params.search

    def _vector(self, embedding: Sequence[float]) -> list[float]:
        manifest = self._collection.manifest
        return query_vector(
            embedding,
            dimension=manifest.dimension or len(embedding),
            distance=manifest.distance,
            where=self._collection.where,
        )

    @property
    def _score(self) -> Score:
        return score_of(DISTANCES[self._collection.manifest.distance])


def _fusion(recipe: Recipe) -> Fusing:
    if recipe.rank_constant is not None:
        return models.RrfQuery(rrf=models.Rrf(k=recipe.rank_constant))
    if not recipe.lines:
        return models.FusionQuery(fusion=models.Fusion.DBSF)
    terms = [models.MultExpression(mult=[line.slope, name]) for name, line in recipe.lines.items()]
    sum_ = models.SumExpression(sum=[*terms, recipe.constant])
    return models.FormulaQuery(formula=sum_, defaults=recipe.defaults)


def _read(point: models.ScoredPoint, score: float) -> Candidate:
    text: str = (point.payload or {})[NODE]
    return Candidate.later(node_id_in(text), score, lambda: node_from_text(text))
