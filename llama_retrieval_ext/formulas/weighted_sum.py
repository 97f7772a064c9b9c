"""Weighted sum of scores, also known as linear or convex combination."""

import math
from collections.abc import Mapping, Sequence

from llama_retrieval_ext.formulas.scores import weighted_legs


def weighted_sum_shares(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> list[dict[str, float]]:
    r"""Return each leg's part of a convex combination of scores; `sum_of_legs` fuses them.

    .. math:: s(d) = \sum_i \frac{w_i}{\sum_j w_j} \, s_i(d), \quad s_i(d) = 0 \text{ if missing}

    Normalise scores of different scales first (see ``formulas.normalisation``), to a scale on which
    0 is a fair value for an id that a leg did not find.

    Args:
        scores: One mapping per leg, id to finite score, on a common scale; higher is better. They
            are not checked: the normalisation has already checked them.
        weights: One per leg, finite and 0 or more; only their proportions matter. None weighs all
            equally. A leg of weight 0 is left out.

    Returns:
        Share by id, one mapping per leg with a weight above 0. For scores in ``[0, 1]`` their sum
        is in ``[0, 1]``. Empty for no legs.

    Raises:
        ConfigurationError: The weights do not fit.

    Source:
        Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS
        42(1), 2023, the convex combination (f_Convex), https://doi.org/10.1145/3596512, defined
        there for two legs with the weights alpha and 1 - alpha.

    Examples:
        >>> weighted_sum_shares([{"a": 1.0, "b": 0.5}, {"b": 1.0}], weights=[3, 1])
        [{'a': 0.75, 'b': 0.375}, {'b': 0.25}]

    """
    legs = weighted_legs(scores, weights=weights)
    parts = proportions([weight for _, weight in legs])
    return [
        {node_id: part * score for node_id, score in leg.items()}
        for (leg, _), part in zip(legs, parts, strict=True)
    ]


def proportions(weights: Sequence[float]) -> list[float]:
    """Return each weight divided by their sum.

    Examples:
        >>> proportions([3, 1])
        [0.75, 0.25]

    """
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]
