"""Nodes made into the rows of a collection."""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.conditions import COLUMNS, column_value
from llama_retrieval_ext.stores.milvus.fields import fields_of
from llama_retrieval_ext.stores.milvus.manifest import Manifest
from llama_retrieval_ext.stores.milvus.safe_text import SEPARATOR, safe_text
from llama_retrieval_ext.stores.milvus.schema import (
    DENSE,
    DOC,
    DOC_KEY,
    ID,
    LONGEST,
    LONGEST_FIELDS,
    LONGEST_NAME,
    NODE,
    TERMS,
)
from llama_retrieval_ext.stores.milvus.terms import document_terms
from llama_retrieval_ext.stores.nodes.document_key import document_key
from llama_retrieval_ext.stores.nodes.keyword_text import keyword_text
from llama_retrieval_ext.stores.nodes.stored_node import node_to_text
from llama_retrieval_ext.stores.nodes.surrogates import utf8_safe
from llama_retrieval_ext.stores.nodes.vectors import document_vectors

Row: TypeAlias = dict[str, Any]  # strings, and one list of numbers

_LIMITS: Final = {
    **dict.fromkeys((ID, DOC, NODE, TERMS), LONGEST),
    **dict.fromkeys(COLUMNS.values(), LONGEST_NAME),
}
_TOLD: Final = {
    ID: "id",
    DOC: "document's id",
    NODE: "text and metadata",
    TERMS: "terms for keyword search",
    **{column: key for key, column in COLUMNS.items()},
}


def rows_of(nodes: Sequence[BaseNode], *, manifest: Manifest, where: str) -> list[Row]:
    """One row a node.

    Args:
        nodes: At least one.
        manifest: Of the collection; its dimension is known.
        where: The collection, for messages.

    Raises:
        ConfigurationError: A node has no embedding or a broken one, has something without a JSON
            form in its metadata, or is longer than Milvus takes.
        DimensionMismatchError: A node has an embedding of another dimension.
    """
    vectors = document_vectors(
        nodes, dimension=manifest.dimension or 0, distance=manifest.distance, where=where
    )
    return [_row(node, vector, manifest) for node, vector in zip(nodes, vectors, strict=True)]


def _row(node: BaseNode, vector: list[float], manifest: Manifest) -> Row:
    text, node_id = keyword_text(node), safe_text(node.node_id)
    strings = {
        ID: node_id,
        # What no document is called, where there is none.
        DOC: SEPARATOR if node.ref_doc_id is None else safe_text(node.ref_doc_id),
        NODE: utf8_safe(node_to_text(node)),
        TERMS: document_terms(text, manifest.tokenizer)
        if manifest.analyzer is None
        else utf8_safe(text),
        **{column: column_value(node.metadata.get(key)) for key, column in COLUMNS.items()},
    }
    if not node.node_id:
        raise ConfigurationError("a node has an empty id; Milvus needs one, such as a UUID")
    for name, value in strings.items():
        _check(node, _TOLD[name], len(value.encode()), _LIMITS[name])
    fields = fields_of(node.metadata)
    size_bytes = len(json.dumps(fields, ensure_ascii=False).encode())
    _check(node, "metadata", size_bytes, LONGEST_FIELDS)
    return {**strings, **fields, DOC_KEY: document_key(node), DENSE: vector}


def _check(node: BaseNode, what: str, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise ConfigurationError(
            f"node {node.node_id[:100]!r} cannot be stored: its {what} take {size_bytes} bytes, "
            f"Milvus takes {limit_bytes}; split the text into smaller nodes, or shorten the "
            "metadata"
        )
