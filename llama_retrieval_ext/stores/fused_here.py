"""Fusion by this package, for the searches that an engine has nothing to fuse of."""

from collections.abc import Sequence

from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.native_fusion import LEGS, FusedSearch


def fused_here(
    dense: Sequence[Found], keyword: Sequence[Found], how: FusedSearch, *, top_k: int
) -> list[Found]:
    """What the engine would have made of two rankings.

    Args:
        dense: What vector search found, best first.
        keyword: What keyword search found, best first; empty for a text without terms.
        how: The fusion.
        top_k: How many to return.

    Returns:
        Best first, equal scores by node id.
    """
    vector_leg, keyword_leg = LEGS
    fused = how.fusion.fuse_ids(
        {
            vector_leg: [(each.node_id, each.score) for each in dense],
            keyword_leg: [(each.node_id, each.score) for each in keyword],
        },
        weights=dict(zip(LEGS, how.weights, strict=True)),
        top_k=top_k,
    )
    by_id = {each.node_id: each for each in (*keyword, *dense)}
    return [by_id[each.node_id].rescored(each.score) for each in fused]
