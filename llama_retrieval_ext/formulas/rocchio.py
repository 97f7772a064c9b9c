"""Rocchio: moves a query embedding towards relevant embeddings."""

from collections.abc import Sequence

import numpy as np

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.cosine import Vector, matrix


def rocchio(
    query: Vector, relevant: Sequence[Vector], *, alpha: float = 1.0, beta: float = 0.75
) -> list[float]:
    r"""Move the embedding of a query towards the mean of others.

    .. math:: q' = \alpha \, q + \beta \, \frac{1}{|R|} \sum_{d \in R} d

    Args:
        query: ``(dim,)``.
        relevant: Embeddings of relevant texts, ``(dim,)`` each; if empty, only the query counts.
        alpha: Weight of the query, at least 0.
        beta: Weight of the mean, at least 0; not both 0.

    Returns:
        The embedding, ``(dim,)``, not normalised to unit length.

    Raises:
        ConfigurationError: A weight is below 0, or both are 0.
        DimensionMismatchError: An embedding has another length than the query's.

    Source:
        Rocchio, "Relevance feedback in information retrieval", 1971; Manning, Raghavan and Schütze,
        "Introduction to Information Retrieval", 2008, equation 9.3, without irrelevant texts,
        https://nlp.stanford.edu/IR-book/html/htmledition/the-rocchio71-algorithm-1.html.

    Examples:
        >>> rocchio([1.0, 0.0], [[0.0, 1.0], [0.0, 3.0]], beta=0.5)
        [1.0, 1.0]

    """
    if min(alpha, beta) < 0 or alpha + beta == 0:
        raise ConfigurationError(
            f"got alpha={alpha} and beta={beta}; both must be at least 0, and one above"
        )
    own = np.asarray(query, dtype=float)
    if not len(relevant):
        return own.tolist()  # type: ignore[no-any-return]  # of floats
    mean = matrix(relevant, dim=len(own)).mean(axis=0, dtype=float)
    return (alpha * own + beta * mean).tolist()  # type: ignore[no-any-return]  # of floats
