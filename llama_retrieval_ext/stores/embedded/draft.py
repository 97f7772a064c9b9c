"""`Draft`: a new shard that is made while searches and writes continue in the current one.

Writes are recorded meanwhile, and repeated in the new shard before it becomes the current one.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from subprocess import Popen
from typing import Final
from uuid import UUID

from qdrant_edge import EdgeShard, Point, Record, UpdateOperation

from llama_retrieval_ext.stores.embedded.files import EmbeddedConfig

_BATCH: Final = 256


@dataclass(slots=True)
class Changes:
    """Writes to a shard since it was copied.

    Attributes:
        points: Ids of the points that were added or replaced.
        deletions: Deletions by filter.
    """

    points: set[UUID] = field(default_factory=set)
    deletions: list[UpdateOperation] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.points) + len(self.deletions)

    def bring(self, old: EdgeShard, new: EdgeShard) -> None:
        """Repeat them in the copy.

        Deletions come first, on points as they were copied. Points that were written since are
        then taken from the old shard, or deleted if they are gone there. Points that are written
        during this are among the next changes.
        """
        copy_schema(old, new)
        for deletion in self.deletions:
            new.update(deletion)
        for ids in _batches(self.points):
            found = old.retrieve(list(ids), with_payload=True, with_vector=True)
            gone = set(ids).difference(each.id for each in found)
            copy_points(found, new)
            if gone:
                new.update(UpdateOperation.delete_points(list(gone)))


@dataclass(slots=True, eq=False)
class Draft:
    """A shard in the making.

    Attributes:
        config: The directory's config once it is the current one.
        folder: Where it is made.
        changes: What was written to the current shard since it was copied.
        process: The process that indexes it, while it runs.
        is_abandoned: Whether the current shard is no longer the one that was copied.
        is_changed: Whether changes were repeated in it.
        indexed: How many nodes are in its index.
    """

    config: EmbeddedConfig
    folder: Path
    changes: Changes = field(default_factory=Changes)
    process: Popen[bytes] | None = None
    is_abandoned: bool = False
    is_changed: bool = False
    indexed: int = 0

    def abandon(self) -> None:
        """Stop the build; the copy is out of date."""
        self.is_abandoned = True
        if self.process is not None:
            self.process.kill()

    def bring_changes(
        self, old: EdgeShard, new: EdgeShard, lock: AbstractContextManager[object]
    ) -> None:
        """Repeat the changes in the copy; record later ones separately.

        Args:
            old: The current shard.
            new: The copy.
            lock: That of writers.
        """
        with lock:
            taken, self.changes = self.changes, Changes()
        self.is_changed = self.is_changed or bool(taken)
        taken.bring(old, new)


def copy_schema(old: EdgeShard, new: EdgeShard) -> None:
    """Index the fields that are indexed in the old shard."""
    known = new.info().payload_schema
    for name, index in old.info().payload_schema.items():
        if name not in known and index.params is not None:
            new.update(UpdateOperation.create_field_index(name, index.params))


def copy_points(records: Sequence[Record], new: EdgeShard) -> None:
    """Write points that were read with vectors and payload."""
    points = [Point(each.id, each.vector or {}, each.payload) for each in records]
    if points:
        new.update(UpdateOperation.upsert_points(points))


def _batches(ids: Iterable[UUID]) -> Iterator[list[int | UUID | str]]:
    rest = iter(ids)
    while batch := list(islice(rest, _BATCH)):
        yield list(batch)
