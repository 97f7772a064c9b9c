"""Reciprocal rank fusion."""

from collections.abc import Sequence

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.scores import weighted_legs
from llama_retrieval_ext.parameters import is_number


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
    legs = weighted_legs(rankings, weights=weights)
    return [_shares(ranking, k=k, weight=weight) for ranking, weight in legs]


def _shares(ranking: Sequence[str], *, k: float, weight: float) -> dict[str, float]:
    shares: dict[str, float] = {}
    rank = 0.0  # a float keeps k + rank and the division in float arithmetic: twice as fast
    for node_id in ranking:
        if node_id not in shares:
            rank += 1.0
            shares[node_id] = weight / (k + rank)
    return shares
