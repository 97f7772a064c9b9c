"""Conversion of embeddings for engines, and of distances to scores: higher is better."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import neg
from typing import Final, Literal, TypeAlias

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError

Distance: TypeAlias = Literal["cosine", "dot", "euclid"]


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """Kind and range of raw scores. Higher is always better: backends negate distances.

    Attributes:
        kind: ``cosine``, ``dot``, ``bm25``, ``negative_distance`` or ``unknown``.
        low: Smallest possible score; None if unbounded or unknown.
        high: Largest possible score; None if unbounded or unknown.
    """

    kind: str = "unknown"
    low: float | None = None
    high: float | None = None


def cosine_score(score: float) -> float:
    """Return a cosine clipped to [-1, 1]; single precision exceeds it by about 1e-7."""
    return score if -1.0 <= score <= 1.0 else min(1.0, max(-1.0, score))


# Converts an engine's cosines, inner products and distances to our scores.
SCORES: Final[Mapping[Distance, Callable[[float], float]]] = {
    "cosine": cosine_score,
    "dot": float,
    "euclid": neg,
}
SCORE_RANGES: Final[Mapping[Distance, ScoreRange]] = {
    "cosine": ScoreRange("cosine", -1.0, 1.0),
    "dot": ScoreRange("dot"),
    "euclid": ScoreRange("negative_distance", None, 0.0),
}
BM25_RANGE: Final = ScoreRange("bm25", 0.0, None)

Vectors = list[list[float]]

# Engines compute in single precision: the squared length of longer vectors overflows, and shorter
# vectors are treated as normalised.
_LONG: Final = 1e15
_SHORT: Final = 1e-2


def document_vectors(
    nodes: Sequence[BaseNode], *, dimension: int, distance: Distance, where: object
) -> Vectors:
    """Return the checked embeddings of nodes for an engine."""
    vectors: Vectors = []
    for node in nodes:
        vector = node.embedding
        if not vector:
            raise ConfigurationError(
                f"node {node.node_id!r} has no embedding; embed the nodes before they are added, "
                "as VectorStoreIndex and KnowledgeBase do"
            )
        if len(vector) != dimension:
            raise DimensionMismatchError(
                f"node {node.node_id!r} has an embedding of dimension {len(vector)}, {where} takes "
                f"{dimension}; use the embedding model that the store was filled with"
            )
        vectors.append(_ready(vector, distance, node))
    return vectors


def query_vector(
    embedding: Sequence[float], *, dimension: int, distance: Distance, where: object
) -> list[float]:
    """Return the checked embedding of a query for an engine."""
    if len(embedding) != dimension:
        raise DimensionMismatchError(
            f"the query has an embedding of dimension {len(embedding)}, {where} holds {dimension}; "
            "use the embedding model that the store was filled with"
        )
    return _ready(list(embedding), distance, None)


def _ready(vector: list[float], distance: Distance, node: BaseNode | None) -> list[float]:
    try:
        length = math.hypot(*vector)
    except TypeError:  # such as None, from a model that failed
        length = math.nan
    if not length < (math.inf if distance == "cosine" else _LONG):  # neither is NaN
        whose = "the query" if node is None else f"node {node.node_id!r}"
        raise ConfigurationError(
            f"the embedding of {whose} has a value that is not finite, or is too long; embed the "
            "text again, or leave it out"
        )
    if distance == "cosine" and length and not _SHORT < length < _LONG:
        return [value / length for value in vector]
    return vector
