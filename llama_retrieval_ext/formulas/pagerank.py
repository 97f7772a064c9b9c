"""Personalised PageRank: scores of nodes by a random walk with restarts."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.errors import ConfigurationError, ScoreError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = npt.NDArray[np.floating[Any]]  # Any: whichever float width the matrix has


def transition_matrix(
    sources: npt.ArrayLike,
    targets: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    *,
    size: int,
) -> "csr_array":
    r"""Return the matrix of a walk that leaves each node by its edges in proportion to weight.

    Args:
        sources: ``(n_edges,) int`` node each edge leaves, from 0.
        targets: ``(n_edges,) int`` node each edge enters. For a walk in both directions pass every
            edge twice.
        weights: ``(n_edges,)`` positive weights; None for equal weights.
        size: Number of nodes.

    Returns:
        ``(size, size) float32``: entry ``[t, s]`` is the probability of going from ``s`` to ``t``.
        A column sums to 1, or to 0 for a node without outgoing edges. Parallel edges add up.

    Raises:
        ConfigurationError: Lengths differ, a node is out of range, or a weight is not positive.

    Examples:
        >>> transition_matrix([0, 0], [1, 2], [3.0, 1.0], size=3).toarray()[:, 0].tolist()
        [0.0, 0.75, 0.25]

    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import, and for graphs only

    # 32-bit indices halve the memory that each step reads.
    index = np.int32 if max(size, np.size(sources)) < 2**31 else np.int64
    rows, columns = np.asarray(targets, dtype=index), np.asarray(sources, dtype=index)
    values = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not len(rows) == len(columns) == len(values):
        raise ConfigurationError(
            "sources, targets and weights must have one entry an edge, got "
            f"{len(columns)}, {len(rows)} and {len(values)}"
        )
    if (
        len(rows)
        and not 0 <= min(rows.min(), columns.min()) <= max(rows.max(), columns.max()) < size
    ):
        raise ConfigurationError(f"nodes must be numbered from 0 to {size - 1}")
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ConfigurationError("weights of edges must be positive, finite numbers")
    leaving = np.bincount(columns, weights=values, minlength=size)
    shares = (values / leaving[columns]).astype(np.float32)
    return csr_array((shares, (rows, columns)), shape=(size, size))


def personalised_pagerank(
    transitions: "csr_array", restart: npt.ArrayLike, *, damping: float = 0.5, steps: int = 15
) -> Floats:
    r"""Score nodes by a random walk that returns to the restart distribution.

    .. math:: p_{t+1} = (1 - d) \, v + d \, (M p_t + m_t \, v), \quad p_0 = v

    with restart distribution v, transition matrix M, damping d, and the mass :math:`m_t` that sits
    on nodes without outgoing edges and so returns to v.

    Args:
        transitions: ``(n, n)`` column-stochastic matrix of `transition_matrix`.
        restart: ``(n,)`` non-negative mass of each node, with any sum; the walk restarts more often
            at nodes with more mass.
        damping: Probability of following an edge, in ``[0, 1)``. 0.5 stays near the restart nodes,
            as in HippoRAG; 0.85 is usual for the web.
        steps: Iterations, at least 1. The remaining change after ``k`` is at most ``damping**k``.

    Returns:
        ``(n,)`` scores that sum to 1, higher is better; all 0 if the restart mass is 0. Time is
        ``steps * edges``.

    Raises:
        ConfigurationError: A parameter is out of range, or the shapes do not fit.
        ScoreError: A restart mass is negative or not finite.

    Source:
        Page, Brin, Motwani and Winograd, "The PageRank Citation Ranking", 1999, section 6
        (personalised), http://ilpubs.stanford.edu:8090/422/; Haveliwala, "Topic-Sensitive
        PageRank", WWW 2002, equation 5, https://doi.org/10.1145/511446.511513. Dangling nodes
        return to the restart distribution, as in Langville and Meyer, "Deeper Inside PageRank",
        2004, section 3.1.

    Examples:
        >>> walk = transition_matrix([0, 1], [1, 0], size=3)
        >>> scores = personalised_pagerank(walk, [1, 0, 0], damping=0.5, steps=30)
        >>> [round(float(score), 3) for score in scores]
        [0.667, 0.333, 0.0]

    """
    size = len(transitions.indptr) - 1
    mass = _restart_distribution(restart, size)
    if not 0 <= damping < 1:
        raise ConfigurationError(f"damping must be in [0, 1), got {damping!r}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ConfigurationError(f"steps must be at least 1, got {steps!r}")
    if not mass.any():
        return mass
    # Column sums of M: 0 for nodes without outgoing edges.
    leaving = np.bincount(transitions.indices, weights=transitions.data, minlength=size)
    dangling = np.flatnonzero(leaving == 0)
    scores = mass
    for _ in range(steps):
        lost = float(scores[dangling].sum())
        scores = damping * (transitions @ scores) + (1 - damping + damping * lost) * mass
    total: Floats = scores / scores.sum()
    return total


def _restart_distribution(restart: npt.ArrayLike, size: int) -> Floats:
    mass = np.asarray(restart, dtype=np.float64)
    if mass.shape != (size,):
        raise ConfigurationError(
            f"restart must have one entry a node, that is shape ({size},), got {mass.shape}"
        )
    if not np.isfinite(mass).all() or (mass < 0).any():
        raise ScoreError("restart masses must be finite and not negative")
    total = mass.sum()
    return (mass / total if total else mass).astype(np.float32)
