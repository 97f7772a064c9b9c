"""Weights of a linear score, learned from pairs of a better and a worse document."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

# Far below what a ranking shows.
_NEAR = 1e-8


def pairwise_weights(
    differences: npt.ArrayLike,
    shares: npt.ArrayLike,
    prior: npt.ArrayLike,
    *,
    strength: npt.ArrayLike,
    least: npt.ArrayLike,
) -> Array:
    r"""Return the weights that order pairs best, near those of a prior.

    .. math:: \arg\min_{w \ge l} \sum_i s_i \ln(1 + e^{-w \cdot x_i})
              + \sum_j \lambda_j (w_j - p_j)^2

    Args:
        differences: ``(pairs, features)``, the features of the better minus those of the worse.
        shares: ``(pairs,)`` weight of each pair.
        prior: ``(features,)`` weights without pairs, at least ``least``.
        strength: ``(features,)`` strength of the prior, above 0.
        least: ``(features,)`` lowest weights.

    Returns:
        ``(features,)`` weights; those of the prior for no pairs.

    Source:
        The pairwise loss: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005,
        https://doi.org/10.1145/1102351.1102363, equation 3, for a linear score.

    Examples:
        >>> pairs = [[1.0, 0.0]] * 50
        >>> pairwise_weights(pairs, [1] * 50, [1, 1], strength=[1, 1], least=[0, 0]).round(2)
        array([2.65, 1.  ])

    """
    x, s, p, strengths, lowest = map(np.asarray, (differences, shares, prior, strength, least))

    def loss(w: Array) -> float:
        return float(s @ np.logaddexp(0, -(x @ w)) + strengths @ (w - p) ** 2)

    w: Array = p.astype(np.float64)
    for _ in range(100):  # of Newton's method; some ten are enough
        wrong = 1 / (1 + np.exp(np.clip(x @ w, -50, 50)))
        gradient = 2 * strengths * (w - p) - (s * wrong) @ x
        is_free = (w > lowest) | (gradient < 0)
        curvature = (x.T * (s * wrong * (1 - wrong))) @ x + np.diag(2 * strengths)
        step = np.zeros_like(w)
        step[is_free] = np.linalg.solve(curvature[np.ix_(is_free, is_free)], gradient[is_free])
        while loss(after := np.maximum(w - step, lowest)) > loss(w) and np.abs(step).max() > _NEAR:
            step /= 2
        moved, w = np.abs(after - w).max(initial=0.0), after
        if moved < _NEAR:
            break
    return w
