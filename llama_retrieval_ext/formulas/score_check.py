"""The check that every formula over scores makes before it computes."""

from collections.abc import Mapping

from llama_retrieval_ext.errors import ScoreError

# Below this, no sum, square or product in these formulas overflows. Above it are only place-holders
# such as `sys.float_info.max`, which mean "no score" and must not be averaged.
LARGEST = 1e100


def check_scores(scores: Mapping[str, float | None]) -> None:
    """Refuse scores that no formula can work with.

    Args:
        scores: Raw score of every id, in any finite range.

    Raises:
        ScoreError: A score is None, NaN, infinite, or beyond ``1e100`` in magnitude.

    Examples:
        >>> check_scores({"a": 0.5, "b": None})
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ScoreError: the score of 'b' is None; ...

    """
    for node_id, score in scores.items():
        # NaN fails both comparisons, so one test catches it together with the infinities.
        if score is None or not -LARGEST <= score <= LARGEST:
            raise ScoreError(
                f"the score of {node_id!r} is {score}; expected a finite number between -1e100 and "
                "1e100: leave out ids without a score, or fuse by rank instead"
            )
