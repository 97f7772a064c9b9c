"""Min-max normalisation by the scale that the retriever is known to have."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import partial

from llama_retrieval_ext.arguments import NamedEnum
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.scores import LARGEST, check_scores


def theoretical_min_max(
    scores: Mapping[str, float], *, low: float, high: float | None = None
) -> dict[str, float]:
    r"""Scores as their place between the least possible and the highest score.

    .. math:: s'(d) = \frac{s(d) - l}{h - l}

    Args:
        scores: Raw score of every id, finite; higher is better.
        low: The least score the retriever can give: -1 for cosine, 0 for BM25.
        high: The highest it can give, such as 1 for cosine. None takes the highest of ``scores``,
            as the paper does, for retrievers without a known one.

    Returns:
        Normalised score of every id, in ``[0, 1]``, in the same order. Equal scores, a single one
        included, lie where the formula puts them: with ``high`` at their place on the scale,
        without it at 1.0. Scores at ``low`` give 0.0 also when all are: a keyword score of 0 is
        no match. A score outside the scale, as a rounded cosine can be, is cut to it. Empty for
        no scores.

    Raises:
        ConfigurationError: ``low`` or ``high`` is not finite, or ``high`` is not above ``low``.
        ScoreError: A score is None or not finite.

    Source:
        Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS
        42(1), 2023, the theoretical min-max scaling (phi_tmm), https://doi.org/10.1145/3596512.
        The known ``high`` is an addition.

    Examples:
        >>> theoretical_min_max({"a": 12.0, "b": 9.0}, low=0)
        {'a': 1.0, 'b': 0.75}
        >>> theoretical_min_max({"a": 0.5, "b": 0.0}, low=-1, high=1)
        {'a': 0.75, 'b': 0.5}

    """
    _check_scale(low, high)
    check_scores(scores)
    top = max(scores.values(), default=low) if high is None else high
    if top <= low:
        return dict.fromkeys(scores, 0.0)
    span = top - low
    return {node_id: min(max((score - low) / span, 0.0), 1.0) for node_id, score in scores.items()}


def _check_scale(low: float, high: float | None) -> None:
    if not -LARGEST <= low <= LARGEST:
        raise ConfigurationError(
            f"low must be a finite number, got {low}; use min_max for scores without a known least"
        )
    if high is not None and not low < high <= LARGEST:
        raise ConfigurationError(
            f"high must be a finite number above low = {low}, got {high}; leave it out to take the "
            "highest score at hand"
        )


def min_max(scores: Mapping[str, float]) -> dict[str, float]:
    r"""Scores stretched so that the lowest is 0 and the highest 1.

    .. math:: s'(d) = \frac{s(d) - \min s}{\max s - \min s}

    The lowest gets 0, as if it had not been found, however good it is; where the scale of the
    scores is known, `theoretical_min_max` does not do that.

    Args:
        scores: Raw score of every id, in any finite range; higher is better.

    Returns:
        Normalised score of every id, in ``[0, 1]``, in the same order. Equal scores, a single one
        included, all give 1.0: the retriever found them and held none of them the weaker, so they
        must not look like its worst. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Lee, "Analyses of Multiple Evidence Combination", SIGIR 1997, the normalised similarity,
        https://doi.org/10.1145/258525.258587. Equal scores, where the formula is 0 / 0, are our
        choice; ranx gives 0.0.

    Examples:
        >>> min_max({"a": 12.0, "b": 9.0, "c": 8.0})
        {'a': 1.0, 'b': 0.25, 'c': 0.0}
        >>> min_max({"a": -3.0})
        {'a': 1.0}

    """
    if not scores:
        return {}
    check_scores(scores)
    low, high = min(scores.values()), max(scores.values())
    if low == high:
        return dict.fromkeys(scores, 1.0)
    span = high - low
    return {node_id: (score - low) / span for node_id, score in scores.items()}


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


def rank_normalise(scores: Mapping[str, float]) -> dict[str, float]:
    r"""Scores as the share of ids that are not better.

    .. math:: s'(d) = \frac{n - r(d) + 1}{n}

    Args:
        scores: Raw score of every id, in any finite range; higher is better.

    Returns:
        Normalised score of every id, in ``[1 / n, 1]``, in the same order. Equal scores share the
        best of their ranks, so that their ids do not decide which is better; a single one, and
        all when all are equal, give 1.0. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Renda and Straccia, "Web Metasearch: Rank vs. Score Based Rank Aggregation Methods", SAC
        2003, rank normalisation, https://doi.org/10.1145/952532.952698. Shared ranks are our
        choice; the paper's rankings have no ties.

    Examples:
        >>> rank_normalise({"a": 9.0, "b": 8.9, "c": 0.1, "d": 8.9})
        {'a': 1.0, 'b': 0.75, 'c': 0.25, 'd': 0.75}

    """
    check_scores(scores)
    ascending = sorted(scores.values())
    # The ids at or below a score are n - rank + 1 of them, when equal scores share the best rank.
    n = len(ascending)
    return {node_id: bisect_right(ascending, score) / n for node_id, score in scores.items()}


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


def unchanged(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores as they are.

    Args:
        scores: Raw score of every id, in any finite range.

    Raises:
        ScoreError: A score is None or not finite.

    Examples:
        >>> unchanged({"a": 3.0})
        {'a': 3.0}

    """
    check_scores(scores)
    return dict(scores)


