"""Adds nodes to a store: all of a call are checked first, then they are written in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_edge import EdgeShard, UpdateOperation

from llama_retrieval_ext.stores.embedded.conditions import as_edge_filter
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.disk import SOME_BYTES, check_room
from llama_retrieval_ext.stores.embedded.field_indexes import FieldIndexes
from llama_retrieval_ext.stores.embedded.points import points_of
from llama_retrieval_ext.stores.nodes.vectors import Vectors, document_vectors
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.payload import NODE, Payload, payload_of
from llama_retrieval_ext.stores.points.terms import Terms, terms_of

# The engine holds Python's global lock while it takes points over: some milliseconds for these.
BATCH: Final = 256
# A node is written to the log and to the storage, and its metadata also to indexes.
_COPIES: Final = 3
_DELETION: Final = 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Nodes that are ready to be written, but for the weights of their terms."""

    nodes: Sequence[BaseNode]
    vectors: Vectors
    terms: Terms
    payloads: Sequence[Payload]

    @property
    def size_bytes(self) -> int:
        """About how much is written."""
        texts = sum(len(str(payload[NODE]).encode()) for payload in self.payloads)
        numbers = len(self.vectors) * len(self.vectors[0]) * 4 + len(self.terms.ids) * 8
        return _COPIES * (texts + numbers)


def add_nodes(directory: StoreDirectory, nodes: Sequence[BaseNode], *, min_free: int) -> None:
    """Add nodes, or replace those with the same id; of several with one id the last counts.

    Args:
        directory: Of the store.
        nodes: Each with its embedding.
        min_free: Bytes that must be left on the disk.

    Raises:
        ConfigurationError: A node has no embedding or a broken one, or cannot be stored; nothing
            was written.
        DimensionMismatchError: A node has an embedding of another dimension; nothing was written.
        StoreUnavailableError: There is no room for the next batch, or the engine failed.
    """
    unique = list({node.node_id: node for node in nodes}.values())
    if not unique:
        return
    batches = _checked(directory, unique)
    average = sum(sum(batch.terms.lengths) for batch in batches) / len(unique)
    with directory.lock:
        check_room(directory.path, needed=batches[0].size_bytes + min_free)
        directory.establish(dimension=len(batches[0].vectors[0]), average_length=average)
        for batch in batches:
            check_room(directory.path, needed=batch.size_bytes + min_free)
            _write(directory, batch)


def delete_matching(directory: StoreDirectory, clause: Clause) -> None:
    """Delete the points that match.

    Raises:
        StoreUnavailableError: There is not even room for that, or the engine failed.
    """
    deletion = UpdateOperation.delete_points_by_filter(as_edge_filter(clause))
    with directory.lock:
        check_room(directory.path, needed=SOME_BYTES)
        directory.change(lambda shard: _update(directory, shard, deletion), size_bytes=_DELETION)


def _write(directory: StoreDirectory, batch: Batch) -> None:
    points = points_of(
        batch.nodes,
        vectors=batch.vectors,
        terms=batch.terms,
        payloads=batch.payloads,
        # Where the first nodes had no terms, any average will do.
        average_length=directory.manifest.average_length or 1.0,
    )
    insertion = UpdateOperation.upsert_points(points)

    def write(shard: EdgeShard) -> None:
        FieldIndexes(shard).cover(batch.payloads)
        _update(directory, shard, insertion, new=len(points))

    directory.change(write, size_bytes=batch.size_bytes)


def _update(
    directory: StoreDirectory, shard: EdgeShard, operation: UpdateOperation, *, new: int = 0
) -> None:
    before = shard.info().points_count
    shard.update(operation)
    if shard.info().points_count != before + new:  # something was deleted or replaced
        directory.inexact = True


def _checked(directory: StoreDirectory, nodes: Sequence[BaseNode]) -> list[Batch]:
    manifest = directory.manifest
    batches = []
    for start in range(0, len(nodes), BATCH):
        some = nodes[start : start + BATCH]
        vectors = document_vectors(
            some,
            dimension=manifest.dimension or len(nodes[0].embedding or ()),
            distance=manifest.distance,
            where=directory.path,
        )
        terms = terms_of(some, manifest.tokenizer)
        batches.append(Batch(some, vectors, terms, [payload_of(node) for node in some]))
    return batches
