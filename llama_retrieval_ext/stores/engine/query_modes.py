"""Compilation of LlamaIndex's query modes to engine searches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_retrieval_ext.checks import check_count, is_number
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, parse_filters
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.query import DOCUMENT_FIELD, START_FIELD, check_top_k
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    KeywordQuery,
    Search,
    VectorQuery,
    fuse_candidates,
)
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.search import EngineRequest, EngineSearch

F = TypeVar("F")

_EQUALITY: Final = (FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN)
# Fields of a node beside its metadata, which the filters of a selection may name.
_FIELDS: Final = {DOCUMENT_FIELD: _EQUALITY, START_FIELD: (*_EQUALITY, *ORDER_OPERATORS)}
KEYWORD_MODES: Final = {VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}


@dataclass(frozen=True, slots=True)
class Target:
    """A selection of nodes that satisfy all its parts.

    Attributes:
        node_ids: Ids of the nodes; None for any, an empty list for no node.
        doc_ids: Ids of their documents; None for any.
        filters: Conditions on their metadata; None for any.
        rows: Ids of their rows, see `row_id`; None for any.
    """

    node_ids: Sequence[str] | None = None
    doc_ids: Sequence[str] | None = None
    filters: MetadataFilters | None = None
    rows: Sequence[str] | None = None

    @property
    def condition(self) -> Condition | None:
        """The parsed filters; None without filters."""
        return None if self.filters is None else parse_filters(self.filters, fields=_FIELDS)


# LlamaIndex passes them as ``vector_store_kwargs``.
Options: TypeAlias = Mapping[str, float | None]

MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"})
# The defaults of LlamaIndex's integrations.
_THRESHOLD: Final = 0.5
_PREFETCH_FACTOR: Final = 4.0
# More than any engine considers.
_MOST_CANDIDATES: Final = 2**31 - 1


def _threshold(query: VectorStoreQuery, options: Options) -> float:
    inside, beside = query.mmr_threshold, options.get("mmr_threshold")
    if inside is not None and beside is not None and inside != beside:
        raise ConfigurationError(
            f"the query has mmr_threshold={inside} and the options have mmr_threshold={beside}; "
            "leave one out"
        )
    threshold = inside if beside is None else beside
    if threshold is None:
        return _THRESHOLD
    if not is_number(threshold) or not 0.0 <= threshold <= 1.0:
        raise ConfigurationError(
            "mmr_threshold must be between 0 (diversity alone) and 1 (relevance alone), "
            f"got {threshold!r}"
        )
    return threshold


def _candidates(options: Options, *, top_k: int) -> int:
    count, factor = options.get("mmr_prefetch_k"), options.get("mmr_prefetch_factor")
    if count is not None and factor is not None:
        raise ConfigurationError(
            f"mmr_prefetch_k={count} and mmr_prefetch_factor={factor} both say how many candidates "
            "to pick from, got both; leave one out"
        )
    if count is not None:
        return check_count(count, "mmr_prefetch_k", least=top_k)  # type: ignore[arg-type]  # checked
    factor = _PREFETCH_FACTOR if factor is None else factor
    if not is_number(factor) or factor < 1:
        raise ConfigurationError(f"mmr_prefetch_factor must be a number from 1, got {factor!r}")
    return int(min(top_k * factor, _MOST_CANDIDATES))


@dataclass(frozen=True, slots=True)
class QueryModes:
    """The modes DEFAULT, SPARSE, TEXT_SEARCH, HYBRID and, if supported, MMR of an engine."""

    title: str
    searcher: EngineSearch[Any, Any, Any]
    compile_target: Callable[[Target], Any]

    def steps(
        self, query: VectorStoreQuery, options: Options
    ) -> Callable[[], Steps[list[Candidate]]]:
        """Check a query and return its steps; the result is best first, or in MMR order."""
        check_options(query, options)
        # LlamaIndex's retriever always passes node_ids=[], which means no restriction. It passes
        # doc_ids=[] only if its caller does, which means no document.
        filter_ = self.compile_target(Target(query.node_ids or None, query.doc_ids, query.filters))
        if query.mode == VectorStoreQueryMode.DEFAULT:
            vector = _vector_request(query, filter_)
            return lambda: self._ranking(vector)
        if query.mode in KEYWORD_MODES:
            keyword = _keyword_request(query, filter_)
            return lambda: self._ranking(keyword)
        if query.mode == VectorStoreQueryMode.HYBRID:
            return self._hybrid(query, filter_)
        if query.mode == VectorStoreQueryMode.MMR and self.searcher.has_mmr:
            return self._diverse(query, options, filter_)
        raise self._unsupported(query)

    def _ranking(self, request: EngineRequest[Any]) -> Steps[list[Candidate]]:
        (ranking,) = yield from self.searcher.search([request])
        return ranking

    def _hybrid(
        self, query: VectorStoreQuery, filter_: object
    ) -> Callable[[], Steps[list[Candidate]]]:
        requests = [_vector_request(query, filter_), _keyword_request(query, filter_)]
        most = first_count(query.hybrid_top_k, requests[0].top_k)
        fusion = fusion_for(query.alpha)

        def steps() -> Steps[list[Candidate]]:
            vector, keyword = yield from self.searcher.search(requests)
            return fuse_candidates(vector, keyword, fusion, top_k=most)

        return steps

    def _diverse(
        self, query: VectorStoreQuery, options: Options, filter_: object
    ) -> Callable[[], Steps[list[Candidate]]]:
        vector = _vector_request(query, filter_)
        threshold, candidates = _threshold(query, options), _candidates(options, top_k=vector.top_k)
        return lambda: self.searcher.diverse(vector, lambda_mult=threshold, candidates=candidates)

    def _unsupported(self, query: VectorStoreQuery) -> UnsupportedModeError:
        served = (
            ", HYBRID and MMR"
            if self.searcher.has_mmr
            else " and HYBRID here; for MMR put the stage MMR() after a VectorRetriever"
        )
        return UnsupportedModeError(
            f"{self.title} has no mode {query.mode!r}; it serves DEFAULT, SPARSE, TEXT_SEARCH"
            f"{served}"
        )


def _vector_request(query: VectorStoreQuery, filter_: F | None) -> EngineRequest[F]:
    search = Search(check_top_k(query.similarity_top_k))
    return EngineRequest(VectorQuery(tuple(embedding_of(query)), search), filter_)


def _keyword_request(query: VectorStoreQuery, filter_: F | None) -> EngineRequest[F]:
    top_k = first_count(query.sparse_top_k, check_top_k(query.similarity_top_k))
    return EngineRequest(KeywordQuery(text_of(query), Search(top_k)), filter_)


def first_count(count: int | None, top_k: int) -> int:
    """Return a checked count of a query, or `top_k` if it is None."""
    return top_k if count is None else check_top_k(count)


def embedding_of(query: VectorStoreQuery) -> list[float]:
    """Return the query's embedding, or raise."""
    if query.query_embedding is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_embedding")
    return query.query_embedding


