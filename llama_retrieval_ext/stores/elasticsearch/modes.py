"""LlamaIndex's query modes, each as what it asks of the engine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.query import check_top_k
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.elasticsearch.questions import Wanted
from llama_retrieval_ext.stores.elasticsearch.request import Steps
from llama_retrieval_ext.stores.elasticsearch.search import Searcher
from llama_retrieval_ext.stores.elasticsearch.targets import target
from llama_retrieval_ext.stores.hybrid import fused

_KEYWORD_MODES: Final = {VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH}


def found_by(
    query: VectorStoreQuery, searcher: Searcher, options: Mapping[str, object]
) -> Steps[list[Found]]:
    """What a LlamaIndex query finds, best first.

    Args:
        query: The query, in one of the modes DEFAULT, SPARSE, TEXT_SEARCH and HYBRID.
        searcher: Asks the engine.
        options: What LlamaIndex hands over as ``vector_store_kwargs``; there are none here.

    Raises:
        UnsupportedModeError: Another mode.
        ConfigurationError: The query lacks what its mode needs, or has a value out of range.
        UnsupportedFilterError: The engine cannot evaluate the filters.
        DimensionMismatchError: The embedding has another dimension than the index.
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
    raise UnsupportedModeError(
        f"Elasticsearch has no mode {query.mode!r}; it serves DEFAULT, SPARSE, TEXT_SEARCH and "
        "HYBRID here; for MMR put the stage MMR() after a VectorRetriever"
    )


def _hybrid(query: VectorStoreQuery, searcher: Searcher, wanted: Wanted) -> Steps[list[Found]]:
    dense, keyword = yield from searcher.both(
        _embedding(query),
        _text(query),
        dense=wanted,
        keyword=_limited(wanted, query.sparse_top_k),
    )
    top_k = _limited(wanted, query.hybrid_top_k).top_k
    return fused(dense, keyword, alpha=query.alpha, top_k=top_k)


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


def _check_options(query: VectorStoreQuery, options: Mapping[str, object]) -> None:
    if options:
        raise ConfigurationError(f"mode {query.mode!s} has no options {', '.join(sorted(options))}")
    for name in ("output_fields", "embedding_field"):
        if getattr(query, name) is not None:
            raise ConfigurationError(
                f"this store has no {name}: it returns whole nodes and has one embedding a node; "
                f"leave {name} out"
            )
