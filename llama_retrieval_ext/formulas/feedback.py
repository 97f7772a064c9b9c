"""Formulas of pseudo-relevance feedback: Rocchio's for embeddings, RM3 for words."""

from collections import Counter
from collections.abc import Mapping, Sequence

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


def relevance_model(
    query: Mapping[str, float],
    documents: Sequence[Mapping[str, float]],
    scores: Sequence[float],
    *,
    terms: int = 10,
    original: float = 0.5,
) -> dict[str, float]:
    r"""Mix the words of a query with the words of its best hits.

    .. math:: P'(w) = \lambda \, \frac{n(w, q)}{|q|} + (1 - \lambda) \, P(w | R), \qquad
        P(w | R) \propto \sum_d \frac{n(w, d)}{|d|} \, P(d | q)

    :math:`P(d | q)` is the document's score divided by the sum of the scores above 0, or equal for
    all documents if no score is above 0. Only the most likely terms of :math:`P(w | R)` are kept,
    and scaled to sum to 1.

    Args:
        query: Count of each term in the query.
        documents: Count of each term in each hit.
        scores: Scores of the hits.
        terms: Number of terms of the hits to keep, at least 1; ties go to the first by name.
        original: :math:`\lambda`, from 0 to 1: the share of the query.

    Returns:
        The probability of each term, summing to 1; only those of the query if the hits have no
        terms.

    Raises:
        ConfigurationError: ``terms`` or ``original`` is out of range.

    Source:
        Abdul-Jaleel et al., "UMass at TREC 2004: Novelty and HARD", 2004,
        https://trec.nist.gov/pubs/trec13/papers/umass.novelty.hard.pdf (RM3), over Lavrenko and
        Croft, "Relevance-Based Language Models", SIGIR 2001, https://doi.org/10.1145/383952.383972
        (RM1); scores as P(d | q), as in Anserini.

    Examples:
        >>> relevance_model({"leave": 1}, [{"leave": 1, "days": 3}, {}], [2.0, 1.0])
        {'leave': 0.625, 'days': 0.375}

    """
    if terms < 1 or not 0.0 <= original <= 1.0:
        raise ConfigurationError(
            f"got terms={terms} and original={original}; expected at least one term, and a share "
            "of the query from 0 to 1"
        )
    share = [max(score, 0.0) for score in scores]
    share = share if any(share) else [1.0] * len(share)
    weights: Counter[str] = Counter()
    for document, weight in zip(documents, share, strict=True):
        length = sum(document.values())
        for term, count in document.items():
            weights[term] += weight * count / length  # type: ignore[assignment]  # a float
    kept = sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:terms]
    own, total = sum(query.values()), sum(weight for _, weight in kept)
    left = original if total else 1.0
    mixed = {term: left * count / own for term, count in query.items()}
    for term, weight in kept:
        mixed[term] = mixed.get(term, 0.0) + (1.0 - left) * weight / total
    return mixed