def text_of(query: VectorStoreQuery) -> str:
    """Return the query's text, or raise."""
    if query.query_str is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_str")
    return query.query_str


def fusion_for(alpha: float | None) -> Fusion:
    """Return a weighted sum for ``alpha``, or reciprocal rank fusion for None."""
    if alpha is None:
        return RRF()
    if not 0.0 <= alpha <= 1.0:
        raise ConfigurationError(
            f"alpha must be between 0 (keywords alone) and 1 (vectors alone), got {alpha}; for "
            "reciprocal rank fusion leave it out"
        )
    return WeightedSum(weights=(alpha, 1.0 - alpha))


def check_options(query: VectorStoreQuery, options: Options) -> None:
    """Raise if a query has options that its mode does not support."""
    known = MMR_OPTIONS if query.mode == VectorStoreQueryMode.MMR else frozenset[str]()
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigurationError(f"mode {query.mode!s} has no options {', '.join(unknown)}")
    if query.mmr_threshold is not None and not known:
        raise ConfigurationError(
            f"mode {query.mode!s} has no mmr_threshold; leave it out, or use mode MMR"
        )
    for name in ("output_fields", "embedding_field"):
        if getattr(query, name) is not None:
            raise ConfigurationError(
                f"this store has no {name}: it returns whole nodes and has one embedding "
                f"a node; leave {name} out"
            )
