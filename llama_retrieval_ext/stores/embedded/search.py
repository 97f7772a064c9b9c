"""Searches of a store, for the LlamaIndex class and for the backend alike."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from qdrant_edge import (
    EdgeShard,
    Expression,
    Formula,
    Fusion,
    IdfParams,
    Query,
    SearchParams,
    SparseVector,
)

from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.stores.backend import Found, Sought
from llama_retrieval_ext.stores.embedded.conditions import EVERYTHING, filter_of
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.questions import Fusing, Question, answers
from llama_retrieval_ext.stores.embedded.reading import stored_vectors
from llama_retrieval_ext.stores.embedded.shard import BM25, DENSE
from llama_retrieval_ext.stores.fused_here import fused_here
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.nodes.vectors import query_vector
from llama_retrieval_ext.stores.points.fusing import Recipe, recipe_of
from llama_retrieval_ext.stores.points.terms import NO_TERM
from llama_retrieval_ext.stores.points.wanted import Wanted


class Searcher:
    """Asks the engine. Rankings come best first, equal scores by node id; an empty store gives [].

    Args:
        directory: The open store.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> list[Found]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """
        return self._directory.read(
            lambda shard: answers(shard, [self._nearest(embedding, wanted)])[0], empty=[]
        )

    def keyword(self, text: str, wanted: Wanted) -> list[Found]:
        """Nodes that share terms with a text, by BM25; each has a score above 0."""
        question = self._sharing(text, wanted)
        if question is None:
            return []
        return self._directory.read(lambda shard: answers(shard, [question])[0], empty=[])

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> list[list[Found]]:
        """Any number of them in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the store.
        """

        def ask(shard: EdgeShard) -> list[list[Found]]:
            questions = [self._question(each, wanted) for each, wanted in asked]
            found = iter(answers(shard, [each for each in questions if each is not None]))
            return [[] if each is None else next(found) for each in questions]

        return self._directory.read(ask, empty=[[] for _ in asked])

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> list[Found]:
        """The best of both as the engine fuses them.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the store.
        """
        candidates = replace(wanted, top_k=how.candidates)
        sharing = self._sharing(text, candidates)
        if sharing is None:
            return fused_here(self.dense(embedding, candidates), [], how, top_k=wanted.top_k)

        def ask(shard: EdgeShard) -> list[Found]:
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
    ) -> list[Found]:
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

        def ask(shard: EdgeShard) -> list[Found]:
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
