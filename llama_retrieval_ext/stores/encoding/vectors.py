"""Embeddings on their way into the engine: checked, and scaled where the engine would not."""

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError

Distance: TypeAlias = Literal["cosine", "dot", "euclid"]


Vectors = list[list[float]]

# The engine computes in single precision: the square of a longer vector overflows, and a shorter
# one passes for normalised.
_LONG: Final = 1e15
_SHORT: Final = 1e-2


def document_vectors(
    nodes: Sequence[BaseNode], *, dimension: int, distance: Distance, where: object
) -> Vectors:
    """The embeddings of nodes, ready for the engine.

    Args:
        nodes: The nodes.
        dimension: What each embedding must have.
        distance: How the store compares them.
        where: The store, for messages.

    Raises:
        ConfigurationError: A node has no embedding, or one with a value that is not finite.
        DimensionMismatchError: A node has an embedding of another dimension.
    """
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
    """The embedding of a query, ready for the engine.

    Raises:
        ConfigurationError: A value is not finite.
        DimensionMismatchError: It has another dimension than the store.
    """
    if len(embedding) != dimension:
        raise DimensionMismatchError(
            f"the query has an embedding of dimension {len(embedding)}, {where} holds {dimension}; "
            "ask with the embedding model that the store was filled with"
        )
    return _ready(list(embedding), distance, None)


def _ready(vector: list[float], distance: Distance, node: BaseNode | None) -> list[float]:
    length = math.hypot(*vector)
    if not length < (math.inf if distance == "cosine" else _LONG):  # neither is NaN
        whose = "the query" if node is None else f"node {node.node_id!r}"
        raise ConfigurationError(
            f"the embedding of {whose} has a value that is not finite, or is too long; embed the "
            "text again, or leave it out"
        )
    if distance == "cosine" and length and not _SHORT < length < _LONG:
        return [value / length for value in vector]
    return vector
