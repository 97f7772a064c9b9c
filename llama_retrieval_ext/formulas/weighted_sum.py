"""Weighted sum of scores, also known as linear or convex combination."""

import math
from collections.abc import Mapping, Sequence

from llama_retrieval_ext.formulas.scores import check_scores, sum_of_legs, weighted_legs


def weighted_sum(
    scores: Sequence[Mapping[str, float]],
    *,
    weights: Sequence[float] | None = None,
    total: float | None = None,
) -> dict[str, float]:
    r"""Fuse scores by their convex combination.

    .. math:: s(d) = \sum_i \frac{w_i}{\sum_j w_j} \, s_i(d), \quad s_i(d) = 0 \text{ if missing}

    Scores of different scales must be normalised first (see ``formulas.normalise``), to a scale
    on which 0 is a fair value for an id that a leg did not find.

    Args:
        scores: One mapping per leg, id to score, on a common scale; higher is better.
        weights: One per leg, finite and 0 or more; only their proportions matter. None weighs all
            alike. A leg of weight 0 is left out.
        total: What the weights are parts of; None for their sum. With the sum of the weights of
            several legs, the result for one of them is what that leg gives to the sum of all.

    Returns:
        Fused score of every id in any leg that counts; for scores in ``[0, 1]`` in ``[0, 1]``.
        Empty for no legs.

    Raises:
        ConfigurationError: The weights do not fit.
        ScoreError: A score is None or not finite.

    Source:
        Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS
        42(1), 2023, the convex combination (f_Convex), https://doi.org/10.1145/3596512, there for
        two legs with the weights alpha and 1 - alpha.

    Examples:
        >>> weighted_sum([{"a": 1.0, "b": 0.5}, {"b": 1.0}], weights=[3, 1])
        {'a': 0.75, 'b': 0.625}

    """
    legs = weighted_legs(scores, weights=weights)
    parts = proportions([weight for _, weight in legs], total=total)
    pairs = zip(legs, parts, strict=True)
    return sum_of_legs([_shares(leg, weight=part) for (leg, _), part in pairs])


def proportions(weights: Sequence[float], *, total: float | None = None) -> list[float]:
    """Each weight as a part of them all.

    Args:
        weights: Of the legs that count: finite and above 0.
        total: What they are parts of; None for their sum.

    Returns:
        One number a weight, in ``(0, 1]``; parts of their sum add up to 1.

    Examples:
        >>> proportions([3, 1])
        [0.75, 0.25]

    """
    whole = math.fsum(weights) if total is None else total
    return [weight / whole for weight in weights]


def _shares(leg: Mapping[str, float], *, weight: float) -> dict[str, float]:
    check_scores(leg)
    return {node_id: weight * score for node_id, score in leg.items()}
