"""The best of many scores, without sorting them all."""

import numpy as np
import numpy.typing as npt

_LEAST_BLOCKS = 512


def best(scores: npt.NDArray[np.float32], top_k: int) -> npt.NDArray[np.int64]:
    """Positions of the highest scores above 0, best first; equal scores by position.

    Args:
        scores: None of them negative; ``(n,)``.
        top_k: How many positions to return, at least 1; fewer where fewer scores are above 0.

    Examples:
        >>> print(best(np.array([0, 2, 3, 2, 0], np.float32), 2))
        [2 1]

    """
    floor = _reached_by(scores, top_k)
    candidates = np.flatnonzero(scores >= floor if floor > 0.0 else scores)
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order[:top_k]]


def _reached_by(scores: npt.NDArray[np.float32], top_k: int) -> float:
    """A score that at least ``top_k`` of the scores reach, and few more do; 0 if not worth it.

    The maxima of blocks are themselves scores: what ``top_k`` of them reach, so many scores do.
    This reads the scores once, where partitioning them moves them about: a tenth of the time.
    """
    blocks = max(_LEAST_BLOCKS, 8 * top_k)
    rows = len(scores) // blocks
    if rows < 2:  # noqa: PLR2004 - blocks of one score are the scores
        return 0.0
    maxima = scores[: rows * blocks].reshape(rows, blocks).max(axis=0)
    return float(np.partition(maxima, blocks - top_k)[blocks - top_k])
