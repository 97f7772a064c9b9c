"""Checks of scores, and normalisations that bring those of one leg to a common scale."""

import math
from collections.abc import Callable, Mapping
from functools import partial

from llama_retrieval_ext.arguments import NamedEnum
from llama_retrieval_ext.errors import ScoreError

# Below this, no sum, square or product in these formulas overflows. Larger values are placeholders
# such as `sys.float_info.max`, which mean "no score" and must not be averaged.
LARGEST = 1e100


def check_scores(scores: Mapping[str, float | None]) -> None:
    """Raise if a score is None, not finite, or too large.

    Raises:
        ScoreError: A score is None, NaN, infinite, or beyond ``1e100`` in magnitude.

    Examples:
        >>> check_scores({"a": 0.5, "b": None})
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ScoreError: the score of 'b' is None; ...

    """
    values = scores.values()
    try:
        # A sum is fast, and not finite if a score is not.
        if not values or (math.isfinite(sum(values)) and max(map(abs, values)) <= LARGEST):  # type: ignore[arg-type]
            return
    except TypeError:  # None
        pass
    for node_id, score in scores.items():
        # NaN fails both comparisons, so one test catches NaN and the infinities.
        if score is None or not -LARGEST <= score <= LARGEST:
            raise ScoreError(
                f"the score of {node_id!r} is {score}; expected a finite number between -1e100 and "
                "1e100: leave out ids without a score, or fuse by rank instead"
            )


def theoretical_min_max(
    scores: Mapping[str, float], *, low: float, high: float | None = None
) -> dict[str, float]:
    r"""Scale scores linearly from the least possible to the highest score.

    .. math:: s'(d) = \frac{s(d) - l}{h - l}

    Args:
        scores: Raw score of every id, finite; higher is better.
        low: The lowest score that the retriever can give: -1 for cosine, 0 for BM25.
        high: The highest score that it can give, above ``low``, such as 1 for cosine. None takes
            the maximum of ``scores``, as in the paper, for retrievers without a known maximum.

    Returns:
        Normalised score of every id, in ``[0, 1]``, in the same order. Equal scores (also a single
        one) follow the formula: with ``high`` their position on the scale, without it 1.0. Scores
        at ``low`` give 0.0, even if all are equal: a keyword score of 0 is no match. A score
        outside the scale, such as a rounded cosine, is clipped. Empty for no scores.

    Raises:
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
    check_scores(scores)
    top = max(scores.values(), default=low) if high is None else high
    if top <= low:
        return dict.fromkeys(scores, 0.0)
    span = top - low
    return {node_id: min(max((score - low) / span, 0.0), 1.0) for node_id, score in scores.items()}


def min_max(scores: Mapping[str, float]) -> dict[str, float]:
    r"""Scale scores so that the lowest becomes 0 and the highest 1.

    .. math:: s'(d) = \frac{s(d) - \min s}{\max s - \min s}

    The lowest score always gets 0, as if the id had not been found. `theoretical_min_max` avoids
    this if the scale of the scores is known.

    Args:
        scores: Raw score of every id, in any finite range; higher is better.

    Returns:
        Normalised score of every id, in ``[0, 1]``, in the same order. Equal scores (also a single
        one) all give 1.0 if they are above 0, else 0.0, as in LlamaIndex. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Lee, "Analyses of Multiple Evidence Combination", SIGIR 1997, the normalised similarity,
        https://doi.org/10.1145/258525.258587. The value for equal scores (0 / 0 in the formula) is
        LlamaIndex's; ranx gives 0.0.

    Examples:
        >>> min_max({"a": 12.0, "b": 9.0, "c": 8.0})
        {'a': 1.0, 'b': 0.25, 'c': 0.0}
        >>> min_max({"a": 0.3}), min_max({"a": 0.0})
        ({'a': 1.0}, {'a': 0.0})

    """
    if not scores:
        return {}
    check_scores(scores)
    low, high = min(scores.values()), max(scores.values())
    if low == high:
        return dict.fromkeys(scores, float(high > 0.0))
    span = high - low
    return {node_id: (score - low) / span for node_id, score in scores.items()}


def distribution_based(
    scores: Mapping[str, float], *, as_llama_index: bool = False
) -> dict[str, float]:
    r"""Scale scores linearly from three standard deviations below the mean to three above.

    .. math:: s'(d) = \frac{s(d) - (\mu - 3\sigma)}{6\sigma}, \qquad
              \sigma^2 = \frac{1}{n - 1} \sum_d (s(d) - \mu)^2

    The sample standard deviation (``/ (n - 1)``) is that of Qdrant, so that fusion here and in the
    engine agrees. Scores beyond three deviations stay below 0 or above 1: the best of many keyword
    hits is usually that far above the mean, and its lead counts.

    Args:
        scores: Raw score of every id, in any finite range; higher is better.
        as_llama_index: Whether to compute as LlamaIndex does: the population standard deviation
            (``/ n``), and equal scores as in `min_max`.

    Returns:
        Normalised score of every id, in the same order, around a mean of 0.5. Equal scores (also a
        single one) all give 0.5, the position of the mean. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Mazzeschi, "Distribution-Based Score Fusion (DBSF), a new approach to Vector Search
        Ranking", 2023,
        https://medium.com/plain-simple-software/distribution-based-score-fusion-dbsf-a-new-approach-to-vector-search-ranking-f87c37488b18,
        as in Qdrant, https://qdrant.tech/documentation/concepts/hybrid-queries/.

    Examples:
        >>> distribution_based({"a": 3.0, "b": 2.0, "c": 1.0})
        {'a': 0.6666666666666666, 'b': 0.5, 'c': 0.33333333333333337}
        >>> distribution_based({"a": 0.9})
        {'a': 0.5}

    """
    distance = deviations(scores)
    norm = math.hypot(*distance.values())
    if norm == 0.0:
        return min_max(scores) if as_llama_index else dict.fromkeys(scores, 0.5)
    # sigma is norm / root; dividing by the norm first cannot overflow, even if it is tiny.
    root = math.sqrt(len(distance) - (not as_llama_index))
    return {node_id: 0.5 + gap / norm * root / 6.0 for node_id, gap in distance.items()}


def z_score(scores: Mapping[str, float]) -> dict[str, float]:
    r"""Return scores as numbers of standard deviations above or below their mean.

    .. math:: s'(d) = \frac{s(d) - \mu}{\sigma}, \qquad
              \sigma^2 = \frac{1}{n} \sum_d (s(d) - \mu)^2

    The standard deviation is the population one (``/ n``), because no further scores exist.

    Args:
        scores: Raw score of every id, in any finite range; higher is better.

    Returns:
        Normalised score of every id, in ``[-sqrt(n), sqrt(n)]`` around a mean of 0, in the same
        order. Equal scores (also a single one) all give 0.0, the mean. `weighted_sum` also uses 0.0
        for an id that a leg did not find. Empty for no scores.

    Raises:
        ScoreError: A score is None or not finite.

    Source:
        Montague and Aslam, "Relevance Score Normalization for Metasearch", CIKM 2001, ZMUV,
        https://doi.org/10.1145/502585.502657. The value for equal scores (0 / 0 in the formula) is
        our choice.

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
    # sigma is norm / sqrt(n); dividing by the norm first cannot overflow, even if it is tiny.
    root_n = math.sqrt(len(distance))
    return {node_id: gap / norm * root_n for node_id, gap in distance.items()}


