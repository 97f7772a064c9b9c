"""Maximal marginal relevance: results that are relevant and do not repeat each other."""

from typing import Any

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.errors import ConfigurationError, ScoreError

Array = npt.NDArray[np.floating[Any]]  # Any: whichever float width the embeddings have


def maximal_marginal_relevance(
    query_similarity: npt.ArrayLike,
    embeddings: npt.ArrayLike,
    *,
    top_k: int,
    lambda_mult: float = 0.5,
) -> list[tuple[int, float]]:
    r"""Pick candidates one by one by relevance minus similarity to those already picked.

    .. math:: \arg\max_{d \notin S} \left[ \lambda \, \mathrm{sim}(d, q)
              - (1 - \lambda) \max_{p \in S} \cos(d, p) \right]

    The first pick is the most similar to the query, for any lambda. Ties go to the lower index.

    Args:
        query_similarity: ``(n,)`` similarity of each candidate to the query, finite; higher is
            better. Should be on the scale of cosine, because it is combined with cosines.
        embeddings: ``(n, dim)`` embedding of each candidate, finite. Rows need no unit length; a
            zero row has similarity 0 to all. Half precision and integers are computed in higher
            precision.
        top_k: Number of picks, at least 1; fewer if there are fewer candidates.
        lambda_mult: 1 is relevance alone, 0 is diversity alone; 0.5 weighs them equally.

    Returns:
        Index and marginal score of each pick, in the order picked. The score is the bracket above,
        with 0 for the maximum of an empty set; in ``[-1, 1]`` for cosine. Scores may rise from one
        pick to the next. Empty for no candidates. Time is ``n * top_k * dim``.

    Raises:
        ConfigurationError: ``top_k`` or ``lambda_mult`` is out of range, or the shapes do not fit.
        ScoreError: A similarity or an embedding is not finite.

    Source:
        Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents
        and Producing Summaries", SIGIR 1998, the definition of MMR,
        https://doi.org/10.1145/290941.291025.

    Examples:
        >>> embeddings = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
        >>> maximal_marginal_relevance([0.75, 0.75, 0.5], embeddings, top_k=2)
        [(0, 0.375), (2, 0.25)]

    """
    _check_choice(top_k, lambda_mult)
    similarity = np.asarray(query_similarity, dtype=np.float64)
    rows = np.asarray(embeddings)
    rows = rows.astype(np.result_type(rows.dtype, np.float32), copy=False)
    if similarity.size == 0 == rows.size:
        return []
    _check_candidates(similarity, rows)
    inverse_length = _inverse_lengths(rows)

    relevance = lambda_mult * similarity
    redundancy = np.full(len(rows), -np.inf)  # each candidate's cosine to the nearest pick
    pick = int(np.argmax(similarity))
    picks = [(pick, float(relevance[pick]))]
    for _ in range(min(top_k, len(rows)) - 1):
        # A matrix product may give equal rows different last digits, which would break ties by
        # position in the block. einsum does not.
        cosine = np.einsum("ij,j->i", rows, rows[pick]) * inverse_length * inverse_length[pick]
        np.maximum(redundancy, cosine, out=redundancy)
        relevance[pick] = -np.inf  # never pick it again
        marginal = relevance - (1.0 - lambda_mult) * redundancy
        pick = int(np.argmax(marginal))
        picks.append((pick, float(marginal[pick])))
    return picks


def _inverse_lengths(rows: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is rejected below
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if not np.isfinite(length).all():
        place = int(np.argmin(np.isfinite(length)))
        raise ScoreError(
            f"embedding {place} has a value that is not finite, or too large; embed it again, or "
            "leave the candidate out"
        )
    inverse: Array = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    return inverse


def _check_choice(top_k: int, lambda_mult: float) -> None:
    if top_k < 1:
        raise ConfigurationError(f"top_k must be at least 1, got {top_k}")
    if not 0.0 <= lambda_mult <= 1.0:
        raise ConfigurationError(
            f"lambda_mult must be between 0 (diversity alone) and 1 (relevance alone), got "
            f"{lambda_mult}"
        )


def _check_candidates(similarity: Array, rows: Array) -> None:
    if similarity.ndim != 1 or rows.shape[:-1] != similarity.shape:
        raise ConfigurationError(
            f"got similarities of shape {similarity.shape} and embeddings of shape {rows.shape}; "
            "expected (n,) and (n, dim), one row per candidate"
        )
    if not np.isfinite(similarity).all():
        place = int(np.argmin(np.isfinite(similarity)))
        raise ScoreError(
            f"the similarity of candidate {place} is {similarity[place]}; expected a finite "
            "number: leave out candidates without one"
        )
