"""Rank normalisation: scores replaced by evenly spaced ones."""

from bisect import bisect_right
from collections.abc import Mapping

from llama_retrieval_ext.formulas.score_check import check_scores


def rank_normalise(scores: Mapping[str, float]) -> dict[str, float]:
    r"""Scores as the share of ids that are not better.

    .. math:: s'(d) = \frac{n - r(d) + 1}{n}

    Args:
        scores: Raw score of every id, in any finite range; higher is better.

    Returns:
        Normalised score of every id, in ``[1 / n, 1]``, in the same order. Equal scores share the
        best of their ranks, so that their ids do not decide which is better; a single one, and
        all when all are equal, give 1.0. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Renda and Straccia, "Web Metasearch: Rank vs. Score Based Rank Aggregation Methods", SAC
        2003, rank normalisation, https://doi.org/10.1145/952532.952698. Shared ranks are our
        choice; the paper's rankings have no ties.

    Examples:
        >>> rank_normalise({"a": 9.0, "b": 8.9, "c": 0.1, "d": 8.9})
        {'a': 1.0, 'b': 0.75, 'c': 0.25, 'd': 0.75}

    """
    check_scores(scores)
    ascending = sorted(scores.values())
    # The ids at or below a score are n - rank + 1 of them, when equal scores share the best rank.
    n = len(ascending)
    return {node_id: bisect_right(ascending, score) / n for node_id, score in scores.items()}
