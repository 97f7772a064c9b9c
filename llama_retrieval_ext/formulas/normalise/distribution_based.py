"""Distribution-based normalisation: three standard deviations to each side of the mean."""

import math
from collections.abc import Mapping

from llama_retrieval_ext.formulas.normalise.deviations import deviations


def distribution_based(
    scores: Mapping[str, float], *, cut: bool = True, sample: bool = True, equal: float = 0.5
) -> dict[str, float]:
    r"""Scores as their place between three standard deviations below and above their mean.

    .. math:: s'(d) = \frac{s(d) - (\mu - 3\sigma)}{6\sigma}, \qquad
              \sigma^2 = \frac{1}{n - 1} \sum_d (s(d) - \mu)^2

    The standard deviation is the sample's (``/ (n - 1)``), as in Qdrant, so that fusing here and
    in the engine agree; LlamaIndex has the population's (``/ n``).

    Args:
        scores: Raw score of every id, in any finite range; higher is better.
        cut: Whether scores beyond three deviations, possible from 11 ids on, become 0.0 or 1.0.
            Qdrant and LlamaIndex leave them below 0 or above 1.
        sample: Whether the deviation is the sample's, or the population's.
        equal: Score of every id where all scores are equal, a single one included. 0.5 is the place
            of the mean; LlamaIndex has 1.0 (and 0.0 for scores that are not above 0).

    Returns:
        Normalised score of every id, in ``[0, 1]`` unless uncut, in the same order. Empty for no
        scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Mazzeschi, "Distribution-Based Score Fusion (DBSF), a new approach to Vector Search
        Ranking", 2023,
        https://medium.com/plain-simple-software/distribution-based-score-fusion-dbsf-a-new-approach-to-vector-search-ranking-f87c37488b18,
        as in Qdrant, https://qdrant.tech/documentation/concepts/hybrid-queries/. The cut is an
        addition.

    Examples:
        >>> distribution_based({"a": 3.0, "b": 2.0, "c": 1.0})
        {'a': 0.6666666666666666, 'b': 0.5, 'c': 0.33333333333333337}
        >>> distribution_based({"a": 0.9})
        {'a': 0.5}

    """
    distance = deviations(scores)
    norm = math.hypot(*distance.values())
    if norm == 0.0:
        return dict.fromkeys(scores, equal)
    # sigma is norm / root; dividing by the norm first cannot overflow, however small it is.
    root = math.sqrt(len(distance) - sample)
    places = {node_id: 0.5 + gap / norm * root / 6.0 for node_id, gap in distance.items()}
    if not cut:
        return places
    return {node_id: min(max(place, 0.0), 1.0) for node_id, place in places.items()}
