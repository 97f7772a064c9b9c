"""Searches of a store, for the LlamaIndex class and for the backend alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from qdrant_edge import (
    EdgeShard,
    Expression,
    Filter,
    Formula,
    Fusion,
    IdfParams,
    Prefetch,
    Query,
    QueryBatchRequest,
    QueryRequest,
    ScoredPoint,
    SearchParams,
    SparseVector,
)

from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.filters import EVERYTHING, filter_of
from llama_retrieval_ext.stores.embedded.nodes import stored_vectors
from llama_retrieval_ext.stores.embedded.shard import BM25, DENSE
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_id_in
from llama_retrieval_ext.stores.encoding.vectors import Distance, query_vector
from llama_retrieval_ext.stores.engine.backend import Candidate, Sought, fused_here
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.qdrant_common.config import Recipe, recipe_of
from llama_retrieval_ext.stores.qdrant_common.filters import Wanted
from llama_retrieval_ext.stores.qdrant_common.points import NO_TERM, NODE

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


def answers(shard: EdgeShard, questions: Sequence[Question]) -> list[list[Candidate]]:
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


def found(point: ScoredPoint, score: Callable[[float], float]) -> Candidate:
    """The node of a point, with its score."""
    text: str = (point.payload or {})[NODE]
    return Candidate.later(node_id_in(text), score(point.score), lambda: node_from_text(text))


def _ranking(
    shard: EdgeShard, question: Question, points: list[ScoredPoint], *, most: int
) -> list[Candidate]:
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


class Searcher:
    """Asks the engine. Rankings come best first, equal scores by node id; an empty store gives [].

    Args:
        directory: The open store.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> list[Candidate]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """
        return self._directory.read(
            lambda shard: answers(shard, [self._nearest(embedding, wanted)])[0], empty=[]
        )

    def keyword(self, text: str, wanted: Wanted) -> list[Candidate]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        question = self._sharing(text, wanted)
        if question is None:
            return []
        return self._directory.read(lambda shard: answers(shard, [question])[0], empty=[])

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> list[list[Candidate]]:
        """Any number of them in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the store.
        """

        def ask(shard: EdgeShard) -> list[list[Candidate]]:
            questions = [self._question(each, wanted) for each, wanted in asked]
            found = iter(answers(shard, [each for each in questions if each is not None]))
            return [[] if each is None else next(found) for each in questions]

        return self._directory.read(ask, empty=[[] for _ in asked])

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> list[Candidate]:
        """The best of both as the engine fuses them.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """
        candidates = replace(wanted, top_k=how.candidates)
        sharing = self._sharing(text, candidates)
        if sharing is None:
            return fused_here(self.dense(embedding, candidates), [], how, top_k=wanted.top_k)

        def ask(shard: EdgeShard) -> list[Candidate]:
            recipe = recipe_of(how)
            question = Question(
                _fusion(recipe),
                wanted.top_k,
                filter=None,  # each leg has it, before its candidates are counted
                params=None,
                score=lambda score: recipe.factor * score,
                legs=(self._nearest(embedding, candidates), sharing),
                spare=2,
            )
            return answers(shard, [question])[0]

        return self._directory.read(ask, empty=[])

    def diverse(
        self, embedding: Sequence[float], wanted: Wanted, *, lambda_mult: float, candidates: int
    ) -> list[Candidate]:
        """Near nodes that do not repeat each other, picked from the nearest by MMR.

        Args:
            embedding: What to be near to.
            wanted: How many, and which.
            lambda_mult: 1 is nearness alone, 0 is diversity alone.
            candidates: How many of the nearest to pick from.

        Returns:
            Nodes in the order picked, each with its similarity to the embedding, which need not
            fall from pick to pick. Of candidates with the same marginal relevance the more similar
            comes first, then the lower node id.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """

        def ask(shard: EdgeShard) -> list[Candidate]:
            # The engine's own MMR breaks ties by where its points lie.
            nearest = self._nearest(embedding, replace(wanted, top_k=candidates))
            (ranking,) = answers(shard, [nearest])
            vectors = stored_vectors(shard, [each.node_id for each in ranking])
            ranking = [each for each in ranking if each.node_id in vectors]
            picks = maximal_marginal_relevance(
                [each.score for each in ranking],
                [vectors[each.node_id] for each in ranking],
                top_k=wanted.top_k,
                lambda_mult=lambda_mult,
            )
            return [ranking[place] for place, _ in picks]

        return self._directory.read(ask, empty=[])

    def _question(self, sought: Sought, wanted: Wanted) -> Question | None:
        if isinstance(sought, str):
            return self._sharing(sought, wanted)
        return self._nearest(sought, wanted)

    def _nearest(self, embedding: Sequence[float], wanted: Wanted) -> Question:
        query = Query.Nearest(self._vector(embedding), using=DENSE)
        return Question(query, wanted.top_k, filter_of(wanted.clause), None, self._score)

    def _sharing(self, text: str, wanted: Wanted) -> Question | None:
        terms = self._directory.manifest.tokenizer.query_terms(text)
        terms.pop(NO_TERM, None)
        if not terms:
            return None
        weights = SparseVector(list(terms), [float(count) for count in terms.values()])
        corpus = filter_of(wanted.corpus) or (EVERYTHING if self._directory.inexact else None)
        params = None if corpus is None else SearchParams(idf=IdfParams(corpus=corpus))
        query = Query.Nearest(weights, using=BM25)
        # Keyword scores often tie, and to ask again costs more than a few hits more.
        spare = 1 + wanted.top_k // 10
        return Question(
            query, wanted.top_k, filter_of(wanted.clause), params, score=float, spare=spare
        )

    def _vector(self, embedding: Sequence[float]) -> list[float]:
        manifest = self._directory.manifest
        return query_vector(
            embedding,
            dimension=manifest.dimension or len(embedding),
            distance=manifest.distance,
            where=self._directory.path,
        )

    @property
    def _score(self) -> Callable[[float], float]:
        return _SCORES[self._directory.manifest.distance]


def _fusion(recipe: Recipe) -> Fusing:
    if recipe.rank_constant is not None:
        return Fusion.Rrf(k=recipe.rank_constant)  # type: ignore[return-value]  # it is one
    if not recipe.lines:
        return Fusion.Dbsf()  # type: ignore[return-value]  # it is one
    terms = [
        Expression.Mult([Expression.Constant(line.slope), Expression.Variable(name)])
        for name, line in recipe.lines.items()
    ]
    constant = Expression.Constant(recipe.constant)
    return Formula(Expression.Sum([*terms, constant]), defaults=recipe.defaults)


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, score))  # single precision oversteps by some 1e-7


def _negative(distance: float) -> float:
    return -distance


_SCORES: dict[Distance, Callable[[float], float]] = {
    "cosine": _cosine,
    "dot": float,
    "euclid": _negative,
}
