"""Searches of Qdrant collections."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias, TypeVar

from qdrant_client import models

from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.encoding.vectors import SCORES, query_vector
from llama_retrieval_ext.stores.engine.backend import Candidate, KeywordQuery, VectorQuery
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.search import (
    EngineRequest,
    EngineSearch,
    NativeSearch,
)
from llama_retrieval_ext.stores.qdrant.client import Connection, Request
from llama_retrieval_ext.stores.qdrant.collection import QdrantCollection, Version
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.schema import BM25, DENSE
from llama_retrieval_ext.stores.qdrant_common.config import Recipe, recipe_of
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, clause_of
from llama_retrieval_ext.stores.qdrant_common.points import NODE, query_weights

T = TypeVar("T")
# The engine leaves out what scores below; it computes in 32 bits.
_ABOVE_ZERO: Final = 1e-30
# The engine's own limit.
_MOST_CANDIDATES: Final = 16_384

Vector: TypeAlias = list[float] | models.SparseVector | models.NearestQuery
NativeFusionQuery: TypeAlias = models.RrfQuery | models.FusionQuery | models.FormulaQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSearch(NativeSearch):
    """One search of a collection.

    Attributes:
        query: A vector, or a fusion of legs.
        using: Name of the vectors to search; None for those without a name.
        filter: What each point must match; None for everything.
        params: How to search; None for the engine's default.
        legs: What a fusion fuses, each with its own filter.
    """

    query: Vector | NativeFusionQuery
    using: str | None = None
    filter: models.Filter | None = None
    params: models.SearchParams | None = None
    legs: tuple["PointSearch", ...] = ()

    def request(self, limit: int, payload: bool | list[str]) -> models.QueryRequest:  # noqa: FBT001 - the client's word for it
        """Return the request for the best ``limit`` points, with all or some of their payload."""
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
        """Return this search as a leg of a fusion."""
        return models.Prefetch(
            query=self.query,
            using=self.using,
            filter=self.filter,
            params=self.params,
            limit=self.top_k,
            score_threshold=_ABOVE_ZERO if self.positive else None,
        )


class QdrantSearch(EngineSearch[Clause, PointSearch, models.ScoredPoint]):
    """Searches of one collection, of this package or of LlamaIndex.

    Args:
        name: The collection.
        connection: The clients.
        payload: The payload that nodes are made of: all, or fields by name.
    """

    def __init__(self, name: str, connection: Connection, payload: bool | list[str]) -> None:  # noqa: FBT001 - the client's word for it
        super().__init__()
        self._name = name
        self._payload = payload
        # In local mode a request costs the same whatever its limit, and keyword scores often tie.
        self._slack = 50 if connection.is_local else 0
        # Local mode multiplies matrices, whose last digits depend on where in memory they lie.
        self._grain = 1e-6 if connection.is_local else 0.0

    @property
    @abstractmethod
    def version(self) -> Version:
        """The server's version."""

    def filter_of(self, clause: Clause | None) -> models.Filter | None:
        """Return the client's filter, or raise if the server is too old for it."""
        if clause is None:
            return None
        self.version.check(clause)
        return as_filter(clause)

    def corpus_params(self, corpus: Clause | None) -> models.SearchParams | None:
        """Return the params that measure the rarity of terms on a corpus."""
        if corpus is None or not self.version.measures_rarity_in_scope:
            return None
        idf = models.IdfCorpusParams(corpus=as_filter(corpus))
        return models.SearchParams(idf=idf)

    def pages(
        self, searches: Sequence[PointSearch], limits: Sequence[int], *, with_nodes: bool
    ) -> Steps[list[list[models.ScoredPoint]]]:
        """Send searches in one request."""
        payload = self._payload if with_nodes else False
        requests = [
            search.request(limit, payload) for search, limit in zip(searches, limits, strict=True)
        ]
        pages = yield Request(
            "query_batch_points", {"collection_name": self._name, "requests": requests}
        )
        return [page.points for page in pages]

    def raw_scores(self, hits: Sequence[models.ScoredPoint]) -> list[float]:
        """Return the engine's scores."""
        return [hit.score for hit in hits]

    def first_limit(self, search: PointSearch) -> int:
        """How many points to request at first."""
        return search.top_k + search.spare + (self._slack if search.positive else 0)

    def scores(self, search: PointSearch, hits: Sequence[models.ScoredPoint]) -> list[float]:
        """Return scores, those that differ by noise made equal."""
        scores = super().scores(search, hits)
        # Fused scores may all be near to 0, and close together without being equal.
        return levelled(scores, grain=self._grain) if self._grain and not search.legs else scores


