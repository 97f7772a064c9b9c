"""A linear map of query vectors towards the vectors of what answers them."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]


def query_adapter(queries: npt.ArrayLike, targets: npt.ArrayLike, *, ridge: float) -> Array:
    r"""Return the factor of the adapter for `adapted`: ridge regression towards the identity.

    .. math:: \arg\min_W \sum_i \lVert W q_i - t_i \rVert^2 + \lambda \lVert W - I \rVert^2,
              \qquad W q = q + B^\top Q q, \qquad B = (Q Q^\top + \lambda I)^{-1} (T - Q)

    Args:
        queries: ``(n, dim)`` unit vectors of questions, the rows of :math:`Q`.
        targets: ``(n, dim)`` unit vectors of what answers them, the rows of :math:`T`.
        ridge: :math:`\lambda`, above 0; larger is nearer to the identity.

    Returns:
        ``(n, dim)``, :math:`B`.

    Source:
        Hoerl and Kennard, "Ridge Regression", Technometrics 12(1), 1970,
        https://doi.org/10.1080/00401706.1970.10488634, with the identity in place of 0, and in the
        form of kernels, whose size is that of the questions.

    Examples:
        >>> adapted([1.0, 0.0], [[1.0, 0.0]], query_adapter([[1, 0]], [[0, 1]], ridge=1)).round(2)
        array([0.71, 0.71])

    """
    q, t = np.asarray(queries, np.float64), np.asarray(targets, np.float64)
    kernel = q @ q.T + ridge * np.eye(len(q))
    return np.asarray(np.linalg.solve(kernel, t - q), np.float64)


def adapted(query: npt.ArrayLike, queries: npt.ArrayLike, factor: npt.ArrayLike) -> Array:
    """Return the adapted vector of a query, with its length: ``(dim,)``."""
    vector = np.asarray(query, np.float64)
    moved = vector + (np.asarray(queries) @ vector) @ np.asarray(factor)
    size = float(np.linalg.norm(vector)) / max(float(np.linalg.norm(moved)), 1e-12)
    return np.asarray(moved * size, np.float64)
