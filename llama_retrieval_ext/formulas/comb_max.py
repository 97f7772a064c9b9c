"""CombMAX: the best score any leg gave."""

from collections.abc import Mapping, Sequence

from llama_retrieval_ext.formulas.score_check import check_scores


def comb_max(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    r"""Fuse scores by the best that any leg gave.

    .. math:: s(d) = \max_{i : d \in L_i} s_i(d)

    A leg that did not find an id has no say in it, so negative scores are fine.

    Args:
        scores: One mapping per leg, id to score, on a common scale; higher is better.

    Returns:
        Fused score of every id in any leg; in the range of the scores. Empty for no legs.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Fox and Shaw, "Combination of Multiple Searches", TREC-2, 1994, the definition of
        CombMAX, https://trec.nist.gov/pubs/trec2/papers/txt/23.txt.

    Examples:
        >>> comb_max([{"a": 0.2, "b": -0.5}, {"a": 0.9}])
        {'a': 0.9, 'b': -0.5}

    """
    best: dict[str, float] = {}
    for leg in scores:
        check_scores(leg)
        for node_id, score in leg.items():
            if node_id not in best or score > best[node_id]:
                best[node_id] = score
    return best
