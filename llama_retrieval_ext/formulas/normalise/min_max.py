"""Min-max normalisation by the scores at hand."""

from collections.abc import Mapping

from llama_retrieval_ext.formulas.score_check import check_scores


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
