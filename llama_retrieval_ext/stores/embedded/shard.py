"""The engine's shards in a store directory: creation, loading, and the draft of a new one."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, NamedTuple, Self, TypeAlias
from uuid import UUID

from qdrant_edge import (
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    Filter,
    Modifier,
    Point,
    PointVectors,
    Record,
    ScrollRequest,
    SparseVector,
    UpdateOperation,
    VectorStorageDatatype,
)

from llama_retrieval_ext.stores.embedded import check_shard
from llama_retrieval_ext.stores.embedded.files import (
    EmbeddedConfig,
    bytes_on_disk,
    check_room,
    damaged_error,
    sync_folder,
    translate_error,
)
from llama_retrieval_ext.stores.qdrant_common.points import USUAL_LENGTH, reweighed, text_length

DENSE: Final = "dense"
BM25: Final = "bm25"

# The engine's type; ours are integers.
PointId: TypeAlias = int | UUID | str

_DRAFT: Final = "shard.new"
_OLD: Final = "shard.old"
_OURS: Final = re.compile(r"shard(-\d+|\.new|\.old)?")
# The engine uses integers only in an index, and rescores with the stored floats.
DATATYPES: Final = {"float32": "Float32", "float16": "Float16", "int8": "Float16"}
# Points that are copied at a time.
_BATCH: Final = 256
_PAGE: Final = 1024
# Pages whose nodes give the mean number of terms; in the order of hashed ids, they are a sample.
_SAMPLE: Final = 20
# A mean that differs less changes the weight of a usual term by .8 % at most.
_CLOSE: Final = 0.02
# A larger shard is not loaded twice, which takes two seconds for 100,000 nodes.
_READ_FIRST_BYTES: Final = 2**26
# Longest wait for the calls of other threads when a shard is closed.
_CLOSING_S: Final = 30


def open_shard(
    directory: Path, config: EmbeddedConfig, *, logged: bool, is_whole: bool
) -> EdgeShard | None:
    """Return the config's shard, created if missing; None without a dimension.

    Other shards, which may remain after a crash, are deleted. A shard that is not ``logged`` has no
    write-ahead log, and loses its last changes in a crash. One that is not ``is_whole``, after an
    unclean end, is compared with its indexes, 40 microseconds per node.

    Raises:
        StoreFormatError: It is damaged.
    """
    kept = shard_folder(directory, config) if config.dimension else None
    for folder in directory.glob("shard*"):
        if folder != kept and _OURS.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    if config.dimension is None or kept is None:
        return None
    check_room(directory)
    if not kept.exists():
        return create_shard(directory, config, logged=logged)
    if is_whole:
        return EdgeShard.load(str(kept))
    if bytes_on_disk(kept) <= _READ_FIRST_BYTES:
        _check_files(kept)
        return EdgeShard.load(str(kept))
    shard = EdgeShard.load(str(kept))
    damage = "; ".join(check_shard.damage_in(shard))
    if damage:
        shard.close()
        raise damaged_error(directory, damage)
    return shard


def _check_files(folder: Path) -> None:
    """Raise if the files of a shard are damaged.

    Another process reads them first, since the engine may end the process that reads damaged files.
    """
    # -P: the program's folder must not shadow modules of the same name.
    program = [sys.executable, "-P", check_shard.__file__, str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode < 0 or "PanicException" in done.stderr:
        raise damaged_error(folder.parent, "the engine cannot read it")
    if done.returncode:
        raise translate_error(Exception(done.stderr.strip().rpartition("\n")[2]), folder.parent)
    if done.stdout:
        raise damaged_error(folder.parent, done.stdout.strip().replace("\n", "; "))


def shard_folder(directory: Path, config: EmbeddedConfig) -> Path:
    """Return the folder of the current shard."""
    suffix = f"-{config.generation}" if config.generation else ""
    return directory / f"shard{suffix}"


def create_shard(directory: Path, config: EmbeddedConfig, *, logged: bool) -> EdgeShard:
    """Create and open the shard of a config; ``logged`` as for `open_shard`."""
    draft, folder = directory / _DRAFT, shard_folder(directory, config)
    for left in (draft, folder):
        shutil.rmtree(left, ignore_errors=True)
    dense = EdgeVectorParams(
        config.dimension or 1,
        getattr(Distance, config.distance.capitalize()),
        datatype=getattr(VectorStorageDatatype, DATATYPES[config.vectors]),
    )
    sparse = EdgeSparseVectorParams(modifier=Modifier.Idf)
    settings = EdgeConfig(
        vectors={DENSE: dense}, sparse_vectors={BM25: sparse}, wal_enabled=None if logged else False
    )
    EdgeShard.create(str(draft), settings).close()
    draft.rename(folder)  # when it is complete, because a partial shard would look broken
    return EdgeShard.load(str(folder))


def sync_log(folder: Path) -> None:
    """Write the log of a shard to the disk."""
    sync_folder(folder / "wal")


def remove_shard(directory: Path, config: EmbeddedConfig) -> None:
    """Delete a closed shard; rename it first, so that a crash leaves no partial shard."""
    shutil.rmtree(directory / _OLD, ignore_errors=True)
    shard_folder(directory, config).rename(directory / _OLD)
    shutil.rmtree(directory / _OLD, ignore_errors=True)


@dataclass(slots=True, eq=False)
class Draft:
    """A new shard, built while searches and writes continue in the current shard.

    Writes are recorded during the build and applied to the new shard before it becomes current.

    Attributes:
        config: Config of the directory after the new shard becomes current.
        folder: Folder of the new shard.
        points: Ids of points written to the current shard since the copy.
        deletions: Deletions by filter since the copy.
        process: The running index process.
        is_abandoned: Whether the copied shard is no longer current.
        is_changed: Whether changes were applied to the new shard.
        indexed: Number of nodes to index, then in the index.
        weights: Change of the keyword weights of the copy.
    """

    config: EmbeddedConfig
    folder: Path
    points: set[PointId] = field(default_factory=set)
    deletions: list[UpdateOperation] = field(default_factory=list)
    process: Popen[bytes] | None = None
    is_abandoned: bool = False
    is_changed: bool = False
    indexed: int = 0
    weights: "Reweighing" = field(default_factory=lambda: Reweighing(USUAL_LENGTH, USUAL_LENGTH))

    @property
    def n_changes(self) -> int:
        """Number of recorded changes."""
        return len(self.points) + len(self.deletions)

    def abandon(self) -> None:
        """Stop the build, because the copy is out of date."""
        self.is_abandoned = True
        if self.process is not None:
            self.process.kill()

    def bring_changes(
        self, old: EdgeShard, new: EdgeShard, lock: AbstractContextManager[object]
    ) -> None:
        """Apply the changes to the new shard; record later changes separately, under writers' lock.

        Deletions come first. Then points written since the copy are read from the old shard, or
        deleted if missing there.
        """
        with lock:
            points, self.points = self.points, set()
            deletions, self.deletions = self.deletions, []
        self.is_changed = self.is_changed or bool(points or deletions)
        copy_schema(old, new)
        for deletion in deletions:
            new.update(deletion)
        rest = iter(points)
        while ids := list(islice(rest, _BATCH)):
            found = old.retrieve(ids, with_payload=True, with_vector=True)
            gone = set(ids).difference(each.id for each in found)
            copy_points(found, new, self.weights)
            if gone:
                new.update(UpdateOperation.delete_points(list(gone)))


def copy_schema(old: EdgeShard, new: EdgeShard) -> None:
    """Create the old shard's field indexes in the new shard."""
    known = new.info().payload_schema
    for name, index in old.info().payload_schema.items():
        if name not in known and index.params is not None:
            new.update(UpdateOperation.create_field_index(name, index.params))


