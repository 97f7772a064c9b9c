"""Compilation of LlamaIndex's query modes to engine searches."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.stores.engine.backend import Candidate, Search, fuse_candidates
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.text.normalization import valid_text

_KEYWORD_MODES: Final = {VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}


# LlamaIndex passes them as ``vector_store_kwargs``.
Options: TypeAlias = Mapping[str, float | None]

MMR_OPTIONS: Final = frozenset({"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"})
# The defaults of LlamaIndex's integrations.
_THRESHOLD: Final = 0.5
_PREFETCH_FACTOR: Final = 4.0
# More than any engine considers.
_MOST_CANDIDATES: Final = 2**31 - 1


def query_call(
    backend: EngineBackend[Any, Any], query: VectorStoreQuery, options: Options, filter_: object
) -> Call[list[Candidate]]:
    """Return the call for a query in mode DEFAULT, SPARSE, TEXT_SEARCH, HYBRID or MMR.

    Args:
        backend: The searches.
        query: The query.
        options: Options of the mode MMR.
        filter_: The engine's filter for the nodes that the query may find; None for no filter.
    """
    _check_options(query, options)
    top_k = check_count(query.similarity_top_k, "top_k")
    nearest = Search(top_k, filter=filter_)
    most_words, most = (
        top_k if count is None else check_count(count, "top_k")
        for count in (query.sparse_top_k, query.hybrid_top_k)
    )
    words = Search(most_words, filter=filter_)
    if query.mode == VectorStoreQueryMode.DEFAULT:
        return backend.dense(_embedding_of(query), nearest)
    if query.mode in _KEYWORD_MODES:
        return backend.keyword(_text_of(query), words)
    if query.mode == VectorStoreQueryMode.MMR and backend.has_mmr:
        return _diverse_call(backend, query, options, nearest)
    if query.mode != VectorStoreQueryMode.HYBRID:
        more = (
            ", HYBRID and MMR"
            if backend.has_mmr
            else " and HYBRID here; for MMR put the stage MMR() after a VectorRetriever"
        )
        raise UnsupportedModeError(
            f"{type(backend).__name__} has no mode {query.mode!r}; it serves DEFAULT, SPARSE, "
            f"TEXT_SEARCH{more}"
        )
    embedding, text, fusion = _embedding_of(query), _text_of(query), _fusion_for(query.alpha)

    def steps() -> Steps[list[Candidate]]:
        legs = backend.vector_search(embedding, nearest), backend.keyword_search(text, words)
        vector, keyword = yield from backend.rankings(legs)
        return fuse_candidates(vector, keyword, fusion, top_k=most)

    return backend.call(steps, empty=[])


def _diverse_call(
    backend: EngineBackend[Any, Any], query: VectorStoreQuery, options: Options, nearest: Search
) -> Call[list[Candidate]]:
    inside, beside = query.mmr_threshold, options.get("mmr_threshold")
    if inside is not None and beside is not None and inside != beside:
        raise ConfigurationError(
            f"the query has mmr_threshold={inside} and the options have mmr_threshold={beside}; "
            "leave one out"
        )
    threshold = next((value for value in (beside, inside) if value is not None), _THRESHOLD)
    if not is_number(threshold) or not 0.0 <= threshold <= 1.0:
        raise ConfigurationError(
            "mmr_threshold must be between 0 (diversity alone) and 1 (relevance alone), "
            f"got {threshold!r}"
        )
    count, factor = options.get("mmr_prefetch_k"), options.get("mmr_prefetch_factor")
    if count is not None and factor is not None:
        raise ConfigurationError(
            f"mmr_prefetch_k={count} and mmr_prefetch_factor={factor} both say how many candidates "
            "to pick from, got both; leave one out"
        )
    factor = _PREFETCH_FACTOR if factor is None else factor
    if not is_number(factor) or factor < 1:
        raise ConfigurationError(f"mmr_prefetch_factor must be a number from 1, got {factor!r}")
    candidates = int(min(nearest.top_k * factor, _MOST_CANDIDATES))
    if count is not None:
        candidates = check_count(count, "mmr_prefetch_k", least=nearest.top_k)  # type: ignore[arg-type]  # checked
    return backend.diverse(
        _embedding_of(query), nearest, lambda_mult=threshold, candidates=candidates
    )


def _embedding_of(query: VectorStoreQuery) -> list[float]:
    if query.query_embedding is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_embedding")
    return query.query_embedding


def _text_of(query: VectorStoreQuery) -> str:
    if query.query_str is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_str")
    return valid_text(query.query_str)


def _fusion_for(alpha: float | None) -> Fusion:
    if alpha is None:
        return RRF()
    if not 0.0 <= alpha <= 1.0:
        raise ConfigurationError(
            f"alpha must be between 0 (keywords alone) and 1 (vectors alone), got {alpha}; for "
            "reciprocal rank fusion leave it out"
        )
    return WeightedSum(weights=(alpha, 1.0 - alpha))


def _check_options(query: VectorStoreQuery, options: Options) -> None:
    allowed = MMR_OPTIONS if query.mode == VectorStoreQueryMode.MMR else frozenset[str]()
    unknown = sorted(set(options) - allowed)
    if unknown:
        raise ConfigurationError(f"mode {query.mode!s} has no options {', '.join(unknown)}")
    if query.mmr_threshold is not None and not allowed:
        raise ConfigurationError(
            f"mode {query.mode!s} has no mmr_threshold; leave it out, or use mode MMR"
        )
    for name in ("output_fields", "embedding_field"):
        if getattr(query, name) is not None:
            raise ConfigurationError(
                f"this store has no {name}: it returns whole nodes and has one embedding "
                f"a node; leave {name} out"
            )
