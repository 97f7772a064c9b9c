"""CombMAX: the best score any leg gave."""

from collections.abc import Mapping, Sequence

from llama_retrieval_ext.formulas.scores import check_scores, weighted_legs


def comb_max(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    r"""Fuse scores by the best weighted one that any leg gave.

    .. math:: s(d) = \max_{i : d \in L_i} w_i \, s_i(d)

    A leg that did not find an id has no say in it, so negative scores are fine.

    Args:
        scores: One mapping per leg, id to score, on a common scale; higher is better.
        weights: One per leg, finite and 0 or more; they are not normalised. None weighs each 1.0.
            A leg of weight 0 is left out.

    Returns:
        Fused score of every id in any leg that counts; without weights in the range of the scores.
        Empty for no legs.

    Raises:
        ConfigurationError: The weights do not fit.
        ScoreError: A score is None or not finite.

    Source:
        Fox and Shaw, "Combination of Multiple Searches", TREC-2, 1994, the definition of
        CombMAX, https://trec.nist.gov/pubs/trec2/papers/txt/23.txt. The weights are an addition.

    Examples:
        >>> comb_max([{"a": 0.2, "b": -0.5}, {"a": 0.9}])
        {'a': 0.9, 'b': -0.5}

    """
    best: dict[str, float] = {}
    for leg, weight in weighted_legs(scores, weights=weights):
        check_scores(leg)
        for node_id, score in leg.items():
            weighted = weight * score
            if node_id not in best or weighted > best[node_id]:
                best[node_id] = weighted
    return best
