"""How embeddings are compared, and the engine's scores turned back into what they stand for.

The engine makes every similarity positive: https://www.elastic.co/guide/en/elasticsearch/reference/8.19/dense-vector.html
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from llama_retrieval_ext.stores.backend import ScoreRange
from llama_retrieval_ext.stores.nodes.distance import Distance


@dataclass(frozen=True, slots=True)
class Similarity:
    """One way to compare embeddings.

    Attributes:
        name: The engine's name of it.
        range: What its scores mean here.
        raw: From the engine's score to ours; higher is better.
        checked_as: What embeddings are prepared for.
    """

    name: str
    range: ScoreRange
    raw: Callable[[float], float]
    checked_as: Distance


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, 2.0 * score - 1.0))


def _dot(score: float) -> float:
    return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score


def _negative_distance(score: float) -> float:
    return -math.sqrt(max(0.0, 1.0 / score - 1.0))


_COSINE: Final = Similarity("cosine", ScoreRange("cosine", -1.0, 1.0), _cosine, "cosine")

SIMILARITIES: Final[Mapping[Distance, Similarity]] = {
    "cosine": _COSINE,
    "dot": Similarity("max_inner_product", ScoreRange("dot"), _dot, "dot"),
    "euclid": Similarity(
        "l2_norm", ScoreRange("negative_distance", None, 0.0), _negative_distance, "euclid"
    ),
}
# The engine takes it for vectors of length 1 only, where it is the cosine.
_DOT_PRODUCT: Final = replace(_COSINE, name="dot_product")


def of_engine(name: str) -> Similarity:
    """The similarity that the engine calls so."""
    known = {each.name: each for each in (*SIMILARITIES.values(), _DOT_PRODUCT)}
    return known[name]
