"""Z-score normalisation, also known as zero mean and unit variance."""

import math
from collections.abc import Mapping

from llama_retrieval_ext.formulas.normalise.deviations import deviations


def z_score(scores: Mapping[str, float]) -> dict[str, float]:
    r"""Scores as standard deviations above or below their mean.

    .. math:: s'(d) = \frac{s(d) - \mu}{\sigma}, \qquad
              \sigma^2 = \frac{1}{n} \sum_d (s(d) - \mu)^2

    The standard deviation is the population's (``/ n``): the scores at hand are all there are.

    Args:
        scores: Raw score of every id, in any finite range; higher is better.

    Returns:
        Normalised score of every id, in ``[-sqrt(n), sqrt(n)]`` around a mean of 0, in the same
        order. Equal scores, a single one included, all give 0.0: each is the average. So does an
        id that a `weighted_sum` does not find in a leg. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Montague and Aslam, "Relevance Score Normalization for Metasearch", CIKM 2001, ZMUV,
        https://doi.org/10.1145/502585.502657. Equal scores, where the formula is 0 / 0, are our
        choice.

    Examples:
        >>> z_score({"a": 3.0, "b": 1.0})
        {'a': 1.0, 'b': -1.0}
        >>> z_score({"a": 0.9})
        {'a': 0.0}

    """
    distance = deviations(scores)
    norm = math.hypot(*distance.values())
    if norm == 0.0:
        return dict.fromkeys(scores, 0.0)
    # sigma is norm / sqrt(n); dividing by the norm first cannot overflow, however small it is.
    root_n = math.sqrt(len(distance))
    return {node_id: gap / norm * root_n for node_id, gap in distance.items()}
