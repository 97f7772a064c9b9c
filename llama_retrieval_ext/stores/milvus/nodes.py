"""`MilvusNodes`: adds, reads, counts and deletes nodes; checks all before the first write."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeAlias

from llama_index.core.schema import BaseNode
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import batches, filterable, keyword_text, utf8_safe
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError, Nodes
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.milvus.filters import (
    COLUMNS,
    DOC,
    ID,
    SEPARATOR,
    Expression,
    column_value,
    fields_of,
    filter_text,
    one_of,
    safe_text,
)
from llama_retrieval_ext.stores.milvus.schema import (
    DENSE,
    MAX_BYTES,
    MAX_FIELDS_BYTES,
    MAX_NAME_BYTES,
    NODE,
    TERMS,
    MilvusCollection,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer

Row: TypeAlias = dict[str, Any]  # strings, and one list of numbers
StoredRow: TypeAlias = Mapping[str, Any]  # the type in pymilvus

# Limit of a column in bytes, and its name in messages.
_LIMITS: Final = {
    ID: (MAX_BYTES, "id"),
    DOC: (MAX_BYTES, "document's id"),
    NODE: (MAX_BYTES, "text and metadata"),
    TERMS: (MAX_BYTES, "terms for keyword search"),
    **{column: (MAX_NAME_BYTES, key) for key, column in COLUMNS.items()},
}
_BATCH: Final = 512
# Well below a server's message limit of 64 MB.
_BATCH_BYTES: Final = 16 * 2**20
# Milvus Lite searches unflushed rows in plain Python: 45 ms per thousand.
_MAX_UNFLUSHED: Final = 256
_PAGE: Final = 1000
_LITE_MAX_ROWS: Final = 10**7


class MilvusNodes(Nodes[Expression]):
    """The nodes of a collection; the steps yield functions of the client."""

    _collection: MilvusCollection

    def __init__(self, collection: MilvusCollection) -> None:
        super().__init__(collection)
        self._lock = Lock()
        self._unflushed = 0

    def add(self, nodes: Sequence[BaseNode]) -> Steps[None]:
        """Add nodes, or replace those with the same id."""
        collection = self._collection
        vectors = yield from collection.vectors_of(nodes)
        dimension, config = len(vectors[0]), collection.config
        rows = [_row(node, vector, config) for node, vector in zip(nodes, vectors, strict=True)]
        for batch in batches(rows, _size_bytes, max_items=_BATCH, max_bytes=_BATCH_BYTES):
            yield from collection.create(dimension)
            try:
                yield collection.loaded(self._upsert(batch))
            except CollectionMissingError:  # dropped meanwhile
                collection.forget()
                yield from collection.create(dimension)
                yield self._upsert(batch)
        with self._lock:
            self._unflushed += len(rows)
            many = self._unflushed >= _MAX_UNFLUSHED
        if many:
            yield from self.flush()

    def delete(self, matching: Expression) -> Steps[None]:
        """Delete the nodes that match; True deletes nothing."""
        name, timeout = self._collection.name, self._collection.timeout_s
        if isinstance(matching, str):
            yield self._collection.loaded(
                lambda client: client.delete(name, filter=matching, timeout=timeout)
            )

    def read(self, matching: Expression) -> Steps[list[BaseNode]]:
        """Return every node that matches, with its embedding."""
        if matching is False:
            return []
        stored = self._stored
        rows = yield self._collection.loaded(
            lambda client: stored.read(client, filter_text(matching))
        )
        return list(map(_node, rows))

    def count(self, matching: Expression) -> Steps[int]:
        """Return the number of nodes that match."""
        if matching is False:
            return 0
        # Other levels may return an outdated count.
        options: Mapping[str, object] = {"consistency_level": "Strong"}
        stored = self._stored
        rows = yield self._collection.loaded(
            lambda client: stored.query(client, filter_text(matching), ["count(*)"], options)
        )
        return int(rows[0]["count(*)"])

    def flush(self) -> Steps[None]:
        """Make Milvus Lite write and index its log; servers do that automatically."""
        with self._lock:
            self._unflushed = 0
        name, timeout = self._collection.name, self._collection.timeout_s
        if self._collection.connection.is_lite:
            yield self._collection.loaded(lambda client: client.flush(name, timeout=timeout))

    @property
    def _stored(self) -> "Rows":
        name, connection = self._collection.name, self._collection.connection
        return Rows(name, ID, [NODE, DENSE], connection.is_lite, connection.timeout_s)

    def _upsert(self, rows: Sequence[Row]) -> Any:  # noqa: ANN401 - a request
        # An upsert of Milvus Lite keeps dynamic fields of the old row, which filters would still
        # find; its insert replaces the row. A server's insert would add a second one.
        collection = self._collection
        insert = collection.connection.is_lite

        def write(client: MilvusClient) -> None:
            send = client.insert if insert else client.upsert
            send(collection.name, list(rows), timeout=collection.timeout_s)

        return write


@dataclass(frozen=True, slots=True)
class Rows:
    """Reads all rows of a collection that match a filter, in pages."""

    name: str
    key: str
    columns: list[str]
    is_lite: bool
    timeout_s: float | None = None

    def read(self, client: MilvusClient, filter_: str) -> list[StoredRow]:
        """Return the rows."""
        if self.is_lite:
            return self._read_lite(client, filter_)
        rows: list[StoredRow] = []
        pages = client.query_iterator(
            self.name,
            batch_size=_PAGE,
            filter=filter_,
            output_fields=self.columns,
            timeout=self.timeout_s,
        )
        try:
            while page := pages.next():
                rows += page
        finally:
            pages.close()
        return rows

    def _read_lite(self, client: MilvusClient, filter_: str) -> list[StoredRow]:
        # Milvus Lite limits answers by message size only, and its iterator prints a warning.
        options = {"limit": _LITE_MAX_ROWS}
        ids = [row[self.key] for row in self.query(client, filter_, [self.key], options)]
        rows: list[StoredRow] = []
        for start in range(0, len(ids), _PAGE):
            page = filter_text(one_of(self.key, ids[start : start + _PAGE]))
            rows += self.query(client, page, self.columns, {"limit": _PAGE})
        return rows

    def query(
        self, client: MilvusClient, filter_: str, columns: list[str], options: Mapping[str, Any]
    ) -> list[StoredRow]:
        """Return the rows of one request."""
        rows: list[StoredRow] = client.query(  # pyright: ignore[reportAssignmentType]
            self.name, filter=filter_, output_fields=columns, timeout=self.timeout_s, **options
        )
        return rows


def _row(node: BaseNode, vector: list[float], config: StoreConfig) -> Row:
    if not node.node_id:
        raise ConfigurationError("a node has an empty id; Milvus needs one, such as a UUID")
    strings = {
        ID: safe_text(node.node_id),
        # No document has this id.
        DOC: SEPARATOR if node.ref_doc_id is None else safe_text(node.ref_doc_id),
        NODE: utf8_safe(node_to_text(node)),
        TERMS: document_terms(keyword_text(node), config.tokenizer),
        **{column: column_value(node.metadata.get(key)) for key, column in COLUMNS.items()},
    }
    for column, value in strings.items():
        limit_bytes, name = _LIMITS[column]
        _check_size(node, name, len(value.encode()), limit_bytes)
    fields = fields_of(filterable(node))
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


def _size_bytes(row: Row) -> int:
    return sum(4 * len(value) for value in row.values())


def _node(row: StoredRow) -> BaseNode:
    node = node_from_text(row[NODE])
    node.embedding = [float(value) for value in row[DENSE]]
    return node


def document_terms(text: str, tokenizer: Tokenizer) -> str:
    """Return the terms of a document with repetitions, joined by spaces.

    Milvus Lite has no analyser that splits at spaces only: ``c++`` would become ``c``. So terms are
    stored as hexadecimal numbers, which no analyser splits.

    Examples:
        >>> len(document_terms("R or C or R", Tokenizer()).split())
        5

    """
    return _joined(tokenizer.term_counts(text))


def query_terms(text: str, tokenizer: Tokenizer) -> str:
    """Return the terms of a query in the same form; empty without terms."""
    return _joined(tokenizer.query_terms(text))


def _joined(counts: Mapping[int, int]) -> str:
    return " ".join(f"{term:x}" for term, count in counts.items() for _ in range(count))
