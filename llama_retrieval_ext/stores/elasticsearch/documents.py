"""Nodes as the engine's documents, and back."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import numpy as np
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.elasticsearch.encoding import pieces_of, scalar, terms_of
from llama_retrieval_ext.stores.elasticsearch.filters import PIECES, TERMS, all_of, compiled
from llama_retrieval_ext.stores.elasticsearch.index import DOC, ID, NODE, TEXT, VECTOR, Manifest
from llama_retrieval_ext.stores.elasticsearch.requests import Json
from llama_retrieval_ext.stores.encoding.node_json import (
    node_from_text,
    node_id_in,
    node_to_text,
)
from llama_retrieval_ext.stores.encoding.values import keyword_text, utf8_safe
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.engine.vector_store import Target

# Bytes that the engine takes as the id of a document, and as a term.
_LONGEST_KEY: Final = 512
_LONGEST_ID: Final = 8_000
_DIGEST: Final = "sha256:"
# What nodes that belong to no tenant are routed by; a tenant's own value is longer.
_NO_TENANT: Final = "-"


def document_of(node: BaseNode, manifest: Manifest, *, index: str) -> Json:
    """Everything that is stored of a node.

    Raises:
        ConfigurationError: It has no usable embedding, or something in it cannot be stored.
        DimensionMismatchError: Its embedding has another dimension.
    """
    if len(node.node_id) > _LONGEST_ID:
        raise ConfigurationError(
            f"a node id has at most {_LONGEST_ID} characters, got {len(node.node_id)}: "
            f"{node.node_id[:50]!r}..."
        )
    vector = node_vector(
        node,
        dimension=manifest.dimension or len(node.embedding or ()),
        distance=manifest.distance,
        index=index,
    )
    fields: Json = {
        ID: utf8_safe(node.node_id),
        DOC: None if node.ref_doc_id is None else scalar(node.ref_doc_id),
        NODE: utf8_safe(node_to_text(node)),
        TEXT: indexed_text(node, manifest),
        TERMS: terms_of(node.metadata),
        PIECES: pieces_of(node.metadata),
        VECTOR: vector,
    }
    return {name: value for name, value in fields.items() if value}


def key_of(node_id: str) -> str:
    """The engine's id for a node id: itself where it can be, one each, the same for ever."""
    safe = utf8_safe(node_id)
    if len(safe.encode()) <= _LONGEST_KEY and safe and not safe.startswith(_DIGEST):
        return safe
    return f"{_DIGEST}{sha256(safe.encode()).hexdigest()}"


def route_of(tenant_id: object) -> str:
    """What the nodes of a tenant are routed by."""
    return scalar(tenant_id) if isinstance(tenant_id, str) else _NO_TENANT


def route_of_node(node: BaseNode) -> str:
    """What a node is routed by."""
    return route_of(node.metadata.get(TENANT_KEY))


def found_in(hit: Json, score: float) -> Candidate:
    """The node of a document with a score; the node itself is made when it is looked at.

    Of a document whose id alone was asked for, the node cannot be made.
    """
    if ID in hit["fields"]:
        node_id: str = hit["fields"][ID][0]
        return Candidate.later(node_id, score, lambda: _not_asked_for(node_id))
    text: str = hit["fields"][NODE][0]
    return Candidate.later(node_id_in(text), score, lambda: node_from_text(text))


def node_of(source: Json, *, dimension: int) -> BaseNode:
    """The node of a document with its embedding.

    Args:
        source: What the engine returned of it.
        dimension: Of the embeddings; zeros are not stored.
    """
    node = node_from_text(source[NODE])
    vector: Sequence[float] = source.get(VECTOR) or [0.0] * dimension
    node.embedding = list(vector)
    return node


def _not_asked_for(node_id: str) -> BaseNode:
    raise LookupError(f"only the id was asked for of {node_id!r}")


# What servers take at least in a query. A word more than once counts more than once.
_MOST: Final = 1024


def indexed_text(node: BaseNode, manifest: Manifest) -> str:
    """What keyword search looks into: terms joined by spaces, or the text for the server to cut."""
    text = keyword_text(node)
    if manifest.analyzer is not None:
        return utf8_safe(text)
    return " ".join(map(utf8_safe, manifest.tokenizer.tokens(text)))


def asked_text(text: str, manifest: Manifest) -> str:
    """What is looked for, in the same form; of more than 1,024 terms the first different ones."""
    if manifest.analyzer is not None:
        return utf8_safe(text)
    return " ".join(map(utf8_safe, _limited(manifest.tokenizer.query_tokens(text))))


def _limited(tokens: list[str]) -> Iterable[str]:
    return tokens if len(tokens) <= _MOST else list(dict.fromkeys(tokens))[:_MOST]


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


def query_for(target: Target) -> Json | None:
    """The query for the nodes that are meant; None for every node.

    Raises:
        InvalidFilterError: The filters cannot mean anything.
        UnsupportedFilterError: The engine cannot evaluate them.
    """
    parts: list[Json] = []
    if target.node_ids is not None:
        parts.append({"ids": {"values": [key_of(node_id) for node_id in target.node_ids]}})
    if target.doc_ids is not None:
        parts.append({"terms": {DOC: [scalar(doc_id) for doc_id in target.doc_ids]}})
    condition = target.condition
    if condition is not None:
        parts.append(compiled(condition))
    return all_of(parts) if parts else None