def unchanged(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores unchanged.

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
    """Scale for the scores of one leg; each member is a formula of this module.

    ``COSINE`` is only for cosines: ``(1 + score) / 2``, which maps -1 to 0 and 1 to 1.
    ``FROM_ZERO`` is for scores that are never below 0, such as BM25: the score divided by the
    highest one. ``DISTRIBUTION_BASED`` is Qdrant's formula, ``DISTRIBUTION_BASED_LLAMA_INDEX``
    LlamaIndex's, which divides by n instead of n - 1.
    """

    NONE = "none"
    MIN_MAX = "min_max"
    Z_SCORE = "z_score"
    DISTRIBUTION_BASED = "distribution_based"
    DISTRIBUTION_BASED_LLAMA_INDEX = "distribution_based_llama_index"
    COSINE = "cosine"
    FROM_ZERO = "from_zero"

    def apply(self, scores: Scores) -> Scores:
        """Return the scores on the new scale; higher is better."""
        return _FORMULAS[self](scores)


_FORMULAS: Mapping[Normalisation, Callable[[Scores], Scores]] = {
    Normalisation.NONE: unchanged,
    Normalisation.MIN_MAX: min_max,
    Normalisation.Z_SCORE: z_score,
    Normalisation.DISTRIBUTION_BASED: distribution_based,
    Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX: partial(distribution_based, as_llama_index=True),
    Normalisation.COSINE: partial(theoretical_min_max, low=-1.0, high=1.0),
    Normalisation.FROM_ZERO: partial(theoretical_min_max, low=0.0),
}


def deviations(scores: Mapping[str, float]) -> dict[str, float]:
    """Return for every id its score minus the mean score.

    Computed relative to the lowest score. Nearly equal scores therefore keep their digits, and
    deviations of equal scores are exactly 0.

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
