"""Adds, reads, counts and deletes nodes; all nodes of a call are checked before the first write."""

import json
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final, TypeAlias

from llama_index.core.schema import BaseNode
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import batches, keyword_text, utf8_safe
from llama_retrieval_ext.stores.encoding.vectors import document_vectors
from llama_retrieval_ext.stores.milvus.encoding import SEPARATOR, fields_of, safe_text
from llama_retrieval_ext.stores.milvus.filters import (
    COLUMNS,
    DOC,
    ID,
    Expression,
    column_value,
    filter_text,
    one_of,
)
from llama_retrieval_ext.stores.milvus.schema import (
    BULK_TIMEOUTS,
    DENSE,
    MAX_BYTES,
    MAX_FIELDS_BYTES,
    MAX_NAME_BYTES,
    NODE,
    TERMS,
    MilvusCollection,
    MilvusConfig,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer

Row: TypeAlias = dict[str, Any]  # strings, and one list of numbers
StoredRow: TypeAlias = Mapping[str, Any]  # as pymilvus has it

# How many bytes a column takes, and its name in messages.
_LIMITS: Final = {
    ID: (MAX_BYTES, "id"),
    DOC: (MAX_BYTES, "document's id"),
    NODE: (MAX_BYTES, "text and metadata"),
    TERMS: (MAX_BYTES, "terms for keyword search"),
    **{column: (MAX_NAME_BYTES, key) for key, column in COLUMNS.items()},
}
_BATCH: Final = 512
# Well below the 64 MB that a server takes in one message.
_BATCH_BYTES: Final = 16 * 2**20
# Milvus Lite searches unflushed rows in plain Python: 45 ms a thousand.
_MAX_UNFLUSHED: Final = 256
_PAGE: Final = 1000
_LITE_MAX_ROWS: Final = 10**7


def rows_of(nodes: Sequence[BaseNode], *, config: MilvusConfig, where: str) -> list[Row]:
    """Return one row per node."""
    vectors = document_vectors(
        nodes, dimension=config.dimension or 0, distance=config.distance, where=where
    )
    return [_row(node, vector, config) for node, vector in zip(nodes, vectors, strict=True)]


def _row(node: BaseNode, vector: list[float], config: MilvusConfig) -> Row:
    if not node.node_id:
        raise ConfigurationError("a node has an empty id; Milvus needs one, such as a UUID")
    text = keyword_text(node)
    strings = {
        ID: safe_text(node.node_id),
        # No document has this id.
        DOC: SEPARATOR if node.ref_doc_id is None else safe_text(node.ref_doc_id),
        NODE: utf8_safe(node_to_text(node)),
        TERMS: document_terms(text, config.tokenizer)
        if config.analyzer is None
        else utf8_safe(text),
        **{column: column_value(node.metadata.get(key)) for key, column in COLUMNS.items()},
    }
    for column, value in strings.items():
        limit_bytes, name = _LIMITS[column]
        _check_size(node, name, len(value.encode()), limit_bytes)
    fields = fields_of(node.metadata)
    size_bytes = len(json.dumps(fields, ensure_ascii=False).encode())
    _check_size(node, "metadata", size_bytes, MAX_FIELDS_BYTES)
    return {**strings, **fields, DENSE: vector}


def _check_size(node: BaseNode, name: str, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise ConfigurationError(
            f"node {node.node_id[:100]!r} cannot be stored: its {name} take {size_bytes} bytes, "
            f"Milvus takes {limit_bytes}; split the text into smaller nodes, or shorten the "
            "metadata"
        )


class NodeWriter:
    """Writes to a collection, which is created with the first nodes."""

    def __init__(self, collection: MilvusCollection) -> None:
        self._collection = collection
        self._lock = Lock()
        self._unflushed = 0

    def add(self, nodes: Sequence[BaseNode]) -> None:
        """Add nodes, or replace those with the same id."""
        config = self._collection.config_for(len(nodes[0].embedding or ()))
        rows = rows_of(nodes, config=config, where=self._collection.where)
        for batch in batches(rows, _size_bytes, max_items=_BATCH, max_bytes=_BATCH_BYTES):
            self._upsert(batch, config)
        self._flush_if_many(len(rows))

    def delete(self, expression: Expression) -> None:
        """Delete the nodes that match; True deletes nothing."""
        if isinstance(expression, str):
            self._collection.read(
                lambda client: client.delete(
                    self._collection.name,
                    filter=expression,
                    timeout=self._timeout_s * BULK_TIMEOUTS,
                ),
                empty={},
            )

    def flush(self) -> None:
        """Let Milvus Lite write and index its log; servers do that by themselves."""
        with self._lock:
            self._unflushed = 0
        if self._collection.connection.is_lite:
            self._collection.read(
                lambda client: client.flush(
                    self._collection.name, timeout=self._timeout_s * BULK_TIMEOUTS
                ),
                empty=None,
            )

    def _upsert(self, rows: list[Row], config: MilvusConfig) -> None:
        collection, timeout_s = self._collection, self._timeout_s * BULK_TIMEOUTS
        # An upsert of Milvus Lite keeps dynamic fields of the old row, which filters would still
        # find; its insert replaces the row. A server's insert would add a second one.
        insert = collection.connection.is_lite

        def write(client: MilvusClient) -> None:
            send = client.insert if insert else client.upsert
            send(
                collection.name, [{**collection.obsolete_values, **row} for row in rows], timeout_s
            )

        collection.write(write, config)

    def _flush_if_many(self, added: int) -> None:
        with self._lock:
            self._unflushed += added
            many = self._unflushed >= _MAX_UNFLUSHED
        if many:
            self.flush()

    @property
    def _timeout_s(self) -> float:
        return self._collection.connection.timeout_s


def _size_bytes(row: Row) -> int:
    return sum(4 * len(value) for value in row.values())


def matching_nodes(collection: MilvusCollection, expression: Expression) -> list[BaseNode]:
    """Return every node that matches, with its embedding."""
    if expression is False:
        return []
    reader = _Reader(collection, filter_text(expression))
    nothing: list[StoredRow] = []
    return list(map(_node, collection.read(reader.rows, empty=nothing)))


def count_matching(collection: MilvusCollection, expression: Expression) -> int:
    """Return how many nodes match."""
    if expression is False:
        return 0
    answer = collection.read(
        lambda client: client.query(
            collection.name,
            filter=filter_text(expression),
            output_fields=["count(*)"],
            consistency_level="Strong",  # an outdated count would be a wrong one
            timeout=collection.connection.timeout_s,
        ),
        empty=[{"count(*)": 0}],
    )
    return int(answer[0]["count(*)"])


class _Reader:
    """Reads all rows that match a filter, page by page."""

    def __init__(self, collection: MilvusCollection, filter_: str) -> None:
        self._collection = collection
        self._filter = filter_

    def rows(self, client: MilvusClient) -> list[StoredRow]:
        pages = self._lite_pages if self._collection.connection.is_lite else self._pages
        return [row for page in pages(client) for row in page]

    def _pages(self, client: MilvusClient) -> Iterator[Sequence[StoredRow]]:
        pages = client.query_iterator(
            self._collection.name,
            batch_size=_PAGE,
            filter=self._filter,
            output_fields=[NODE, DENSE],
            timeout=self._collection.connection.timeout_s,
        )
        try:
            while page := pages.next():
                yield page
        finally:
            pages.close()

    def _lite_pages(self, client: MilvusClient) -> Iterator[Sequence[StoredRow]]:
        # Its answers are limited by message size only, and its iterator prints a warning.
        rows = self._query(client, self._filter, [ID], limit=_LITE_MAX_ROWS)
        ids = [row[ID] for row in rows]
        for start in range(0, len(ids), _PAGE):
            page = one_of(ID, ids[start : start + _PAGE])
            yield self._query(client, filter_text(page), [NODE, DENSE], limit=_PAGE)

    def _query(
        self, client: MilvusClient, filter_: str, columns: list[str], *, limit: int
    ) -> list[StoredRow]:
        rows: list[StoredRow] = client.query(  # pyright: ignore[reportAssignmentType]
            self._collection.name,
            filter=filter_,
            output_fields=columns,
            limit=limit,
            timeout=self._collection.connection.timeout_s,
        )
        return rows


def _node(row: StoredRow) -> BaseNode:
    node = node_from_text(row[NODE])
    node.embedding = [float(value) for value in row[DENSE]]
    return node


def document_terms(text: str, tokenizer: Tokenizer) -> str:
    """Return the terms of a document, each as often as it occurs.

    Milvus Lite has no analyser that cuts at spaces alone: ``c++`` would become ``c``. So terms are
    stored as hexadecimal numbers, which every analyser leaves whole.

    Examples:
        >>> len(document_terms("R or C or R", Tokenizer()).split())
        5

    """
    return _joined(tokenizer.term_counts(text))


def query_terms(text: str, tokenizer: Tokenizer) -> str:
    """Return the terms of a query in the same form; empty if there are none."""
    return _joined(tokenizer.query_terms(text))


def _joined(counts: Mapping[int, int]) -> str:
    return " ".join(f"{term:x}" for term, count in counts.items() for _ in range(count))
