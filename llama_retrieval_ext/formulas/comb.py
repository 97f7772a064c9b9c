"""CombMAX: the best score of any leg."""

from collections.abc import Mapping, Sequence

from llama_retrieval_ext.formulas.scores import weighted_legs


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
