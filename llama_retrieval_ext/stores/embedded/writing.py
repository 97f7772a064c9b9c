"""Adds nodes to a store: all of a call are checked first, then they are written in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_edge import EdgeShard, Filter, UpdateOperation

from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.disk import SOME_BYTES, check_room
from llama_retrieval_ext.stores.embedded.field_indexes import FieldIndexes
from llama_retrieval_ext.stores.embedded.payload import NODE, Payload, payload_of
from llama_retrieval_ext.stores.embedded.points import Terms, points_of, terms_of
from llama_retrieval_ext.stores.embedded.vectors import Vectors, document_vectors

# The engine holds Python's global lock while it takes points over: some milliseconds for these.
BATCH: Final = 256
# A node is written to the log and to the storage, and its metadata also to indexes.
_COPIES: Final = 3
_DELETION_BYTES: Final = 1024


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
        # Where no node has a term there is nothing to weigh, and any average will do.
        directory.establish(dimension=len(batches[0].vectors[0]), average_length=average or 1.0)
        for batch in batches:
            check_room(directory.path, needed=batch.size_bytes + min_free)
            _write(directory, batch)


def delete_matching(directory: StoreDirectory, filter_: Filter) -> None:
    """Delete the points that match."""
    deletion = UpdateOperation.delete_points_by_filter(filter_)
    with directory.lock:
        check_room(directory.path, needed=SOME_BYTES)
        directory.inexact = True
        directory.change(lambda shard: shard.update(deletion), size_bytes=_DELETION_BYTES)


def _write(directory: StoreDirectory, batch: Batch) -> None:
    average_length = directory.manifest.average_length or 1.0
    points = points_of(
        batch.nodes,
        vectors=batch.vectors,
        terms=batch.terms,
        payloads=batch.payloads,
        average_length=average_length,
    )

    def upsert(shard: EdgeShard) -> None:
        FieldIndexes(shard).cover(batch.payloads)
        before = shard.info().points_count
        shard.update(UpdateOperation.upsert_points(points))
        if shard.info().points_count < before + len(points):
            directory.inexact = True

    directory.change(upsert, size_bytes=batch.size_bytes)


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
