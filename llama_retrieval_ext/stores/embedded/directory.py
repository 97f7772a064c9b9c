"""`StoreDirectory`: an open store directory."""

import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Final, TypeVar

from qdrant_edge import EdgeShard, UpdateOperation

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.embedded.closed_files import ClosedFiles
from llama_retrieval_ext.stores.embedded.files import (
    DRAFT,
    FREEZE,
    LOCK,
    MANIFEST,
    RESERVE,
    DirectoryLock,
    EmbeddedConfig,
    FreezingLock,
    bytes_on_disk,
    check_room,
    clear_errors,
    copy_folder,
    is_engine_error,
    is_locked,
    is_panic,
    keep_reserve,
    prepare,
    read_config,
    sync_folder,
    translate_error,
    write_config,
)
from llama_retrieval_ext.stores.embedded.shard import (
    Draft,
    PointId,
    Reweighing,
    close_shard,
    count_points,
    counts_removed,
    create_shard,
    is_borrowed,
    open_shard,
    remove_shard,
    shard_folder,
    sync_log,
)
from llama_retrieval_ext.stores.engine.config import ConfigRequest

T = TypeVar("T")
# The engine's log survives a crash, but grows until a flush. What is in it, a third of this, is
# repeated at the next opening, also of a copy: about a second.
FLUSH_BYTES: Final = 64 * 2**20


