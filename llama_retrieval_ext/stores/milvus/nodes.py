"""Adds nodes to a collection: all of a call are checked first, then they are written in batches.

The terms of our tokenizer, as Milvus's analysers leave them whole.

Milvus Lite has no analyser that cuts at spaces alone: ``c++`` would become ``c``. So terms go in by
their numbers in hexadecimal, for which every analyser does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final, TypeAlias

from llama_index.core.schema import BaseNode
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import document_key, keyword_text, utf8_safe
from llama_retrieval_ext.stores.encoding.vectors import document_vectors
from llama_retrieval_ext.stores.milvus.collection import PATIENCE, Collection
from llama_retrieval_ext.stores.milvus.encoding import SEPARATOR, fields_of, safe_text
from llama_retrieval_ext.stores.milvus.filters import COLUMNS, Expression, column_value, one_of
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
    Manifest,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer

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


_BATCH: Final = 512
# Well below the 64 MB that a server takes in one message.
_BATCH_BYTES: Final = 16 * 2**20
# Milvus Lite searches rows that were not flushed in plain Python: 45 ms a thousand.
_UNFLUSHED: Final = 256


class Writer:
    """Writes to a collection.

    Args:
        collection: The collection; made with the first nodes.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._lock = Lock()
        self._unflushed = 0

    def add(self, nodes: Sequence[BaseNode]) -> None:
        """Add nodes, or replace those with the same id; of several with one id the last counts.

        Raises:
            ConfigurationError: A node has no embedding or a broken one, or cannot be stored;
                nothing was written.
            DimensionMismatchError: A node has an embedding of another dimension; nothing was
                written.
            StoreUnavailableError: Milvus cannot answer; the batches before stay.
        """
        unique = list({node.node_id: node for node in nodes}.values())
        if not unique:
            return
        manifest = self._collection.expected(_dimension(unique[0]))
        rows = rows_of(unique, manifest=manifest, where=self._collection.where)
        for batch in _batches(rows):
            self._upsert(batch, manifest)
        self._flush_if_many(len(rows))

    def delete(self, expression: Expression) -> None:
        """Delete the nodes that match."""
        if isinstance(expression, str):
            self._collection.read(
                lambda client: client.delete(
                    self._collection.name,
                    filter=expression,
                    timeout=self._timeout_s * PATIENCE,
                ),
                empty={},
            )

    def flush(self) -> None:
        """Let Milvus Lite write and index what it has only logged; servers do that themselves."""
        with self._lock:
            self._unflushed = 0
        if self._collection.connection.is_lite:
            self._collection.read(
                lambda client: client.flush(
                    self._collection.name, timeout=self._timeout_s * PATIENCE
                ),
                empty=None,
            )

    def _upsert(self, rows: list[Row], manifest: Manifest) -> None:
        name, timeout_s = self._collection.name, self._timeout_s * PATIENCE
        # An upsert of Milvus Lite keeps dynamic fields of the old row, and with them what filters
        # found it by; its insert replaces the row. A server's insert would add a second one.
        if self._collection.connection.is_lite:
            self._collection.write(lambda client: client.insert(name, rows, timeout_s), manifest)
        else:
            self._collection.write(lambda client: client.upsert(name, rows, timeout_s), manifest)

    def _flush_if_many(self, added: int) -> None:
        with self._lock:
            self._unflushed += added
            many = self._unflushed >= _UNFLUSHED
        if many:
            self.flush()

    @property
    def _timeout_s(self) -> float:
        return self._collection.connection.timeout_s


def _dimension(node: BaseNode) -> int:
    if not node.embedding:
        raise ConfigurationError(
            f"node {node.node_id!r} has no embedding; embed the nodes before they are added, as "
            "VectorStoreIndex and KnowledgeBase do"
        )
    return len(node.embedding)


def _batches(rows: Sequence[Row]) -> list[list[Row]]:
    batches: list[list[Row]] = [[]]
    size_bytes = 0
    for row in rows:
        own = _size_bytes(row)
        if batches[-1] and (len(batches[-1]) == _BATCH or size_bytes + own > _BATCH_BYTES):
            batches.append([])
            size_bytes = 0
        batches[-1].append(row)
        size_bytes += own
    return batches


def _size_bytes(row: Row) -> int:
    return sum(4 * len(value) for value in row.values())


StoredRow: TypeAlias = Mapping[str, Any]  # as pymilvus has it

_PAGE: Final = 1000
_LITE_MOST: Final = 10**7


def matching_nodes(
    collection: Collection, expression: Expression, *, order: Sequence[str] | None
) -> list[BaseNode]:
    """Every node that matches, with its embedding.

    Args:
        collection: Where.
        expression: What they match.
        order: Node ids in the order wanted; None for ascending ids.
    """
    if expression is False:
        return []
    reader = _Reader(collection, _filter(expression))
    nothing: list[StoredRow] = []
    rows = collection.read(reader.rows, empty=nothing)
    nodes = {node.node_id: node for node in map(_node, rows)}
    ids = sorted(nodes) if order is None else dict.fromkeys(order)
    return [nodes[node_id] for node_id in ids if node_id in nodes]


def count_matching(collection: Collection, expression: Expression) -> int:
    """How many nodes match."""
    if expression is False:
        return 0
    answer = collection.read(
        lambda client: client.query(
            collection.name,
            filter=_filter(expression),
            output_fields=["count(*)"],
            consistency_level="Strong",  # a count that lags behind would be a wrong one
            timeout=collection.connection.timeout_s,
        ),
        empty=[{"count(*)": 0}],
    )
    return int(answer[0]["count(*)"])


class _Reader:
    """Reads all rows that satisfy an expression, page by page."""

    def __init__(self, collection: Collection, filter_: str) -> None:
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
        # Its answers have no limit but that of a message, and its iterator prints a warning.
        found = self._query(client, self._filter, [ID], limit=_LITE_MOST)
        ids = [row[ID] for row in found]
        for start in range(0, len(ids), _PAGE):
            some = one_of(ID, ids[start : start + _PAGE])
            yield self._query(client, str(some), [NODE, DENSE], limit=_PAGE)

    def _query(
        self, client: MilvusClient, filter_: str, columns: list[str], *, limit: int
    ) -> list[StoredRow]:
        rows: list[StoredRow] = client.query(
            self._collection.name,
            filter=filter_,
            output_fields=columns,
            limit=limit,
            timeout=self._collection.connection.timeout_s,
        )
        return rows


def _filter(expression: Expression) -> str:
    return expression if isinstance(expression, str) else ""


def _node(row: StoredRow) -> BaseNode:
    node = node_from_text(row[NODE])
    node.embedding = [float(value) for value in row[DENSE]]
    return node


def document_terms(text: str, tokenizer: Tokenizer) -> str:
    """The terms of a document, each as often as it occurs.

    Examples:
        >>> len(document_terms("R or C or R", Tokenizer()).split())
        5

    """
    return _written(tokenizer.term_counts(text))


def query_terms(text: str, tokenizer: Tokenizer) -> str:
    """The terms to look for; empty where there is none."""
    return _written(tokenizer.query_terms(text))


def _written(counts: Mapping[int, int]) -> str:
    return " ".join(f"{term:x}" for term, count in counts.items() for _ in range(count))
