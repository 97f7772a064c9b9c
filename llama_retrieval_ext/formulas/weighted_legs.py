"""Which legs count in a fusion, and how much."""

from collections.abc import Sequence
from typing import TypeVar

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.score_check import LARGEST

T = TypeVar("T")


def weighted_legs(legs: Sequence[T], *, weights: Sequence[float] | None) -> list[tuple[T, float]]:
    """The legs that count, each with its weight.

    A leg of weight 0 is switched off: it is left out, so that what only it found is not in the
    fused result at all, rather than at its end with a score of 0.

    Args:
        legs: One ranking, or one mapping of scores, per retriever.
        weights: One number per leg, finite, 0 or more, not all 0. None gives each leg 1.0.

    Returns:
        Leg and weight, in the order given. Empty for no legs.

    Raises:
        ConfigurationError: Too few or too many weights, one that is negative or not finite, or none
            above 0.

    Examples:
        >>> weighted_legs([["a"], ["b"], ["c"]], weights=[0.7, 0, 0.3])
        [(['a'], 0.7), (['c'], 0.3)]

    """
    if weights is None:
        return [(leg, 1.0) for leg in legs]
    _check_weights(weights, n_legs=len(legs))
    return [(leg, float(weight)) for leg, weight in zip(legs, weights, strict=True) if weight > 0.0]


def _check_weights(weights: Sequence[float], *, n_legs: int) -> None:
    if len(weights) != n_legs:
        raise ConfigurationError(
            f"got {len(weights)} weights for {n_legs} rankings; pass one weight per ranking, in "
            "the same order, or none to weigh all alike"
        )
    for place, weight in enumerate(weights):
        if not 0.0 <= weight <= LARGEST:
            raise ConfigurationError(
                f"weight {place} is {weight}; pass a number from 0 (which switches the "
                "ranking off) to 1e100"
            )
    if n_legs and not any(weights):
        raise ConfigurationError(
            f"all {n_legs} weights are 0, so nothing can be ranked; pass at least one above 0"
        )
