"""The sum that every additive fusion ends with."""

import math
from collections.abc import Mapping, Sequence


def sum_of_legs(legs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sum of what each leg gives to each id, the same whatever the order of the legs.

    Float addition depends on the order of its terms. A last digit that changes with the order of
    the legs would decide ties, so every sum here is the correctly rounded one.

    Args:
        legs: One mapping per leg, id to the leg's share; a missing id adds nothing.

    Returns:
        Sum for every id in any leg. Empty for no legs.

    Examples:
        >>> sum_of_legs([{"a": 0.1}, {"a": 0.2, "b": 1.0}, {"a": 0.3}])
        {'a': 0.6, 'b': 1.0}

    """
    if not legs:
        return {}
    first, *others = legs
    if len(others) > 1:  # a single addition is correctly rounded as it is
        return _sum_of_many(legs)
    total = dict(first)
    for leg in others:
        for node_id, share in leg.items():
            total[node_id] = total.get(node_id, 0.0) + share
    return total


def _sum_of_many(legs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for leg in legs:
        for node_id, share in leg.items():
            shares.setdefault(node_id, []).append(share)
    return {node_id: math.fsum(terms) for node_id, terms in shares.items()}
