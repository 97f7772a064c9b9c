"""One ranking of a vector search and a keyword search, fused by this package."""

from collections.abc import Sequence

from llama_retrieval_ext.stages.algebra.fusion import Fusion
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.native_fusion import LEGS, FusedSearch


def fused(
    dense: Sequence[Found],
    keyword: Sequence[Found],
    fusion: Fusion,
    *,
    top_k: int,
    weights: Sequence[float] | None = None,
) -> list[Found]:
    """Both rankings as one.

    Args:
        dense: What vector search found, best first.
        keyword: What keyword search found, best first.
        fusion: How they are fused.
        top_k: How many to return.
        weights: Of vector and of keyword search; None for the fusion's own.

    Returns:
        Best first, equal scores by node id.
    """
    rankings = zip(LEGS, (dense, keyword), strict=True)
    top = fusion.fuse_ids(
        {leg: [(each.node_id, each.score) for each in ranking] for leg, ranking in rankings},
        weights=None if weights is None else dict(zip(LEGS, weights, strict=True)),
        top_k=top_k,
    )
    by_id = {each.node_id: each for each in (*keyword, *dense)}
    return [by_id[each.node_id].rescored(each.score) for each in top]


def fused_here(
    dense: Sequence[Found], keyword: Sequence[Found], how: FusedSearch, *, top_k: int
) -> list[Found]:
    """What the engine would have made of two rankings, where it has nothing to fuse of."""
    return fused(dense, keyword, how.fusion, weights=how.weights, top_k=top_k)
