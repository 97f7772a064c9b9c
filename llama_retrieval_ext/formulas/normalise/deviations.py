"""How far each score lies from the mean of its ranking."""

import math
from collections.abc import Mapping

from llama_retrieval_ext.formulas.score_check import check_scores


def deviations(scores: Mapping[str, float]) -> dict[str, float]:
    """Score minus mean score of every id.

    Measured from the lowest score, so that scores that are nearly equal keep their digits, and
    all deviations of equal scores are exactly 0.

    Args:
        scores: Raw score of every id, in any finite range.

    Returns:
        Deviation of every id; they sum to 0 up to rounding. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Examples:
        >>> deviations({"a": 3.0, "b": 2.0, "c": 1.0})
        {'a': 1.0, 'b': 0.0, 'c': -1.0}

    """
    check_scores(scores)
    low = min(scores.values(), default=0.0)
    above = {node_id: score - low for node_id, score in scores.items()}
    mean = math.fsum(above.values()) / max(len(above), 1)
    return {node_id: height - mean for node_id, height in above.items()}
