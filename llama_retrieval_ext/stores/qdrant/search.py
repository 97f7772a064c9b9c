"""Searches of Qdrant collections."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, TypeAlias

from qdrant_client import models

from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.qdrant.client import MethodCall, QdrantConnection
from llama_retrieval_ext.stores.qdrant_common.points import NODE
from llama_retrieval_ext.stores.qdrant_common.search import PointSearch, PointsSearch, Recipe

# The engine drops hits with lower scores; it computes in 32 bits.
_ABOVE_ZERO: Final = 1e-30
# Of scores in local mode.
_GRAIN: Final = 1e-6

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


def _prefetch(leg: PointSearch) -> models.Prefetch:
    return models.Prefetch(
        query=leg.query,
        using=leg.using,
        filter=leg.filter,
        params=leg.params,
        limit=leg.top_k,
        score_threshold=_ABOVE_ZERO if leg.positive else None,
    )


class QdrantSearch(PointsSearch[models.ScoredPoint]):
    """Searches of a collection created by this package or by LlamaIndex.

    Attributes:
        payload: The part of the payload that holds a node; True for all of it.
    """

    engine: ClassVar[str] = "qdrant"
    payload: ClassVar[bool | list[str]] = [NODE]

    @property
    @abstractmethod
    def connection(self) -> QdrantConnection:
        """The connection to the server."""

    @property
    @abstractmethod
    def collection_name(self) -> str:
        """Name of the collection."""

    def corpus_params(self, corpus: models.Filter | None) -> models.SearchParams | None:
        """Return the params for IDF on a corpus, on all nodes for None; without deleted nodes."""
        connection = self.connection
        if not connection.version.measures_rarity or (corpus is None and connection.is_local):
            return None  # local mode has no deleted nodes
        return models.SearchParams(idf=models.IdfCorpusParams(corpus=corpus or models.Filter()))

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
        payload = self.payload if with_nodes else False
        requests = [_request(search, payload) for search in searches]
        pages = yield MethodCall(
            "query_batch_points", {"collection_name": self.collection_name, "requests": requests}
        )
        return [page.points for page in pages]

    def scores(self, search: PointSearch, hits: Sequence[models.ScoredPoint]) -> list[float]:
        """Return scores, with equal values for scores that differ only by noise."""
        scores = super().scores(search, hits)
        # In local mode the last digits of matrix products depend on memory alignment. Fused scores
        # may be near 0 and close together without being equal.
        is_noisy = self.connection.is_local and not search.legs
        return levelled(scores, grain=_GRAIN) if is_noisy else scores


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