def levelled(scores: Sequence[float], *, grain: float) -> list[float]:
    """Return falling scores, those closer than the grain made equal.

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


class CollectionSearch(QdrantSearch):
    """Searches of a collection of this package.

    Args:
        collection: The collection.
    """

    has_mmr: ClassVar[bool] = True

    def __init__(self, collection: QdrantCollection) -> None:
        super().__init__(collection.name, collection.connection, [NODE])
        self._collection = collection

    @property
    def version(self) -> Version:
        """The server's version."""
        return self._collection.version

    def compile(self, condition: Condition) -> Clause:
        """Return the clause of a condition."""
        return clause_of(condition)

    def vector_search(self, query: VectorQuery, request: EngineRequest[Clause]) -> PointSearch:
        """Return the search for the nearest points."""
        config, collection = self._collection.config, self._collection
        vector = query_vector(
            query.embedding,
            dimension=config.dimension or len(query.embedding),
            distance=config.distance,
            where=collection.where,
        )
        return PointSearch(
            query=vector,
            using=DENSE,
            top_k=request.top_k,
            score=SCORES[config.distance],
            filter=self.filter_of(request.filter),
            # Local mode compares every embedding, and warns of settings that have no effect.
            params=None if collection.connection.is_local else collection.params.search,
        )

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Clause]
    ) -> PointSearch | None:
        """Return the search for shared terms; None without terms."""
        weights = query_weights(query.text, self._collection.config.tokenizer)
        if weights is None:
            return None
        ids, counts = weights
        return PointSearch(
            query=models.SparseVector(indices=ids, values=counts),
            using=BM25,
            top_k=request.top_k,
            score=float,
            positive=True,
            filter=self.filter_of(request.filter),
            params=self.corpus_params(request.corpus),
        )

    def fused_search(
        self, near: PointSearch, sharing: PointSearch, how: FusedSearch, *, top_k: int
    ) -> PointSearch:
        """Return the engine's fusion; each leg has its filter, before its candidates count."""
        recipe = recipe_of(how)
        return PointSearch(
            query=_fusion(recipe),
            top_k=top_k,
            score=lambda score: recipe.factor * score,
            spare=2,
            legs=(near, sharing),
        )

    def candidate(self, hit: models.ScoredPoint, score: float) -> Candidate:
        """Return the candidate of a point."""
        return Candidate.stored((hit.payload or {})[NODE], score)

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps; return `empty` if the collection does not exist."""
        return self._collection.if_exists(steps, empty=empty)

    def diverse(
        self, request: EngineRequest[Clause], *, lambda_mult: float, candidates: int
    ) -> Steps[list[Candidate]]:
        """Pick by the engine's MMR."""

        def steps() -> Steps[list[Candidate]]:
            search = yield from self.native(request)
            if search is None or not isinstance(search.query, list):
                return []
            mmr = models.Mmr(
                diversity=1.0 - lambda_mult, candidates_limit=min(candidates, _MOST_CANDIDATES)
            )
            picks = replace(search, query=models.NearestQuery(nearest=search.query, mmr=mmr))
            (points,) = yield from self.pages([picks], [request.top_k], with_nodes=True)
            return [self.candidate(point, search.score(point.score)) for point in points]

        nothing: list[Candidate] = []
        return self.if_exists(steps, empty=nothing)


def _fusion(recipe: Recipe) -> NativeFusionQuery:
    if recipe.rank_constant is not None:
        return models.RrfQuery(rrf=models.Rrf(k=recipe.rank_constant))
    if not recipe.lines:
        return models.FusionQuery(fusion=models.Fusion.DBSF)
    terms = [models.MultExpression(mult=[line.slope, name]) for name, line in recipe.lines.items()]
    sum_ = models.SumExpression(sum=[*terms, recipe.constant])
    return models.FormulaQuery(formula=sum_, defaults=recipe.defaults)
