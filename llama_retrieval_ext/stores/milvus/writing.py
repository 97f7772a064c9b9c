"""Adds nodes to a collection: all of a call are checked first, then they are written in batches."""

from collections.abc import Sequence
from threading import Lock
from typing import Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.collection import PATIENCE, Collection
from llama_retrieval_ext.stores.milvus.conditions import Expression
from llama_retrieval_ext.stores.milvus.documents import Row, rows_of
from llama_retrieval_ext.stores.milvus.manifest import Manifest

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
