"""Embeddings on their way into the engine: checked, and scaled where the engine would not."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.stores.embedded.manifest import Distance

Vectors = list[list[float]]


# The engine computes in single precision and takes shorter vectors for normalised ones.
_SHORT: Final = 1e-2
_LONG: Final = 1e15


def document_vectors(
    nodes: Sequence[BaseNode], *, dimension: int, distance: Distance, where: object
) -> Vectors:
    """The embeddings of nodes, ready for the engine.

    Args:
        nodes: At least one.
        dimension: What each must have.
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
        vectors.append(vector)
    return _scaled(
        vectors, distance, lambda place: f"the embedding of node {nodes[place].node_id!r}"
    )


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
    return _scaled([list(embedding)], distance, lambda _: "the embedding of the query")[0]


def _scaled(vectors: Vectors, distance: Distance, name: Callable[[int], str]) -> Vectors:
    matrix = np.array(vectors, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused just below
        lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    usable = lengths < (np.inf if distance == "cosine" else _LONG)  # not so NaN
    if not usable.all():
        raise ConfigurationError(
            f"{name(int(np.argmin(usable)))} has a value that is not finite, or is too long; "
            "embed the text again, or leave it out"
        )
    if distance == "cosine":
        odd = (lengths > _LONG) | ((lengths < _SHORT) & (lengths > 0))
        for place in np.flatnonzero(odd):
            vectors[place] = (matrix[place] / lengths[place]).tolist()
    return vectors
