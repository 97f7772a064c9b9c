"""Adds nodes to a store: all of a call are checked first, then they are written in batches."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_edge import EdgeShard, Point, SparseVector, UpdateOperation

from llama_retrieval_ext.stores.embedded.conditions import as_edge_filter
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.disk import SOME_BYTES, check_room
from llama_retrieval_ext.stores.embedded.field_indexes import FieldIndexes
from llama_retrieval_ext.stores.embedded.shard import BM25, DENSE
from llama_retrieval_ext.stores.points.batch import USUAL_LENGTH, Batch, checked, mean_length
from llama_retrieval_ext.stores.points.clauses import Clause

# The engine holds Python's global lock while it takes points over: some milliseconds for these.
BATCH: Final = 256
# A node is written to the log and to the storage, and its metadata also to indexes.
_COPIES: Final = 3
_DELETION: Final = 1024


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
    batches = checked(unique, size=BATCH, manifest=directory.manifest, where=directory.path)
    dimension, average = len(batches[0].vectors[0]), mean_length(batches)
    with directory.lock:
        check_room(directory.path, needed=_written_bytes(batches[0]) + min_free)
        directory.establish(dimension=dimension, average_length=average)
        for batch in batches:
            check_room(directory.path, needed=_written_bytes(batch) + min_free)
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
    average = directory.manifest.average_length or USUAL_LENGTH
    points = [
        Point(ready.id, {DENSE: ready.vector, BM25: SparseVector(*ready.weighed)}, ready.payload)
        for ready in batch.ready(average_length=average)
    ]
    insertion = UpdateOperation.upsert_points(points)

    def write(shard: EdgeShard) -> None:
        FieldIndexes(shard).cover(batch.payloads)
        _update(directory, shard, insertion, new=len(points))

    directory.change(write, size_bytes=_written_bytes(batch))


def _update(
    directory: StoreDirectory, shard: EdgeShard, operation: UpdateOperation, *, new: int = 0
) -> None:
    before = shard.info().points_count
    shard.update(operation)
    if shard.info().points_count != before + new:  # something was deleted or replaced
        directory.inexact = True


def _written_bytes(batch: Batch) -> int:
    return _COPIES * batch.size_bytes
