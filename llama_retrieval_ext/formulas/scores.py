"""Checks, sums and sorting of the scores of legs."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from llama_retrieval_ext.errors import ConfigurationError, ScoreError

T = TypeVar("T")


def weighted_legs(legs: Sequence[T], *, weights: Sequence[float] | None) -> list[tuple[T, float]]:
    """Return the legs with a weight above 0, each with its weight.

    A leg of weight 0 is left out. Ids that only this leg found are then not in the fused result,
    instead of at its end with score 0.

    Raises:
        ConfigurationError: Too few or too many weights, one that is negative or not finite, or none
            above 0.

    Examples:
        >>> weighted_legs([["a"], ["b"], ["c"]], weights=[0.7, 0, 0.3])
        [(['a'], 0.7), (['c'], 0.3)]

    """
    if weights is None:
        return [(leg, 1.0) for leg in legs]
    if len(weights) != len(legs):
        raise ConfigurationError(
            f"got {len(weights)} weights for {len(legs)} rankings; pass one weight per ranking, in "
            "the same order, or none to weigh all alike"
        )
    weighted: list[tuple[T, float]] = []
    for place, (leg, weight) in enumerate(zip(legs, weights, strict=True)):
        if not 0.0 <= weight <= LARGEST:
            raise ConfigurationError(
                f"weight {place} is {weight}; pass a number from 0 (which switches the "
                "ranking off) to 1e100"
            )
        if weight > 0.0:
            weighted.append((leg, float(weight)))
    if legs and not weighted:
        raise ConfigurationError(
            f"all {len(legs)} weights are 0, so nothing can be ranked; pass at least one above 0"
        )
    return weighted


# Below this, no sum, square or product in these formulas overflows. Larger values are placeholders
# such as `sys.float_info.max`, which mean "no score" and must not be averaged.
LARGEST = 1e100


def check_scores(scores: Mapping[str, float | None]) -> None:
    """Raise if a score is None, not finite, or too large.

    Raises:
        ScoreError: A score is None, NaN, infinite, or beyond ``1e100`` in magnitude.

    Examples:
        >>> check_scores({"a": 0.5, "b": None})
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ScoreError: the score of 'b' is None; ...

    """
    values = scores.values()
    try:
        # A sum is fast, and not finite if a score is not.
        if not values or (math.isfinite(sum(values)) and max(map(abs, values)) <= LARGEST):  # type: ignore[arg-type]
            return
    except TypeError:  # None
        pass
    for node_id, score in scores.items():
        # NaN fails both comparisons, so one test catches NaN and the infinities.
        if score is None or not -LARGEST <= score <= LARGEST:
            raise ScoreError(
                f"the score of {node_id!r} is {score}; expected a finite number between -1e100 and "
                "1e100: leave out ids without a score, or fuse by rank instead"
            )


def ranked(scores: Mapping[str, float], *, top_k: int | None = None) -> list[tuple[str, float]]:
    """Return ids with their scores, best first; with ``top_k``, also all ties with the last.

    Ties are broken by id, ascending, so that equal input gives equal order.

    Examples:
        >>> ranked({"b": 0.5, "c": 0.9, "a": 0.5})
        [('c', 0.9), ('a', 0.5), ('b', 0.5)]
        >>> ranked({"b": 0.5, "c": 0.9, "a": 0.5, "d": 0.1}, top_k=2)
        [('c', 0.9), ('a', 0.5), ('b', 0.5)]

    """
    best: Mapping[str, float] = scores
    if top_k is not None and 0 < top_k < len(scores):
        # Sorting floats is several times as fast as sorting ids.
        least = sorted(scores.values(), reverse=True)[top_k - 1]
        best = {node_id: score for node_id, score in scores.items() if score >= least}
    # Two stable sorts on plain keys are faster than one on (-score, id) tuples.
    order = sorted(best)
    order.sort(key=best.__getitem__, reverse=True)
    return [(node_id, best[node_id]) for node_id in order]


def sum_of_legs(legs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of the shares of each id, independent of the order of the legs.

    Float addition depends on the order of its terms. A last digit that depends on the order of the
    legs would decide ties, so every sum here is correctly rounded.

    Examples:
        >>> sum_of_legs([{"a": 0.1}, {"a": 0.2, "b": 1.0}, {"a": 0.3}])
        {'a': 0.6, 'b': 1.0}

    """
    if not legs:
        return {}
    first, *others = legs
    if len(others) > 1:  # a single addition is correctly rounded already
        return _sum_of_many(legs)
    second = others[0] if others else {}
    total = {**first, **second}
    for node_id in first.keys() & second.keys():
        total[node_id] = first[node_id] + second[node_id]
    return total


def _sum_of_many(legs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for leg in legs:
        for node_id, share in leg.items():
            shares.setdefault(node_id, []).append(share)
    return {node_id: math.fsum(terms) for node_id, terms in shares.items()}
