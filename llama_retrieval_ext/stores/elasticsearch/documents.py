"""Nodes as the engine's documents, and back."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.elasticsearch.conditions import PIECES, TERMS
from llama_retrieval_ext.stores.elasticsearch.keyword_terms import indexed_text
from llama_retrieval_ext.stores.elasticsearch.manifest import Manifest
from llama_retrieval_ext.stores.elasticsearch.mapping import DOC, ID, NODE, TEXT, VECTOR
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.elasticsearch.terms import pieces_of, scalar, terms_of
from llama_retrieval_ext.stores.elasticsearch.vectors import node_vector
from llama_retrieval_ext.stores.nodes.stored_node import (
    node_from_text,
    node_id_in,
    node_to_text,
)
from llama_retrieval_ext.stores.nodes.surrogates import utf8_safe

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


def found_in(hit: Json, score: float) -> Found:
    """The node of a document with a score; the node itself is made when it is looked at.

    Of a document whose id alone was asked for, the node cannot be made.
    """
    if ID in hit["fields"]:
        node_id: str = hit["fields"][ID][0]
        return Found.later(node_id, score, lambda: _not_asked_for(node_id))
    text: str = hit["fields"][NODE][0]
    return Found.later(node_id_in(text), score, lambda: node_from_text(text))


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
