"""BM25: the weight of a term in a document."""

from typing import Any, overload

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import LARGEST

Floats = npt.NDArray[np.floating[Any]]  # Any: of whichever width
Numbers = npt.NDArray[np.integer[Any]] | Floats


@overload
def bm25_term_weight(
    tf: float, *, length: float, average_length: float, k1: float = 1.2, b: float = 0.75
) -> float: ...
@overload
def bm25_term_weight(
    tf: Numbers, *, length: float | Numbers, average_length: float, k1: float = 1.2, b: float = 0.75
) -> Floats: ...
def bm25_term_weight(
    tf: float | Numbers,
    *,
    length: float | Numbers,
    average_length: float,
    k1: float = 1.2,
    b: float = 0.75,
) -> float | Floats:
    r"""Return the weight of a term in a document, without the inverse document frequency.

    .. math:: w(t, d) = \frac{tf \, (k_1 + 1)}{tf + k_1 \, (1 - b + b \, |d| / \overline{|d|})}

    Args:
        tf: Count of the term in the document, at least 1; one number, or an array.
        length: Tokens of the document; one number, or an array that broadcasts against ``tf``.
        average_length: Mean number of tokens over the collection, above 0.
        k1: Saturation of repetitions: larger saturates later, 0 counts presence only. 1.2 is the
            default of Lucene and Qdrant.
        b: Effect of length, from 0 (none) to 1 (full). 0.75 is their default.

    Returns:
        The weight, in ``(0, k1 + 1]``; multiply by the inverse document frequency and sum over the
        query's terms. A float, or an array of floats.

    Raises:
        ConfigurationError: ``average_length``, ``k1`` or ``b`` is out of range.

    Source:
        Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, the
        BM25 term weight with the factor (k1 + 1), https://doi.org/10.1561/1500000019; Qdrant does
        the same. Lucene omits that factor since 8.0, which does not change the order.

    Examples:
        >>> bm25_term_weight(2, length=50, average_length=100, k1=1.0, b=0.5)
        1.4545454545454546
        >>> bm25_term_weight(np.array([1, 2]), length=100, average_length=100, k1=1.0).round(3)
        array([1.   , 1.333])

    """
    # Runs for every term of every document: keep it short.
    if not (average_length > 0.0 and 0.0 <= k1 <= LARGEST and 0.0 <= b <= 1.0):
        raise ConfigurationError(
            f"got average_length = {average_length}, k1 = {k1}, b = {b}; expected an average above "
            "0, a finite k1 of 0 or more (1.2), and b from 0 to 1 (0.75)"
        )
    return tf * (k1 + 1.0) / (tf + k1 * (1.0 - b + b * length / average_length))
