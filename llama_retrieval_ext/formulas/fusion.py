"""Fusion of rankings: reciprocal ranks, the convex combination of scores, and CombMAX.

A formula returns the share of each leg in the score of each id; `sum_of_legs` (for CombMAX
`best_of_legs`) fuses the shares, and `ranked` sorts the ids.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeVar

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import LARGEST
from llama_retrieval_ext.parameters import is_number

T = TypeVar("T")
# Rank of the hit that the best one of keyword search is compared with; see `keyword_trust`.
_CONTRAST_RANK: Final = 20
_LEAST_TRUST: Final = 0.1


def reciprocal_rank_shares(
    rankings: Sequence[Sequence[str]], *, k: float = 60.0, weights: Sequence[float] | None = None
) -> list[dict[str, float]]:
    r"""Return the weighted reciprocal ranks of each leg; `sum_of_legs` fuses them.

    .. math:: s(d) = \sum_i \frac{w_i}{k + r_i(d)}

    Args:
        rankings: One sequence of ids per leg, best first. Ranks start at 1; only the first
            occurrence of a repeated id is ranked; the ids after it move up.
        k: Smoothing constant, in ranks; larger values flatten the lead of the top. 60 is the
            value of the paper.
        weights: One per leg, finite and 0 or more; they are not normalised. None weighs each 1.0.
            A leg of weight 0 is left out.

    Returns:
        Share by id, higher is better, one mapping per leg with a weight above 0. Their sum is in
        ``(0, sum(weights) / (k + 1)]``. Empty for no rankings.

    Raises:
        ConfigurationError: ``k`` is negative or not finite, or the weights do not fit.

    Source:
        Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual
        Rank Learning Methods", SIGIR 2009, the formula of RRFscore,
        https://doi.org/10.1145/1571941.1572114. The weights are an addition; None gives the formula
        of the paper.

    Examples:
        >>> reciprocal_rank_shares([["a", "b"], ["b"]], k=1)
        [{'a': 0.5, 'b': 0.3333333333333333}, {'b': 0.5}]
        >>> reciprocal_rank_shares([["a", "b"], ["b"]], k=1, weights=[1, 3])
        [{'a': 0.5, 'b': 0.3333333333333333}, {'b': 1.5}]

    """
    if not is_number(k) or k < 0.0:
        raise ConfigurationError(
            f"k must be a finite number of 0 or more, got {k!r}; 60 is the value of the paper"
        )
    shares: list[dict[str, float]] = []
    for ranking, weight in weighted_legs(rankings, weights=weights):
        of_leg: dict[str, float] = {}
        rank = 0.0  # a float keeps k + rank and the division in float arithmetic: twice as fast
        for node_id in ranking:
            if node_id not in of_leg:
                rank += 1.0
                of_leg[node_id] = weight / (k + rank)
        shares.append(of_leg)
    return shares


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


def comb_max_shares(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> list[dict[str, float]]:
    r"""Return the weighted scores of each leg with a weight; `best_of_legs` fuses them.

    .. math:: s(d) = \max_{i : d \in L_i} w_i \, s_i(d)

    A leg that did not find an id is ignored for that id, so negative scores are allowed.

    Args:
        scores: One mapping per leg, id to finite score, on a common scale; higher is better. They
            are not checked: the normalisation has already checked them.
        weights: One per leg, finite and 0 or more; they are not normalised. None weighs each 1.0.
            A leg of weight 0 is left out.

    Returns:
        Weighted score by id, one mapping per leg with a weight above 0. Empty for no legs.

    Raises:
        ConfigurationError: The weights do not fit.

    Source:
        Fox and Shaw, "Combination of Multiple Searches", TREC-2, 1994, the definition of
        CombMAX, https://trec.nist.gov/pubs/trec2/papers/txt/23.txt. The weights are an addition.

    Examples:
        >>> best_of_legs(comb_max_shares([{"a": 0.5, "b": -0.5}, {"a": 0.9}], weights=[2, 1]))
        {'a': 1.0, 'b': -1.0}

    """
    legs = weighted_legs(scores, weights=weights)
    return [{node_id: weight * score for node_id, score in leg.items()} for leg, weight in legs]


def best_of_legs(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the best share of every id.

    Examples:
        >>> best_of_legs([{"a": 1.0}, {"a": 0.9, "b": -1.0}])
        {'a': 1.0, 'b': -1.0}

    """
    best: dict[str, float] = {}
    for leg in shares:
        for node_id, share in leg.items():
            if node_id not in best or share > best[node_id]:
                best[node_id] = share
    return best


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


def keyword_trust(scores: Sequence[float]) -> float:
    """Return the factor of the weight of a keyword search, in ``[0.1, 4]``, by its scores.

    It is ``(2 * contrast) ** 2``, where the contrast is the share of the best score by which that
    of rank 20 is lower; 1 for fewer scores. A search that knows the answer ranks few passages far
    above the others.

    Args:
        scores: Scores of BM25, best first.

    Source:
        Shtok et al., "Predicting Query Performance by Query-Drift Estimation", ACM TOIS 30(2),
        2012, https://doi.org/10.1145/2180868.2180873: the spread of the best scores predicts their
        quality. Rank and factor were measured; see config/README.md.

    Examples:
        >>> keyword_trust([10.0] + 19 * [2.5]), keyword_trust(20 * [10.0]), keyword_trust([10.0])
        (2.25, 0.1, 1.0)

    """
    if len(scores) < _CONTRAST_RANK or scores[0] <= 0:
        return 1.0
    contrast = 1 - scores[_CONTRAST_RANK - 1] / scores[0]
    return max((2 * contrast) ** 2, _LEAST_TRUST)


def ranked(scores: Mapping[str, float], *, top_k: int | None = None) -> list[tuple[str, float]]:
    """Return ids with their scores, best first; with ``top_k``, also all ties with the last.

    Ties are broken by id, ascending, so that equal input gives equal order.

    Examples:
        >>> ranked({"b": 0.5, "c": 0.9, "a": 0.5})
        [('c', 0.9), ('a', 0.5), ('b', 0.5)]
        >>> ranked({"b": 0.5, "c": 0.9, "a": 0.5, "d": 0.1}, top_k=2)
        [('c', 0.9), ('a', 0.5), ('b', 0.5)]

    """
    best: Iterable[tuple[str, float]] = scores.items()
    if top_k is not None and 0 < top_k < len(scores):
        # Sorting floats is several times as fast as sorting ids.
        least = sorted(scores.values(), reverse=True)[top_k - 1]
        best = [pair for pair in best if pair[1] >= least]
    ranking = sorted(best)  # by id; the second sort is stable
    ranking.sort(key=itemgetter(1), reverse=True)
    return ranking


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
