"""Weighted information gain: the lead of the best hit of a query over another hit."""

import math
from collections.abc import Sequence

from llama_retrieval_ext.errors import ConfigurationError


def information_gain(scores: Sequence[float], *, terms: int = 1, depth: int | None = None) -> float:
    r"""Return the lead of the best score over another score, normalised by query terms.

    .. math:: g(q) = \frac{s_1 - s_k}{\sqrt{|q|}}

    Args:
        scores: Scores of one ranking, best first.
        terms: :math:`|q|`, the number of the query's terms; at least 1. Use 1 for scores that do
            not grow with it, such as cosines.
        depth: :math:`k`, the rank of the other score, from 1; the last one if there are fewer. None
            compares with 0, the keyword score of a text that shares no term with the query.

    Returns:
        The lead; 0 or more if the ranking is best first and its scores are 0 or more. 0 for an
        empty ranking.

    Raises:
        ConfigurationError: ``terms`` or ``depth`` is below 1.

    Source:
        Zhou and Croft, "Query performance prediction in web search environments", SIGIR 2007,
        https://doi.org/10.1145/1277741.1277835, equation 6: weighted information gain. Two
        deviations: only the best hit counts, and the score at rank k replaces the score of the
        whole collection, which engines do not return.

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
