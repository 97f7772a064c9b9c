"""Logistic regression: the probability of an outcome from a few numbers."""

import math
from collections.abc import Sequence

import numpy as np

from llama_retrieval_ext.errors import ConfigurationError

# Newton's method doubles the correct digits with each step.
_STEPS = 30
_PRECISION = 1e-9
# Beyond e^-30 a probability is certain, and its logarithm is not safe to compute.
_LARGEST = 30.0


def logistic(x: float) -> float:
    r"""Map a number to a probability.

    .. math:: \sigma(x) = \frac{1}{1 + e^{-x}}

    Args:
        x: Any finite number; clipped to [-30, 30].

    Returns:
        The probability, in ``(0, 1)``; 0.5 for 0.

    Examples:
        >>> logistic(0.0), round(logistic(2.0), 3), logistic(-1e9) > 0
        (0.5, 0.881, True)

    """
    return 1.0 / (1.0 + math.exp(-min(max(x, -_LARGEST), _LARGEST)))


def logistic_regression(
    rows: Sequence[Sequence[float]], labels: Sequence[bool], *, l2: float = 1.0
) -> tuple[list[float], float]:
    r"""Fit the weights and the intercept that make the labels most likely.

    .. math:: \max_{w, b} \sum_i \log \sigma(y_i (w \cdot z_i + b)) - \frac{\lambda}{2} |w|^2

    with :math:`z_i` the row on the scale on which each column has mean 0 and deviation 1, and
    :math:`y_i` 1 or -1. A column that never varies gets the weight 0.

    Args:
        rows: The numbers of each example; all rows have the same length.
        labels: The outcome of each example; both must occur.
        l2: :math:`\lambda`, at least 0: the penalty on large weights. Above 0 a solution exists
            even if the rows separate the outcomes.

    Returns:
        A weight per column of the unscaled rows, and the intercept: the probability of a row is
        ``logistic(dot(weights, row) + intercept)``.

    Raises:
        ConfigurationError: All labels are equal, or the number of labels and rows differs.

    Source:
        Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", 2nd edition, 2009,
        section 4.4.1 (Newton's method) and equation 4.31 (with squared weights in place of absolute
        ones), https://hastie.su.domains/ElemStatLearn/.

    Examples:
        >>> (weight,), intercept = logistic_regression([[0], [1], [2], [3]], [0, 0, 1, 1])
        >>> [round(logistic(weight * x + intercept), 2) for x in (0, 1.5, 3)]
        [0.22, 0.5, 0.78]

    """
    x, y = np.asarray(rows, dtype=float), np.asarray(labels, dtype=float)
    if len(x) != len(y) or len(set(y.tolist())) < 2:  # noqa: PLR2004 - both outcomes
        raise ConfigurationError(
            f"got {len(x)} rows and {len(y)} labels, {int(y.sum())} of them true; expected one "
            "label a row, and both outcomes"
        )
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    varies = deviation > 0
    scale = np.where(varies, deviation, 1.0)
    z = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    penalty = np.append(np.full(x.shape[1], l2), 0.0)
    w = np.zeros(z.shape[1])
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(z @ w, -_LARGEST, _LARGEST)))
        gradient = z.T @ (p - y) + penalty * w
        hessian = (z.T * (p * (1.0 - p))) @ z + np.diag(penalty + _PRECISION)
        step = np.linalg.solve(hessian, gradient)
        w -= step
        if np.abs(step).max() < _PRECISION:
            break
    weights = np.where(varies, w[:-1] / scale, 0.0)
    return weights.tolist(), float(w[-1] - weights @ mean)
