"""The engine's shards in a store directory: creation, loading, and the draft of a new one."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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

from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.embedded import check_shard
from llama_retrieval_ext.stores.embedded.files import (
    EmbeddedConfig,
    bytes_on_disk,
    check_room,
    damaged_error,
    sync_folder,
    translate_error,
)
from llama_retrieval_ext.stores.encoding.node_json import node_from_text
from llama_retrieval_ext.stores.qdrant_common.points import NODE
from llama_retrieval_ext.stores.qdrant_common.terms import Terms, mean_lengths, terms_of
from llama_retrieval_ext.text.tokenizer import Tokenizer

DENSE: Final = "dense"
BM25: Final = "bm25"

# The engine's type; ours are integers.
PointId: TypeAlias = int | UUID | str

_DRAFT: Final = "shard.new"
_OLD: Final = "shard.old"
_OURS: Final = re.compile(r"shard(-\d+|\.new|\.old)?")
DATATYPES: Final = {
    "float32": "Float32",
    "float16": "Float16",
    "turbo8": "Turbo8",
    "int8": "Float16",
    "turbo4": "Turbo8",
}
# The engine uses these only in an index, and rescores with what is stored.
RESCORED: Final = ("int8", "turbo4")
# Points that are copied at a time.
_BATCH: Final = 256
_PAGE: Final = 1024
# Below this number of filtered nodes, the engine compares their terms one by one, .1 ms per 1,000;
# with its default, 5,000, a search of 4,000 of 5,000 nodes takes five times as long.
_FULL_SCAN_TERMS: Final = 500
# Pages whose nodes give the mean number of terms; in the order of hashed ids, they are a sample.
_SAMPLE: Final = 8
# A mean that differs less changes the weights of a field together, by 4 % at most for a usual term.
# On musique, nDCG@10 is .626 with means that are 10 % too small or too large, and .625 with exact.
_CLOSE: Final = 0.1
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
    for leftover in (draft, folder):
        shutil.rmtree(leftover, ignore_errors=True)
    dense = EdgeVectorParams(
        config.dimension or 1,
        getattr(Distance, config.distance.capitalize()),
        datatype=getattr(VectorStorageDatatype, DATATYPES[config.vectors]),
    )
    sparse = EdgeSparseVectorParams(full_scan_threshold=_FULL_SCAN_TERMS, modifier=Modifier.Idf)
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
        weights: Change of the keyword weights of the copy.
        points: Ids of points written to the current shard since the copy.
        deletions: Deletions by filter since the copy.
        process: The running index process.
        is_abandoned: Whether the copied shard is no longer current.
        is_changed: Whether changes were applied to the new shard.
        indexed: Number of nodes to index, then in the index.
    """

    config: EmbeddedConfig
    folder: Path
    weights: "Reweighing"
    points: set[PointId] = field(default_factory=set)
    deletions: list[UpdateOperation] = field(default_factory=list)
    process: Popen[bytes] | None = None
    is_abandoned: bool = False
    is_changed: bool = False
    indexed: int = 0

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
        remaining = iter(points)
        while ids := list(islice(remaining, _BATCH)):
            records = old.retrieve(ids, with_payload=True, with_vector=True)
            gone = set(ids).difference(record.id for record in records)
            copy_points(records, new, self.weights)
            if gone:
                new.update(UpdateOperation.delete_points(list(gone)))


def indexed_fields(shard: EdgeShard) -> frozenset[str]:
    """Return the names of fields with an index; the engine returns paths with few quotes."""
    return frozenset(name.replace('"', "") for name in shard.info().payload_schema)


def copy_schema(old: EdgeShard, new: EdgeShard) -> None:
    """Create the old shard's field indexes in the new shard."""
    indexed = new.info().payload_schema
    for name, index in old.info().payload_schema.items():
        if name not in indexed and index.params is not None:
            new.update(UpdateOperation.create_field_index(name, index.params))


class Reweighing(NamedTuple):
    """Change of the keyword weights of nodes to other mean lengths, or other fields.

    Attributes:
        tokenizer: Splits texts into terms.
        schema: The fields.
        average_lengths: The mean lengths.
        is_needed: Whether they differ from those of the stored weights.
    """

    tokenizer: Tokenizer
    schema: Schema
    average_lengths: Mapping[str, float]
    is_needed: bool

    @classmethod
    def of(cls, shard: EdgeShard, config: EmbeddedConfig, schema: Schema | None = None) -> Self:
        """Return the change to the means of 8,192 nodes of a shard, or of all if there are fewer.

        Means within 10 % of the old ones are no change.
        """
        new, old = schema or config.schema, config.average_lengths
        pages = scroll(shard, limit=_PAGE, with_vector=False)
        sample = [_terms(page, config.tokenizer, new) for page in islice(pages, _SAMPLE) if page]
        means = mean_lengths(sample, is_exact=True)
        is_needed = set(new.text) != set(config.schema.text) or any(
            abs(mean - old.get(name, 0)) > _CLOSE * old.get(name, 0) for name, mean in means.items()
        )
        return cls(config.tokenizer, new, means if is_needed else old, is_needed)

    def vectors(self, records: Sequence[Record]) -> list[dict[str, Any]]:  # Any: the engine's
        """Return the vectors of records, at least one, with new keyword weights."""
        vectors: list[dict[str, Any]] = [{**record.vector} for record in records]  # type: ignore[dict-item]
        if self.is_needed:
            terms = _terms(records, self.tokenizer, self.schema)
            for vector, weighed in zip(vectors, terms.weighed(self.average_lengths), strict=True):
                vector[BM25] = SparseVector(*weighed)
        return vectors

    def apply(self, shard: EdgeShard) -> None:
        """Change the weights of all nodes in a shard."""
        pages = scroll(shard, limit=_BATCH, with_vector=[BM25]) if self.is_needed else ()
        for page in filter(None, pages):
            vectors = zip(page, self.vectors(page), strict=True)
            changed = [PointVectors(record.id, vector) for record, vector in vectors]
            shard.update(UpdateOperation.update_vectors(changed))


def _terms(records: Sequence[Record], tokenizer: Tokenizer, schema: Schema) -> Terms:
    nodes = [node_from_text((record.payload or {})[NODE]) for record in records]
    return terms_of(nodes, tokenizer, schema)


def copy_points(records: Sequence[Record], new: EdgeShard, weights: Reweighing) -> None:
    """Write records, which include vectors and payload, to the new shard with new weights."""
    if not records:
        return
    points = [
        Point(record.id, vector, record.payload)
        for record, vector in zip(records, weights.vectors(records), strict=True)
    ]
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


def number_of(point: UUID) -> int:
    """Return the engine's id of a point: 62 random bits, read ten times as fast as a UUID."""
    return point.int % 2**64


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