class Reweighing(NamedTuple):
    """Change of the keyword weights of nodes from one mean number of terms to another."""

    old: float
    new: float

    @classmethod
    def of(cls, shard: EdgeShard, config: EmbeddedConfig) -> Self:
        """Return the change to the mean of 20,480 nodes of a shard, or of all if there are fewer.

        A mean within 2 % of the old one is no change.
        """
        old = config.average_length or USUAL_LENGTH
        pages = scroll(shard, limit=_PAGE, with_vector=[BM25], with_payload=False)
        lengths = [
            text_length(_keywords(each).values, old)
            for page in islice(pages, _SAMPLE)
            for each in page
        ]
        new = sum(lengths) / len(lengths) if any(lengths) else old
        return cls(old, new if abs(new - old) > _CLOSE * old else old)

    def vectors(self, record: Record) -> dict[str, Any]:  # Any: the engine's vectors
        """Return the vectors of a record with new keyword weights."""
        vectors: dict[str, Any] = {**record.vector}  # type: ignore[dict-item]
        if self.old != self.new:
            stored = _keywords(record)
            weights = reweighed(stored.values, old=self.old, new=self.new)
            vectors[BM25] = SparseVector(stored.indices, weights)
        return vectors

    def apply(self, shard: EdgeShard) -> None:
        """Change the weights of all nodes in a shard."""
        if self.old == self.new:
            return
        pages = scroll(shard, limit=_BATCH, with_vector=[BM25], with_payload=False)
        for page in filter(None, pages):
            vectors = [PointVectors(each.id, self.vectors(each)) for each in page]
            shard.update(UpdateOperation.update_vectors(vectors))


def _keywords(record: Record) -> SparseVector:
    return record.vector[BM25]  # type: ignore[index,return-value,call-overload]  # each has it


def copy_points(records: Sequence[Record], new: EdgeShard, weights: Reweighing) -> None:
    """Write records, which include vectors and payload, to the new shard with new weights."""
    points = [Point(record.id, weights.vectors(record), record.payload) for record in records]
    if points:
        new.update(UpdateOperation.upsert_points(points))


def is_borrowed(error: BaseException) -> bool:
    """Return whether a shard could not be closed, or called, because another thread is in a call.

    A call holds the GIL, but Python may collect garbage while it makes the result, and then another
    thread runs.
    """
    return isinstance(error, RuntimeError) and "borrowed" in str(error)


def close_shard(shard: EdgeShard) -> None:
    """Flush and close a shard, after the calls of other threads."""
    deadline = time.monotonic() + _CLOSING_S
    while True:
        try:
            shard.close()
        except RuntimeError as error:
            if not is_borrowed(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.001)
        else:
            return


def count_points(shard: EdgeShard) -> int:
    """Return the number of points."""
    return shard.info().points_count


def counts_removed(shard: EdgeShard, config: EmbeddedConfig) -> bool:
    """Return whether the engine's term statistics include removed nodes, as after a repeated log.

    The engine counts all sparse vectors in them, and the embeddings in the index when it was built.
    """
    info = shard.info()
    return info.indexed_vectors_count != info.points_count + config.indexed


def scroll(
    shard: EdgeShard,
    *,
    limit: int,
    with_vector: bool | list[str],
    with_payload: bool = True,
    filter_: Filter | None = None,
) -> Iterator[list[Record]]:
    """Yield pages of the matching points."""
    offset = None
    while True:
        records, offset = shard.scroll(
            ScrollRequest(
                offset=offset,
                limit=limit,
                filter=filter_,
                with_payload=with_payload,
                with_vector=with_vector,
            )
        )
        yield records
        if offset is None:
            return
