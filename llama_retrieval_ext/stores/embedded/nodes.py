"""Addition, reading, counting and deletion of nodes, and compaction of a store.

The engine only marks deleted and replaced nodes. Its ``optimize`` holds the GIL and builds a graph
that makes searches inexact. Therefore compaction copies nodes to a new shard in batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from llama_index.core.schema import BaseNode
from qdrant_edge import (
    EdgeShard,
    Filter,
    FloatIndexParams,
    IntegerIndexParams,
    KeywordIndexParams,
    Point,
    SparseVector,
    UpdateOperation,
)

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.files import bytes_on_disk, check_room
from llama_retrieval_ext.stores.embedded.shard import (
    BM25,
    DENSE,
    PointId,
    Reweighing,
    copy_points,
    copy_schema,
    count_points,
    indexed_fields,
    number_of,
    scroll,
)
from llama_retrieval_ext.stores.encoding.node_json import (
    SECOND,
    StoredNode,
    node_id_in,
    nodes_of,
    rows_of,
)
from llama_retrieval_ext.stores.qdrant_common.points import (
    NODE,
    PointBatch,
    fields_to_index,
    point_id,
    prepare_batches,
)
from llama_retrieval_ext.stores.qdrant_common.terms import mean_lengths
from llama_retrieval_ext.text.normalization import valid_text

# The engine holds the GIL while it adds points: some milliseconds per batch.
_BATCH: Final = 256
_PAGE: Final = 1024
# A node is written to the log and to the storage, its metadata also to indexes.
COPIES: Final = 3
_DELETION: Final = 1024
# By kind of a field; the first value determines it.
_INDEXES: Final[Mapping[str, KeywordIndexParams | FloatIndexParams | IntegerIndexParams]] = {
    "keyword": KeywordIndexParams(),
    "tenant": KeywordIndexParams(is_tenant=True),
    "number": FloatIndexParams(),
    "principal": IntegerIndexParams(lookup=True, range=False),
}


def add_nodes(
    directory: StoreDirectory, nodes: Sequence[BaseNode], *, min_free: int, schema: Schema
) -> None:
    """Validate all nodes, then write them in batches; keep `min_free` bytes free.

    The schema is that of an empty store.
    """
    config = directory.config
    if not directory.read(count_points, empty=0):
        config = replace(config, schema=schema)
    batches = prepare_batches(nodes, size=_BATCH, config=config, where=directory.path)
    dimension = len(batches[0].vectors[0])
    means = mean_lengths([batch.terms for batch in batches])
    with directory.lock:
        for number, batch in enumerate(batches):
            size_bytes = COPIES * batch.size_bytes
            check_room(directory.path, size=size_bytes, min_free=min_free)
            if number == 0:
                directory.establish(
                    dimension=dimension, average_lengths=means, schema=config.schema
                )
            _write(directory, batch, size_bytes)


def delete_matching(directory: StoreDirectory, matching: Filter) -> None:
    """Delete the matching points."""
    deletion = UpdateOperation.delete_points_by_filter(matching)
    with directory.lock:
        check_room(directory.path)
        directory.change(
            lambda shard: _update(directory, shard, deletion),
            size_bytes=_DELETION,
            deletion=deletion,
        )


def _write(directory: StoreDirectory, batch: PointBatch, size_bytes: int) -> None:
    ids: list[PointId] = []
    points: list[Point] = []
    for ready in batch.ready(directory.config.average_lengths):
        ids.append(number_of(ready.id))
        sparse = SparseVector(*ready.weighed)
        points.append(Point(ids[-1], {DENSE: ready.vector, BM25: sparse}, ready.payload))
    insertion = UpdateOperation.upsert_points(points)

    def write(shard: EdgeShard) -> None:
        _check_ids(shard, ids, batch.nodes)
        for field in fields_to_index(batch.payloads, indexed_fields(shard)):
            index = _INDEXES[field.kind]
            shard.update(UpdateOperation.create_field_index(field.path, index))
        _update(directory, shard, insertion, new=len(points))

    directory.change(write, size_bytes=size_bytes, points=ids)


def _check_ids(shard: EdgeShard, ids: list[PointId], nodes: Sequence[BaseNode]) -> None:
    """Raise if two nodes have the same id in the engine: a chance of 1e-7 for 1,000,000 nodes."""
    names: dict[PointId, str] = {}
    for id_, node in zip(ids, nodes, strict=True):
        if names.setdefault(id_, node.node_id) != node.node_id:
            raise _same_id(node.node_id, names[id_])
    for record in shard.retrieve(ids, with_payload=[NODE], with_vector=False):
        stored = node_id_in((record.payload or {})[NODE])
        if names[record.id].removesuffix(SECOND) != stored:
            raise _same_id(names[record.id], stored)


def _same_id(new: str, stored: str) -> ConfigurationError:
    return ConfigurationError(
        f"node {new!r} has the same hash as node {stored!r}, so the engine cannot tell them apart; "
        "give the new node another id"
    )


def _update(
    directory: StoreDirectory, shard: EdgeShard, operation: UpdateOperation, *, new: int = 0
) -> None:
    before = count_points(shard)
    shard.update(operation)
    if count_points(shard) != before + new:  # something was deleted or replaced
        directory.inexact = True


def points_of(node_ids: Iterable[str]) -> list[PointId]:
    """Return the ids of all points that nodes may have."""
    return [*map(number_of, map(point_id, rows_of(map(valid_text, node_ids))))]


def matching_nodes(
    shard: EdgeShard, matching: Filter | list[PointId] | None, *, embeddings: bool
) -> list[BaseNode]:
    """Return the nodes that match a filter or have these points, with embeddings if asked."""
    vectors = [DENSE] if embeddings else False
    if isinstance(matching, list):
        records = iter([shard.retrieve(matching, with_payload=[NODE], with_vector=vectors)])
    else:
        records = scroll(shard, limit=_PAGE, with_vector=vectors, filter_=matching)

    def stored(point: Any) -> StoredNode:  # noqa: ANN401 - a vector is a plain list by its name
        return point.payload[NODE], (point.vector or {}).get(DENSE)

    return nodes_of(map(stored, chain.from_iterable(records)))


def stored_vectors(shard: EdgeShard, node_ids: Sequence[str]) -> dict[str, list[float]]:
    """Return the embeddings of the existing nodes by id."""
    by_point = {number_of(point_id(row)): row.removesuffix(SECOND) for row in rows_of(node_ids)}
    records = shard.retrieve(list(by_point), with_payload=False, with_vector=[DENSE])
    vectors = {record.id: record.vector for record in records}
    return {
        node_id: vector[DENSE]  # type: ignore[misc]  # a plain list by this name
        for point, node_id in by_point.items()
        if isinstance(vector := vectors.get(point), dict)
    }


def compact(directory: StoreDirectory, *, min_free: int, schema: Schema | None = None) -> None:
    """Copy the nodes to a new shard and remove the old shard.

    The keyword weights are for the mean number of terms now, and for the fields of the schema (see
    `Reweighing`). Searches continue; writers wait, about 0.2 ms per node.
    """

    def copy(old: EdgeShard, new: EdgeShard, weights: Reweighing) -> None:
        copy_schema(old, new)
        for records in scroll(old, limit=_BATCH, with_vector=True):
            copy_points(records, new, weights)

    with directory.lock:
        if directory.read(count_points, empty=0):
            check_room(directory.path, size=bytes_on_disk(directory.path), min_free=min_free)
        else:
            check_room(directory.path)
        directory.rebuild(copy, schema)
