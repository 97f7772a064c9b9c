"""Searches of a collection of ours, for the LlamaIndex class and for the backend alike."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from qdrant_client import models

from llama_retrieval_ext.stores.backend import Found, Sought
from llama_retrieval_ext.stores.fused_here import fused_here
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.nodes.stored_node import node_from_text, node_id_in
from llama_retrieval_ext.stores.nodes.vectors import query_vector
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.fusing import Recipe, recipe_of
from llama_retrieval_ext.stores.points.payload import NODE
from llama_retrieval_ext.stores.points.terms import NO_TERM
from llama_retrieval_ext.stores.points.wanted import Wanted
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.layout import Score, score_of
from llama_retrieval_ext.stores.qdrant.manifest import BM25, DENSE, DISTANCES
from llama_retrieval_ext.stores.qdrant.questions import Asker, Fusing, Question
from llama_retrieval_ext.stores.qdrant.talk import Talk
from llama_retrieval_ext.stores.qdrant.written import as_filter

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

    def dense(self, embedding: Sequence[float], wanted: Wanted) -> Talk[list[Found]]:
        """Nearest nodes to an embedding.

        Raises:
            ConfigurationError: A value of it is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Found]]:
            return (yield from self._asker.rankings([self._nearest(embedding, wanted)]))[0]

        return self._collection.if_there(talk, empty=[])

    def keyword(self, text: str, wanted: Wanted) -> Talk[list[Found]]:
        """Nodes that share terms with a text, by BM25; each has a score above 0.

        Raises:
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Found]]:
            question = self._sharing(text, wanted)
            if question is None:
                return []
            return (yield from self._asker.rankings([question]))[0]

        return self._collection.if_there(talk, empty=[])

    def batch(self, asked: Sequence[tuple[Sought, Wanted]]) -> Talk[list[list[Found]]]:
        """Any number of them in one request.

        Args:
            asked: An embedding to be near to, or a text to share terms with; and how many nodes,
                and which.

        Raises:
            ConfigurationError: A value of an embedding is not finite.
            DimensionMismatchError: An embedding has another dimension than the collection.
            UnsupportedFilterError: The server is too old for a filter.
        """

        def talk() -> Talk[list[list[Found]]]:
            questions = [self._question(each, wanted) for each, wanted in asked]
            some = [each for each in questions if each is not None]
            found = iter((yield from self._asker.rankings(some)) if some else [])
            return [[] if each is None else next(found) for each in questions]

        return self._collection.if_there(talk, empty=[[] for _ in asked])

    def fused(
        self, embedding: Sequence[float], text: str, wanted: Wanted, how: FusedSearch
    ) -> Talk[list[Found]]:
        """The best of both as the engine fuses them.

        Raises:
            ConfigurationError: A value of the embedding is not finite.
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: The server is too old for the filter.
        """

        def talk() -> Talk[list[Found]]:
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

    def grouped(self, sought: Sought, wanted: Wanted, size: int) -> Talk[list[Found]]:
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

        def talk() -> Talk[list[Found]]:
            question = self._question(sought, wanted)
            return [] if question is None else (yield from self._asker.groups(question, size))

        return self._collection.if_there(talk, empty=[])

    def diverse(
        self, embedding: Sequence[float], wanted: Wanted, *, lambda_mult: float, candidates: int
    ) -> Talk[list[Found]]:
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

        def talk() -> Talk[list[Found]]:
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


def _read(point: models.ScoredPoint, score: float) -> Found:
    text: str = (point.payload or {})[NODE]
    return Found.later(node_id_in(text), score, lambda: node_from_text(text))
