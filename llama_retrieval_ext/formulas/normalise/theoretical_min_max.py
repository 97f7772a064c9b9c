"""Min-max normalisation by the scale that the retriever is known to have."""

from collections.abc import Mapping

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.score_check import LARGEST, check_scores


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
