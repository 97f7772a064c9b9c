"""Borda count: each leg gives points by rank."""

from collections.abc import Sequence
from itertools import chain

from llama_retrieval_ext.formulas.scores import sum_of_legs, weighted_legs


def borda_count(
    rankings: Sequence[Sequence[str]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    r"""Fuse rankings by the weighted sum of Borda points.

    The *c* candidates are the ids in any leg. The best of a leg gets *c* points, the next *c - 1*,
    and so on. Candidates that a leg did not rank share its remaining points equally, so each gets
    the mean of those points:

    .. math:: b_i(d) = \begin{cases} c - r_i(d) + 1 & d \in L_i \\
              (c - |L_i| + 1) / 2 & \text{otherwise} \end{cases}, \qquad s(d) = \sum_i w_i \, b_i(d)

    Args:
        rankings: One sequence of ids per leg, best first. Only the first occurrence of a repeated
            id is ranked; the ids after it move up.
        weights: One per leg, finite and 0 or more; they are not normalised. None weighs each 1.0.
            A leg of weight 0 is left out, also from the candidates.

    Returns:
        Points of every candidate; in ``(0, sum(weights) * c]``, higher is better.
        Empty for no rankings. Time and memory grow with legs times candidates.

    Raises:
        ConfigurationError: The weights do not fit.

    Source:
        Aslam and Montague, "Models for Metasearch", SIGIR 2001, Borda-fuse and weighted Borda-fuse,
        https://doi.org/10.1145/383952.384007.

    Examples:
        >>> borda_count([["a", "b", "c"], ["b"]])
        {'a': 4.5, 'b': 5.0, 'c': 2.5}

    """
    return sum_of_legs(borda_shares(rankings, weights=weights))


def borda_shares(
    rankings: Sequence[Sequence[str]], *, weights: Sequence[float] | None = None
) -> list[dict[str, float]]:
    """Return the points per candidate of each leg with a weight, as in `borda_count`.

    Examples:
        >>> borda_shares([["a", "b"], ["b"]])
        [{'a': 2.0, 'b': 1.0}, {'a': 1.0, 'b': 2.0}]

    """
    legs = [
        (list(dict.fromkeys(ranking)), weight)
        for ranking, weight in weighted_legs(rankings, weights=weights)
    ]
    candidates = list(dict.fromkeys(chain.from_iterable(ranking for ranking, _ in legs)))
    return [_points(ranking, candidates, weight=weight) for ranking, weight in legs]


def _points(
    ranking: Sequence[str], candidates: Sequence[str], *, weight: float
) -> dict[str, float]:
    highest = len(candidates)
    points = dict.fromkeys(candidates, weight * (highest - len(ranking) + 1) / 2)
    for place, node_id in enumerate(ranking):
        points[node_id] = weight * (highest - place)
    return points
