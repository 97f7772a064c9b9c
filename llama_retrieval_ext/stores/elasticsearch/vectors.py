"""Embeddings on their way into the engine: checked, and in single precision."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.stores.nodes.distance import Distance

# Squares of longer ones overflow in single precision.
_LONGEST: Final = 1e15
_DECIMALS: Final = 8


def node_vector(
    node: BaseNode, *, dimension: int, distance: Distance, index: str
) -> list[float] | None:
    """The embedding of a node; None for zeros where cosine cannot place them.

    Raises:
        ConfigurationError: There is none, or one with a value that is not finite.
        DimensionMismatchError: It has another dimension than the index.
    """
    if not node.embedding:
        raise ConfigurationError(
            f"node {node.node_id!r} has no embedding; embed the nodes before they are added, as "
            "VectorStoreIndex and KnowledgeBase do"
        )
    if len(node.embedding) != dimension:
        raise DimensionMismatchError(
            f"node {node.node_id!r} has an embedding of dimension {len(node.embedding)}, the index "
            f"{index!r} takes {dimension}; use the embedding model that it was filled with"
        )
    return _scaled(node.embedding, distance, f"the embedding of node {node.node_id!r}")


def query_vector(
    embedding: Sequence[float], *, dimension: int, distance: Distance, index: str
) -> list[float] | None:
    """The embedding of a query; None for zeros where cosine cannot place them.

    Raises:
        ConfigurationError: A value is not finite.
        DimensionMismatchError: It has another dimension than the index.
    """
    if len(embedding) != dimension:
        raise DimensionMismatchError(
            f"the query has an embedding of dimension {len(embedding)}, the index {index!r} holds "
            f"{dimension}; ask with the embedding model that it was filled with"
        )
    return _scaled(embedding, distance, "the embedding of the query")


def _scaled(embedding: Sequence[float], distance: Distance, name: str) -> list[float] | None:
    vector = np.asarray(embedding, dtype=np.float64)
    largest = float(np.abs(vector).max())
    limit = np.inf if distance == "cosine" else _LONGEST
    if not largest < limit:  # not so NaN
        raise ConfigurationError(
            f"{name} has a value that is not finite, or is too long; embed the text again, or "
            "leave it out"
        )
    if distance == "cosine":
        if largest == 0.0:
            return None
        vector = vector / largest  # so that no square overflows or vanishes
        # More digits than single precision has at this length would only be longer to write.
        short: list[float] = np.round(vector / np.linalg.norm(vector), _DECIMALS).tolist()
        return short
    single: list[float] = vector.astype(np.float32).tolist()
    return single
