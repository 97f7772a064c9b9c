"""Gives back the disk space of nodes that were deleted or replaced.

The engine only marks them. Its own ``optimize`` holds Python's global lock for as long as it runs,
and builds a graph that makes searches inexact; nodes that are copied to a new shard, a batch at a
time, do neither.
"""

from qdrant_edge import EdgeShard, Point, ScrollRequest, UpdateOperation

from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.disk import SOME_BYTES, bytes_on_disk, check_room
from llama_retrieval_ext.stores.embedded.writing import BATCH


def compact(directory: StoreDirectory, *, min_free: int) -> int:
    """Copy the nodes that there are to a new shard, and remove the old one.

    Searches go on meanwhile; who writes waits, about 0.1 ms a node.

    Args:
        directory: Of the store.
        min_free: Bytes that must be left on the disk, beside those of the copy.

    Returns:
        How many bytes fewer the directory takes; 0 where there was nothing to gain.

    Raises:
        StoreUnavailableError: There is no room for the copy, or the engine failed; nothing has
            changed.
    """
    with directory.lock:
        before = bytes_on_disk(directory.path)
        nodes = directory.read(lambda shard: shard.info().points_count, empty=0)
        check_room(directory.path, needed=before + min_free if nodes else SOME_BYTES)
        directory.rebuild(_copy)
        return max(0, before - bytes_on_disk(directory.path))


def _copy(old: EdgeShard, new: EdgeShard) -> None:
    for name, index in old.info().payload_schema.items():
        if index.params is not None:
            new.update(UpdateOperation.create_field_index(name, index.params))
    following = None
    while True:
        records, following = old.scroll(
            ScrollRequest(limit=BATCH, offset=following, with_payload=True, with_vector=True)
        )
        points = [Point(each.id, each.vector or {}, each.payload) for each in records]
        if points:
            new.update(UpdateOperation.upsert_points(points))
        if following is None:
            return
