"""One ranking of a vector search and a keyword search."""

from collections.abc import Sequence

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalise.min_max import min_max
from llama_retrieval_ext.formulas.order import ranked
from llama_retrieval_ext.formulas.rrf import reciprocal_rank_fusion
from llama_retrieval_ext.formulas.weighted_sum import weighted_sum
from llama_retrieval_ext.stores.backend import Found


def fused(
    dense: Sequence[Found], keyword: Sequence[Found], *, alpha: float | None, top_k: int
) -> list[Found]:
    """Both rankings as one.

    Args:
        dense: What vector search found, best first.
        keyword: What keyword search found, best first.
        alpha: Weight of the vector search, from 0 to 1, in a weighted sum of min-max normalised
            scores; None for reciprocal rank fusion with k = 60, which needs no weight.
        top_k: How many to return.

    Returns:
        Best first, equal scores by node id.

    Raises:
        ConfigurationError: ``alpha`` is out of range.
    """
    if alpha is not None and not 0.0 <= alpha <= 1.0:
        raise ConfigurationError(
            f"alpha must be between 0 (keywords alone) and 1 (vectors alone), got {alpha}; for "
            "reciprocal rank fusion leave it out"
        )
    if alpha is None:
        legs = [[each.node_id for each in leg] for leg in (dense, keyword)]
        scores = reciprocal_rank_fusion(legs, k=60)
    else:
        raw = [{each.node_id: each.score for each in leg} for leg in (dense, keyword)]
        scores = weighted_sum([min_max(leg) for leg in raw], weights=(alpha, 1.0 - alpha))
    by_id = {each.node_id: each for each in (*keyword, *dense)}
    return [Found(by_id[node_id].node, score) for node_id, score in ranked(scores)[:top_k]]
