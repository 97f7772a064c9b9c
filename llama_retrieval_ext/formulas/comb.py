"""CombMAX and CombMNZ: the best score of any leg; the sum of scores times the number of legs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.formulas.scores import check_scores, sum_of_legs, weighted_legs


def comb_max(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    r"""Fuse scores by the best weighted score of any leg.

    .. math:: s(d) = \max_{i : d \in L_i} w_i \, s_i(d)

    A leg that did not find an id is ignored for that id, so negative scores are allowed.

    Args:
        scores: One mapping per leg, id to score, on a common scale; higher is better.
        weights: One per leg, finite and 0 or more; they are not normalised. None weighs each 1.0.
            A leg of weight 0 is left out.

    Returns:
        Fused score of every id in any leg with a weight above 0; without weights in the range of
        the scores. Empty for no legs.

    Raises:
        ConfigurationError: The weights do not fit.
        ScoreError: A score is None or not finite.

    Source:
        Fox and Shaw, "Combination of Multiple Searches", TREC-2, 1994, the definition of
        CombMAX, https://trec.nist.gov/pubs/trec2/papers/txt/23.txt. The weights are an addition.

    Examples:
        >>> comb_max([{"a": 0.2, "b": -0.5}, {"a": 0.9}])
        {'a': 0.9, 'b': -0.5}

    """
    for leg, _ in weighted_legs(scores, weights=weights):
        check_scores(leg)
    return best_of_legs(comb_max_shares(scores, weights=weights))


def comb_max_shares(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> list[dict[str, float]]:
    """Return the weighted scores of each leg with a weight; arguments as for `comb_max`.

    Scores are not checked: the normalisation has already checked them.

    Examples:
        >>> comb_max_shares([{"a": 0.5}, {"a": 0.9}], weights=[2, 1])
        [{'a': 1.0}, {'a': 0.9}]

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


def comb_mnz(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    r"""Fuse scores by their weighted sum times the number of legs that found the id.

    .. math:: s(d) = |\{i : d \in L_i\}| \cdot \sum_i w_i \, s_i(d)

    Args:
        scores: One mapping per leg, id to score of 0 or more, on a common scale; higher is better.
        weights: One per leg, finite and 0 or more; they are not normalised, and do not change the
            count. None weighs each 1.0. A leg of weight 0 is left out, also from the count.

    Returns:
        Fused score of every id in any leg with a weight above 0; 0 or more. Empty for no legs.

    Raises:
        ConfigurationError: The weights do not fit.
        ScoreError: A score is None, not finite or negative. With a negative sum, each leg that
            agrees would lower the score.

    Source:
        Fox and Shaw, "Combination of Multiple Searches", TREC-2, 1994, the definition of
        CombMNZ, https://trec.nist.gov/pubs/trec2/papers/txt/23.txt. Two deviations: weights, and a
        leg that found the id with score 0 counts (the paper counts nonzero similarities), because
        min-max gives exactly 0 to the last id a leg found.

    Examples:
        >>> comb_mnz([{"a": 1.0, "b": 0.5}, {"b": 0.75}])
        {'a': 1.0, 'b': 2.5}

    """
    for leg, _ in weighted_legs(scores, weights=weights):
        check_scores(leg)
    return sum_times_count(comb_mnz_shares(scores, weights=weights))


def comb_mnz_shares(
    scores: Sequence[Mapping[str, float]], *, weights: Sequence[float] | None = None
) -> list[dict[str, float]]:
    """Return the weighted scores of each leg with a weight; arguments as for `comb_mnz`.

    Finite scores are assumed: the normalisation has already checked them.

    Examples:
        >>> comb_mnz_shares([{"a": 1.0, "b": 0.5}, {"b": 0.75}], weights=[2, 1])
        [{'a': 2.0, 'b': 1.0}, {'b': 0.75}]

    """
    for leg, _ in weighted_legs(scores, weights=weights):
        _check_sign(leg)
    return comb_max_shares(scores, weights=weights)


def sum_times_count(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of the shares of every id, times their number.

    Examples:
        >>> sum_times_count([{"a": 1.0, "b": 0.5}, {"b": 0.75}])
        {'a': 1.0, 'b': 2.5}

    """
    found_by = Counter(chain.from_iterable(shares))
    return {node_id: found_by[node_id] * score for node_id, score in sum_of_legs(shares).items()}


def _check_sign(leg: Mapping[str, float]) -> None:
    for node_id, score in leg.items():
        if score < 0.0:
            raise ScoreError(
                f"the score of {node_id!r} is {score}; CombMNZ needs scores of 0 or more: "
                "normalise them first, for example with min_max"
            )
