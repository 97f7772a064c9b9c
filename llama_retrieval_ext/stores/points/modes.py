"""LlamaIndex's query modes, each as what it asks of the engine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.query import check_top_k
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.hybrid import fused
from llama_retrieval_ext.stores.points.targets import target
from llama_retrieval_ext.stores.points.wanted import Searcher, Wanted

_Options = Mapping[str, float | None]

_KEYWORD_MODES: Final = {VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}
_MMR_OPTIONS: Final = {"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k"}
# What LlamaIndex's integrations use.
_MMR_THRESHOLD: Final = 0.5
_MMR_PREFETCH_FACTOR: Final = 4.0


def found_by(query: VectorStoreQuery, searcher: Searcher, options: _Options) -> list[Found]:
    """What a LlamaIndex query finds, best first.

    Args:
        query: The query, in one of the modes DEFAULT, SPARSE, TEXT_SEARCH, HYBRID and MMR.
        searcher: Asks the engine.
        options: What LlamaIndex hands over as ``vector_store_kwargs``: for MMR ``mmr_threshold``,
            ``mmr_prefetch_factor`` and ``mmr_prefetch_k``.

    Raises:
        UnsupportedModeError: Another mode.
        ConfigurationError: The query lacks what its mode needs, or has a value out of range.
        UnsupportedFilterError: The engine cannot evaluate the filters.
        DimensionMismatchError: The embedding has another dimension than the store.
    """
    _check_options(query, options)
    # LlamaIndex's retrievers hand over [] where they mean no restriction.
    nodes = target(
        node_ids=query.node_ids or None, doc_ids=query.doc_ids or None, filters=query.filters
    )
    wanted = Wanted(check_top_k(query.similarity_top_k), nodes)
    if query.mode == VectorStoreQueryMode.DEFAULT:
        return searcher.dense(_embedding(query), wanted)
    if query.mode in _KEYWORD_MODES:
        return searcher.keyword(_text(query), _limited(wanted, query.sparse_top_k))
    if query.mode == VectorStoreQueryMode.HYBRID:
        return _hybrid(query, searcher, wanted)
    if query.mode == VectorStoreQueryMode.MMR:
        return _diverse(query, searcher, wanted, options)
    raise UnsupportedModeError(
        f"this store has no mode {query.mode!r}; it serves DEFAULT, SPARSE, TEXT_SEARCH, HYBRID "
        "and MMR"
    )


def _hybrid(query: VectorStoreQuery, searcher: Searcher, wanted: Wanted) -> list[Found]:
    dense, keyword = searcher.both(
        _embedding(query),
        _text(query),
        dense=wanted,
        keyword=_limited(wanted, query.sparse_top_k),
    )
    top_k = _limited(wanted, query.hybrid_top_k).top_k
    return fused(dense, keyword, alpha=query.alpha, top_k=top_k)


def _diverse(
    query: VectorStoreQuery, searcher: Searcher, wanted: Wanted, options: _Options
) -> list[Found]:
    given = options.get("mmr_threshold")
    given = query.mmr_threshold if given is None else given
    threshold = _MMR_THRESHOLD if given is None else given
    if not 0.0 <= threshold <= 1.0:
        raise ConfigurationError(
            f"mmr_threshold must be between 0 (diversity alone) and 1 (relevance alone), "
            f"got {threshold}"
        )
    factor = options.get("mmr_prefetch_factor") or _MMR_PREFETCH_FACTOR
    candidates = int(options.get("mmr_prefetch_k") or wanted.top_k * factor)
    return searcher.diverse(
        _embedding(query),
        wanted,
        lambda_mult=threshold,
        candidates=max(wanted.top_k, candidates),
    )


def _limited(wanted: Wanted, top_k: int | None) -> Wanted:
    return wanted if top_k is None else replace(wanted, top_k=check_top_k(top_k))


def _embedding(query: VectorStoreQuery) -> list[float]:
    if query.query_embedding is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_embedding")
    return query.query_embedding


def _text(query: VectorStoreQuery) -> str:
    if query.query_str is None:
        raise ConfigurationError(f"a query in mode {query.mode!s} needs a query_str")
    return query.query_str


def _check_options(query: VectorStoreQuery, options: _Options) -> None:
    known = _MMR_OPTIONS if query.mode == VectorStoreQueryMode.MMR else set[str]()
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigurationError(f"mode {query.mode!s} has no options {', '.join(unknown)}")
    for name in ("output_fields", "embedding_field"):
        if getattr(query, name) is not None:
            raise ConfigurationError(
                f"this store has no {name}: it returns whole nodes and has one embedding "
                f"a node; leave {name} out"
            )
