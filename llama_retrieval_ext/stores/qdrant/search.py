"""Searches of Qdrant collections."""

from collections.abc import Sequence
from typing import ClassVar, Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.encoding.node_json import SECOND, rows_of
from llama_retrieval_ext.stores.encoding.vectors import SCORES
from llama_retrieval_ext.stores.engine.backend import KeywordQuery, VectorQuery
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.search import EngineRequest
from llama_retrieval_ext.stores.qdrant.client import MethodCall, QdrantConnection, Version
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.schema import BM25, DENSE, QdrantCollection
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, clause_of
from llama_retrieval_ext.stores.qdrant_common.points import NODE, point_id
from llama_retrieval_ext.stores.qdrant_common.search import (
    PointSearch,
    PointsSearch,
    Recipe,
    query_weights,
)

# The engine drops hits with lower scores; it computes in 32 bits.
_ABOVE_ZERO: Final = 1e-30

NativeFusionQuery: TypeAlias = models.RrfQuery | models.FusionQuery | models.FormulaQuery


def _request(search: PointSearch, payload: bool | list[str]) -> models.QueryRequest:  # noqa: FBT001 - the client's word for it
    """Return the request for the best points, with all or part of their payload."""
    return models.QueryRequest(
        prefetch=list(map(_prefetch, search.legs)) or None,
        query=search.query,
        using=search.using,
        filter=search.filter,
        params=search.params,
        limit=search.top_k,
        with_payload=payload,
    )


def _search_params(
    params: models.SearchParams | None, *, exact: bool
) -> models.SearchParams | None:
    if not exact:
        return params
    return (params or models.SearchParams()).model_copy(update={"exact": True})


def _prefetch(leg: PointSearch) -> models.Prefetch:
    return models.Prefetch(
        query=leg.query,
        using=leg.using,
        filter=leg.filter,
        params=leg.params,
        limit=leg.top_k,
        score_threshold=_ABOVE_ZERO if leg.positive else None,
    )


class QdrantSearch(PointsSearch[Clause, models.ScoredPoint]):
    """Searches of a collection created by this package or by LlamaIndex.

    Attributes:
        version: Version of the server.
    """

    version: Version

    def __init__(
        self,
        name: str,
        connection: QdrantConnection,
        payload: bool | list[str],  # noqa: FBT001 - the client's word for it
        collection: QdrantCollection | None = None,
    ) -> None:
        super().__init__(collection)
        self._name = name
        self._payload = payload
        self._is_local = connection.is_local
        # In local mode the last digits of matrix products depend on memory alignment.
        self._grain = 1e-6 if connection.is_local else 0.0

    def filter_of(self, clause: Clause | None) -> models.Filter | None:
        """Return the client's filter; raise if the server does not support it."""
        if clause is None:
            return None
        self.version.check(clause)
        return as_filter(clause)

    def corpus_params(self, corpus: Clause | None) -> models.SearchParams | None:
        """Return the params for IDF on a corpus, on all nodes for None; without deleted nodes."""
        if not self.version.measures_rarity or (corpus is None and self._is_local):
            return None  # local mode has no deleted nodes
        nodes = models.Filter() if corpus is None else as_filter(corpus)
        return models.SearchParams(idf=models.IdfCorpusParams(corpus=nodes))

    def fusion(self, recipe: Recipe) -> NativeFusionQuery:
        """Return the client's query for a fusion."""
        if recipe.rank_constant is not None:
            return models.RrfQuery(rrf=models.Rrf(k=recipe.rank_constant))
        if not recipe.lines:
            return models.FusionQuery(fusion=models.Fusion.DBSF)
        terms = [
            models.MultExpression(mult=[line.slope, name]) for name, line in recipe.lines.items()
        ]
        sum_ = models.SumExpression(sum=[*terms, recipe.constant])
        return models.FormulaQuery(formula=sum_, defaults=recipe.defaults)

    def pages(
        self, searches: Sequence[PointSearch], *, with_nodes: bool
    ) -> Steps[list[list[models.ScoredPoint]]]:
        """Send searches in one request."""
        payload = self._payload if with_nodes else False
        requests = [_request(search, payload) for search in searches]
        pages = yield MethodCall(
            "query_batch_points", {"collection_name": self._name, "requests": requests}
        )
        return [page.points for page in pages]

    def scores(self, search: PointSearch, hits: Sequence[models.ScoredPoint]) -> list[float]:
        """Return scores, with equal values for scores that differ only by noise."""
        scores = super().scores(search, hits)
        # Fused scores may be near 0 and close together without being equal.
        return levelled(scores, grain=self._grain) if self._grain and not search.legs else scores


def levelled(scores: Sequence[float], *, grain: float) -> list[float]:
    """Return descending scores, with equal values for scores within the grain.

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
    """Searches of a collection created by this package."""

    has_mmr: ClassVar[bool] = True
    _collection: QdrantCollection

    def __init__(self, collection: QdrantCollection) -> None:
        super().__init__(collection.name, collection.connection, [NODE], collection)
        self.version = collection.version

    def compile(self, condition: Condition) -> Clause:
        """Return the engine's filter for a condition."""
        return clause_of(condition)

    def vector_search(self, query: VectorQuery, request: EngineRequest[Clause]) -> PointSearch:
        """Return the search for the nearest points."""
        config, collection = self._collection.config, self._collection
        vector = config.checked(query.embedding, collection.where)
        return PointSearch(
            query=vector,
            using=DENSE,
            top_k=request.top_k,
            score=SCORES[config.distance],
            filter=self.filter_of(request.filter),
            # Local mode compares every embedding and warns about search params.
            params=None
            if collection.connection.is_local
            else _search_params(collection.params.search, exact=query.search.exact),
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

    def embeddings(self, node_ids: Sequence[str]) -> Steps[dict[str, list[float]]]:
        """Return the stored embeddings of existing nodes by id."""
        by_point = {str(point_id(row)): row.removesuffix(SECOND) for row in rows_of(node_ids)}
        records: list[models.Record] = yield self._collection.request(
            "retrieve", ids=list(by_point), with_payload=False, with_vectors=[DENSE]
        )
        return {by_point[str(record.id)]: record.vector[DENSE] for record in records}  # type: ignore[call-overload,index,misc]  # as asked for