Scores = Mapping[str, float]


class Normalisation(NamedEnum):
    """A scale for the scores of one leg; each is a formula of ``formulas.normalise``.

    ``COSINE`` is for cosines alone: half of one plus the score, so that -1 is 0 and 1 is 1.
    ``FROM_ZERO`` is for scores that are never below 0, as BM25's: parts of the highest one.
    ``DISTRIBUTION_BASED_UNCUT`` lets scores that lie far out be below 0 or above 1, as in Qdrant;
    ``DISTRIBUTION_BASED_LLAMA_INDEX`` does, too, and divides by n where Qdrant divides by n - 1.
    """

    NONE = "none"
    MIN_MAX = "min_max"
    Z_SCORE = "z_score"
    DISTRIBUTION_BASED = "distribution_based"
    DISTRIBUTION_BASED_UNCUT = "distribution_based_uncut"
    DISTRIBUTION_BASED_LLAMA_INDEX = "distribution_based_llama_index"
    COSINE = "cosine"
    FROM_ZERO = "from_zero"
    RANK = "rank"

    def apply(self, scores: Scores) -> Scores:
        """The scores on the new scale; higher is still better."""
        return _FORMULAS[self](scores)


_FORMULAS: Mapping[Normalisation, Callable[[Scores], Scores]] = {
    Normalisation.NONE: unchanged,
    Normalisation.MIN_MAX: min_max,
    Normalisation.Z_SCORE: z_score,
    Normalisation.DISTRIBUTION_BASED: distribution_based,
    Normalisation.DISTRIBUTION_BASED_UNCUT: partial(distribution_based, cut=False),
    Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX: partial(
        distribution_based, cut=False, sample=False, equal=1.0
    ),
    Normalisation.COSINE: partial(theoretical_min_max, low=-1.0, high=1.0),
    Normalisation.FROM_ZERO: partial(theoretical_min_max, low=0.0),
    Normalisation.RANK: rank_normalise,
}


def deviations(scores: Mapping[str, float]) -> dict[str, float]:
    """Score minus mean score of every id.

    Measured from the lowest score, so that scores that are nearly equal keep their digits, and
    all deviations of equal scores are exactly 0.

    Args:
        scores: Raw score of every id, in any finite range.

    Returns:
        Deviation of every id; they sum to 0 up to rounding. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Examples:
        >>> deviations({"a": 3.0, "b": 2.0, "c": 1.0})
        {'a': 1.0, 'b': 0.0, 'c': -1.0}

    """
    check_scores(scores)
    low = min(scores.values(), default=0.0)
    above = {node_id: score - low for node_id, score in scores.items()}
    mean = math.fsum(above.values()) / max(len(above), 1)
    return {node_id: height - mean for node_id, height in above.items()}
