"""Weighted information gain: how far the best hit of a query is above the rest."""

import math
from collections.abc import Sequence

from llama_retrieval_ext.errors import ConfigurationError


def information_gain(scores: Sequence[float], *, terms: int = 1, depth: int | None = None) -> float:
    r"""How far the best score is above another, per query term.

    .. math:: g(q) = \frac{s_1 - s_k}{\sqrt{|q|}}

    Args:
        scores: Of one ranking, best first.
        terms: :math:`|q|`, the number of the query's terms; at least 1. 1 for scores that do not
            grow with it, such as cosines.
        depth: :math:`k`, the rank of the other score, from 1; the last where there are fewer. None
            for 0 in its stead, the keyword score of a text that shares no term with the query.

    Returns:
        0 or more for a ranking that is best first, if its scores are; 0 for an empty ranking.

    Raises:
        ConfigurationError: ``terms`` or ``depth`` is below 1.

    Source:
        Zhou and Croft, "Query performance prediction in web search environments", SIGIR 2007,
        https://doi.org/10.1145/1277741.1277835, equation 6: weighted information gain, of the best
        hit alone, and with the score at rank k where the paper has that of the whole collection,
        which engines do not give.

    Examples:
        >>> information_gain([9.0, 7.0, 3.0], terms=4), information_gain([9.0, 7.0, 3.0], depth=2)
        (4.5, 2.0)

    """
    if terms < 1 or (depth is not None and depth < 1):
        raise ConfigurationError(f"got terms={terms} and depth={depth}; both must be at least 1")
    if not scores:
        return 0.0
    other = 0.0 if depth is None else scores[min(depth, len(scores)) - 1]
    return (scores[0] - other) / math.sqrt(terms)