class StoreDirectory:
    """The config and the engine's shard of one directory, locked against other processes.

    Thread-safe. Writers hold `lock`; readers need no lock. `open` creates the directory if missing,
    and `close` removes it if it is temporary.

    Attributes:
        config: Config of the store; replaced as a whole.
        lock: Lock for writers.
        drafting: Lock for making a draft; acquired before `lock`.
        build_from: Number of nodes from which an index is built automatically.
        is_building: Whether an automatic build is running or about to begin.
        was_closed: Whether its files were closed cleanly before it was opened, or are new.
        n_changes: Number of points that were written, and of other changes, since it was opened.
        inexact: Whether the engine's term statistics include removed or replaced nodes.
    """

    config: EmbeddedConfig
    lock: FreezingLock
    inexact: bool

    def __init__(self, path: Path, *, temporary: bool = False) -> None:
        self.path = path
        self.drafting = RLock()
        self.was_closed = True
        self.n_changes = self.build_from = 0
        self.is_building = False
        self._temporary = temporary
        self._process = os.getpid()
        self._opening = RLock()
        self._is_open = self._is_damaged = False
        self._draft: Draft | None = None
        self._last_draft = 0
        self._closed_files = ClosedFiles(
            path / MANIFEST,
            lambda: [path / MANIFEST, *filter(Path.is_file, self._folder.rglob("*"))],
        )

    def open(self, request: ConfigRequest) -> None:
        """Lock and open the directory; if it is open, apply another request to its config.

        Raises:
            StoreFormatError: The directory contains other files, or a store from a newer release.
            StoreUnavailableError: It cannot be written to, or another process has it open.
            ConfigurationError: The request does not match the config.
        """
        with self._opening:
            if self._is_open:
                with self.lock:
                    self._set_up(request.resolve(self.config, self.path))
                return
            prepare(self.path)
            with clear_errors(self.path):
                self._guard = DirectoryLock(self.path)
                self.lock = FreezingLock(self.path)
                try:
                    with self.lock:
                        self._open_files(request)
                except BaseException:
                    self.lock.release()
                    self._guard.release()
                    raise
            self._is_open = True

    def _open_files(self, request: ConfigRequest) -> None:
        recorded = read_config(self.path)
        if recorded is not None:
            self.was_closed = self._closed_files.check()
            self._closed_files.forget()  # the engine repeats its log in files that it only reads
        self.config = request.resolve(recorded or EmbeddedConfig(), self.path)
        if self.config != recorded:
            write_config(self.path, self.config)
        self._switch(self.config, self._open_shard(self.config, is_whole=self.was_closed))
        self._unsynced = True  # a killed process may have left changes that are not on the disk

    @property
    def _folder(self) -> Path:
        """The folder of the current shard."""
        return shard_folder(self.path, self.config)

    def establish(
        self, *, dimension: int, average_lengths: Mapping[str, float], schema: Schema
    ) -> None:
        """Create the shard if missing; record mean lengths and fields of the first nodes."""
        with self.lock:
            self._usable()
            if not self._temporary:
                keep_reserve(self.path)
            is_empty = not self.read(count_points, empty=0)
            if not is_empty and self.config.dimension == dimension:
                return
            config = ConfigRequest(dimension=dimension).resolve(self.config, self.path)
            if is_empty and self._draft is None:  # the weights of a draft depend on the means
                config = replace(config, average_lengths=average_lengths, schema=schema)
            self._set_up(config)

    def read(self, function: Callable[[EdgeShard], T], *, empty: T) -> T:
        """Return the result of a function of the shard, or `empty` without a shard."""
        while (shard := self._usable()) is not None:
            try:
                return function(shard)
            except BaseException as error:
                if not is_engine_error(error) and not is_borrowed(error):
                    raise
                self._is_damaged |= is_panic(error)
                if shard is self._shard:
                    raise translate_error(error, self.path) from error
                # Another thread has replaced the shard or closed the store: try again.
        return empty

    def change(
        self,
        function: Callable[[EdgeShard], None],
        *,
        size_bytes: int,
        points: Iterable[PointId] = (),
        deletion: UpdateOperation | None = None,
    ) -> None:
        """Call a function that writes or deletes points, if there is a shard."""
        with self.lock:
            self.check_disk()
            ids, draft = [*points], self._draft
            self.n_changes += len(ids) or 1  # before, since a part of them may be written
            if draft is not None:
                draft.points.update(ids)
            self.read(function, empty=None)
            if draft is not None and deletion is not None:
                draft.deletions.append(deletion)
            self._unflushed += size_bytes
            self._unsynced = True
            if self._unflushed >= FLUSH_BYTES:
                self.flush()

    def sync(self) -> None:
        """Make all changes survive a crash of the machine; no-op for a temporary directory.

        With its log on the disk, the engine repeats the changes when it opens the shard. Its own
        flush writes all its files, takes ten times as long, and holds the GIL.
        """
        with self.lock:
            if self._usable() is None or self._temporary or not self._unsynced:
                return
            if sys.platform == "linux":
                with self._reaching_disk():
                    sync_log(self._folder)
                self._unsynced = False
            else:  # where a file has not what was written to its map
                self.flush()

    def flush(self) -> None:
        """Flush the engine's log to its storage, which shortens the log."""
        with self.lock, self._reaching_disk():
            self.read(EdgeShard.flush, empty=None)
            self._unflushed, self._unsynced = 0, False

    @contextmanager
    def _reaching_disk(self) -> Generator[None]:
        """Refuse later writes if this one fails.

        Linux drops what it could not write to the disk, and reports success the next time:
        https://wiki.postgresql.org/wiki/Fsync_Errors.
        """
        self.check_disk()
        try:
            with clear_errors(self.path):
                yield
        except StoreUnavailableError:
            self._has_failed = True
            raise

    def check_disk(self) -> None:
        """Raise if a change did not reach the disk since the directory was opened."""
        if self._has_failed:
            raise StoreUnavailableError(
                f"changes in {self.path} could not be written to the disk, and a crash of the "
                "machine could lose them; check the disk, then close the store and open it again "
                "to write: until then it is only searched"
            )

    def sync_files(self, config: EmbeddedConfig) -> None:
        """Write the files of a shard to the disk, for the config to name it."""
        if not self._temporary:
            with clear_errors(self.path):
                sync_folder(shard_folder(self.path, config))

    def rebuild(
        self, fill: Callable[[EdgeShard, EdgeShard, Reweighing], None], schema: Schema | None = None
    ) -> None:
        """Fill a new shard, with the fields of the schema if it is given, and make it current.

        Readers continue, and writers wait. The config names the current shard: after a crash either
        the complete old one or the complete new one. Opening the directory removes the other.
        """
        with self.lock, clear_errors(self.path):
            self.check_disk()
            old = self._usable()
            if old is None:
                return
            self._abandon_draft()
            weights = Reweighing.of(old, self.config, schema)
            means = weights.average_lengths
            self.n_changes += weights.schema != self.config.schema
            after = replace(self._next_config(), average_lengths=means, schema=weights.schema)
            new = create_shard(self.path, after, logged=not self._temporary)
            try:
                fill(old, new, weights)
                new.flush()
                write_config(self.path, after)
            finally:
                self._settle(old, new, after)

    def load(self, source: Path) -> None:
        """Replace the shard by a copy of another directory's shard.

        The other directory must not change meanwhile. Readers continue; the old shard is removed.
        """
        config = read_config(source) or EmbeddedConfig()
        with self.lock, clear_errors(self.path):
            old = self._usable()
            self._abandon_draft()
            after = replace(config, generation=self._next_config().generation)
            is_whole = ClosedFiles(source / MANIFEST, list).check() or is_locked(source)
            if config.dimension is not None:
                shutil.rmtree(shard_folder(self.path, after), ignore_errors=True)
                copy_folder(shard_folder(source, config), shard_folder(self.path, after))
                self.sync_files(after)
            write_config(self.path, after)
            self.n_changes += 1
            # It removes the files of other shards.
            self._switch(after, self._open_shard(after, is_whole=is_whole))
            if old is not None:
                close_shard(old)

    def start_draft(self, *, min_free: int) -> Draft | None:
        """Return a draft with a copy of the shard's files; None without a shard.

        Writers wait during the copy, and later changes are recorded. The caller holds `drafting`
        and finishes or discards the draft.
        """
        with self.lock, clear_errors(self.path):
            if self._usable() is None:
                return None
            self.flush()
            check_room(self.path, size=2 * bytes_on_disk(self._folder), min_free=min_free)
            config = self._next_config()
            terms = config.tokenizer, config.schema, config.average_lengths
            folder = shard_folder(self.path, config)
            draft = Draft(config, folder, Reweighing(*terms, is_needed=False))
            shutil.rmtree(folder, ignore_errors=True)
            copy_folder(self._folder, folder)
            self._draft, self._last_draft = draft, config.generation
            return draft

    def finish_draft(self, draft: Draft, new: EdgeShard) -> None:
        """Apply the last changes to the new shard and make it current, unless it is abandoned."""
        with self.lock:
            old = self._usable()
            if draft.is_abandoned or old is None:
                return
            draft.bring_changes(old, new, self.lock)
            new.flush()
            after = replace(
                self.config,
                generation=draft.config.generation,
                indexed=draft.indexed,
                average_lengths=draft.weights.average_lengths,
            )
            write_config(self.path, after)
            self._draft = None
            self._settle(old, new, after)
            self.inexact = draft.is_changed

    def discard_draft(self, draft: Draft) -> None:
        """Drop a draft; delete its files unless its shard is current."""
        with self.lock:
            if self._draft is draft:
                self._draft = None
            if self._is_open and not self.is_made_of(draft):
                shutil.rmtree(draft.folder, ignore_errors=True)

    def is_made_of(self, draft: Draft) -> bool:
        """Whether the shard of a draft is the current one, or was when the directory was closed."""
        return self.config.generation == draft.config.generation

    @property
    def is_drafting(self) -> bool:
        """Whether a draft is in progress."""
        return self._draft is not None

    def _abandon_draft(self) -> None:
        if self._draft is not None:
            self._draft.abandon()
            self._draft = None

    def _next_config(self) -> EmbeddedConfig:
        unused = max(self._last_draft, self.config.generation) + 1
        return replace(self.config, generation=unused, indexed=0)

    def _settle(self, old: EdgeShard, new: EdgeShard, after: EmbeddedConfig) -> None:
        """Make the shard named by the config current; remove the other shard."""
        dropped, unnamed = new, after
        if read_config(self.path) == after:
            dropped, unnamed = old, self.config
            self._switch(after, new)
        close_shard(dropped)
        remove_shard(self.path, unnamed)

    def _switch(self, config: EmbeddedConfig, shard: EdgeShard | None) -> None:
        self.inexact = shard is not None and counts_removed(shard, config)
        self.config, self._shard = config, shard
        self._unflushed, self._unsynced, self._has_failed = 0, False, False

    def reset(self) -> None:
        """Remove all nodes, the dimension and the average length."""
        with self.lock:
            shard = self._usable()
            self._abandon_draft()
            self.n_changes += 1
            config = replace(self.config, dimension=None, average_lengths={}, indexed=0)
            with clear_errors(self.path):
                write_config(self.path, config)
                self._switch(config, None)
                if shard is not None:
                    close_shard(shard)
                    remove_shard(self.path, config)

    def remove(self) -> None:
        """Delete the store's files, and the directory if it is then empty."""
        self._abandon_draft()
        with self.drafting, self.lock, clear_errors(self.path):
            self.reset()
            # Under the lock, because afterwards another process may create these files.
            for name in (RESERVE, MANIFEST, DRAFT, FREEZE, LOCK):
                with suppress(PermissionError):  # Windows does not delete open files
                    (self.path / name).unlink(missing_ok=True)
            self._is_damaged = True
            self.close()
            with suppress(OSError):  # not empty
                self.path.rmdir()

    def close(self) -> None:
        """Flush and unlock the directory; no-op in a forked child."""
        if os.getpid() != self._process:
            return
        self._abandon_draft()
        with self.drafting:  # draft files must be deleted before unlocking
            try:
                if self._is_open:
                    with self.lock:
                        self._close_files()
            finally:
                if self._temporary:
                    shutil.rmtree(self.path, ignore_errors=True)

    def _close_files(self) -> None:
        self._abandon_draft()
        self._is_open = False
        shard, self._shard = self._shard, None
        try:
            with clear_errors(self.path):
                if shard is not None:
                    close_shard(shard)  # flushes first
                if not (self._temporary or self._has_failed or self._is_damaged):
                    self._closed_files.record()
        finally:
            self.lock.release()
            self._guard.release()

    def _usable(self) -> EdgeShard | None:
        if not self._is_open:
            raise StoreClosedError(f"the store {self.path} was closed; open it again")
        if os.getpid() != self._process:
            raise StoreUnavailableError(
                f"{self.path} was opened before this process was forked, and the engine has no "
                "threads here; open it after the fork, in one process"
            )
        return self._shard

    def _set_up(self, config: EmbeddedConfig) -> None:
        with clear_errors(self.path):
            if config != self.config:
                write_config(self.path, config)
                self.config = config
            if self._shard is None:
                self._shard = self._open_shard(config)

    def _open_shard(self, config: EmbeddedConfig, *, is_whole: bool = True) -> EdgeShard | None:
        return open_shard(self.path, config, logged=not self._temporary, is_whole=is_whole)
