"""`Snapshot`: a private copy of a knowledge base in a directory that another process writes to.

The engine lets one process open its files, and writes even to read. So a reader copies them, while
the writer waits, to a temporary folder, and opens that; what the writer had half done is undone or
finished there. The directory itself is only read, and may be on a read-only file system.
"""

import logging
import shutil
import sqlite3
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

from llama_retrieval_ext.checks import check_seconds
from llama_retrieval_ext.errors import (
    ConfigurationError,
    RetrievalExtError,
    StoreUnavailableError,
)
from llama_retrieval_ext.ingest.add import IngestionParts
from llama_retrieval_ext.ingest.browsing import Browsable
from llama_retrieval_ext.ingest.ledger.local_ledger import LocalLedger
from llama_retrieval_ext.ingest.storage import LEDGER, Storage, missing
from llama_retrieval_ext.stores.embedded.files import frozen
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.urls import Location

_logger = logging.getLogger(__name__)


class Snapshot:
    """A copy of an embedded knowledge base in a temporary folder.

    Args:
        url: Of the knowledge base.

    Attributes:
        url: Of the copy.

    Raises:
        ConfigurationError: It is not in a directory, or not there.
        StoreUnavailableError: It cannot be read, or there is no room for the copy.
    """

    def __init__(self, url: str) -> None:
        location = Location.of(url)
        if location.engine != "embedded" or location.path is None:
            raise ConfigurationError(
                f"read_only=True is for embedded:DIRECTORY, got {url}; a server takes any number "
                "of processes, leave it out"
            )
        self._source = location.path
        if not (self._source / LEDGER).is_file():
            raise missing(url)
        self._folder = Path(tempfile.mkdtemp(prefix="llama-retrieval-ext-"))
        self._end = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.url = f"embedded:{self._folder}"
        self._seen: object = None
        try:
            with EmbeddedVectorStore(self._folder) as store, self._ledger() as ledger:
                self._copy(store, ledger)
        except BaseException:
            self.close()
            raise

    def refresh(self, store: EmbeddedVectorStore, ledger: LocalLedger) -> bool:
        """Copy again to the open copy; False if nothing was written since.

        Searches go on meanwhile, and see the old copy or the new one.
        """
        if self._state() == self._seen:
            return False
        with ledger.database.connection() as connection:
            self._copy(store, connection)
        return True

    def close(self) -> None:
        """Delete the copy."""
        self._end()

    def _ledger(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(self._folder / LEDGER))

    def _copy(self, store: EmbeddedVectorStore, ledger: sqlite3.Connection) -> None:
        try:
            with frozen(self._source):
                seen = self._state()
                # What is half written in the ledger has not begun in the store, or is done there.
                store.load(self._source)
                _copy_ledger(self._source / LEDGER, ledger)
                self._seen = seen
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, StoreUnavailableError):
                raise
            raise StoreUnavailableError(
                f"{self._source} cannot be copied to {self._folder}: {error}; check that it can be "
                "read, and that there is room for a copy"
            ) from error

    def _state(self) -> object:
        """Return what differs once something was written: every write goes through the ledger."""
        files = (self._source / f"{LEDGER}{suffix}" for suffix in ("", "-wal"))
        stats = [file.stat() for file in files if file.exists()]
        return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in stats]


def _copy_ledger(source: Path, target: sqlite3.Connection) -> None:
    """Copy a database that may be open elsewhere, or lie on a read-only file system."""
    # Without a log nobody has it open, and nobody can open it while it is frozen: SQLite need not
    # make the files by which it shares it.
    is_open = source.with_name(f"{source.name}-wal").exists()
    flags = "mode=ro" if is_open else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{source.as_uri()}?{flags}", uri=True)) as connection:
        connection.backup(target)
    # The graph is the writer's; what is settled in the copy must not be written there.
    with target:
        target.execute("UPDATE manifest SET value = '\"\"' WHERE key IN ('graph', 'graph_key')")


class Refresher:
    """Calls a function every so many seconds, in a thread, until it is closed."""

    def __init__(self, function: Callable[[], object], every_s: float) -> None:
        self._ended = Event()
        self._thread = Thread(target=self._run, args=(function, every_s), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._ended.set()

    def _run(self, function: Callable[[], object], every_s: float) -> None:
        while not self._ended.wait(every_s):
            try:
                function()
            except ReferenceError:  # the knowledge base is gone
                return
            except RetrievalExtError as error:
                if not self._ended.is_set():
                    _logger.warning("the snapshot stays as it was: %s", error)


def open_snapshot(
    url: str, *, read_only: bool, refresh_s: float | None, has_graph: bool
) -> Snapshot | None:
    """Return the copy that is read from; None for a knowledge base that is written to."""
    if refresh_s is not None:
        check_seconds(refresh_s, "refresh_s", otherwise="to copy on request leave it out")
    if not read_only:
        if refresh_s is not None:
            raise ConfigurationError("refresh_s is for read_only=True; leave it out")
        return None
    if has_graph:
        raise ConfigurationError("with read_only=True there is no graph; leave graph out")
    return Snapshot(url)


class Refreshable(Browsable):
    """A knowledge base that may be a copy."""

    _storage: Storage
    _parts: IngestionParts
    _snapshot: Snapshot | None = None
    _refresher: Refresher | None = None

    @abstractmethod
    def _check_open(self) -> None:
        """Raise if it was closed."""

    def refresh(self) -> bool:
        """Copy a knowledge base that was opened with ``read_only=True`` again, if it has changed.

        Searches go on meanwhile; retrievers made before see the new copy, too.

        Returns:
            Whether something was written since the last copy.

        Raises:
            ConfigurationError: It was opened to write, and is always as it was last written.
            StoreUnavailableError: It cannot be read, or there is no room for the copy.
        """
        store, ledger = self._storage.store, self._ledger
        with self._storage.lock:
            self._check_open()
            if (
                self._snapshot is None
                or not isinstance(store, EmbeddedVectorStore)
                or not isinstance(ledger, LocalLedger)
            ):
                raise ConfigurationError(f"{self.url} is no copy: leave refresh() out")
            changed = self._snapshot.refresh(store, ledger)
            if changed:
                self._parts.writer.settle()
            return changed

    def _read_from(self, snapshot: Snapshot | None, refresh_s: float | None) -> None:
        self._snapshot = snapshot
        if refresh_s is not None:
            kept = weakref.proxy(self)
            self._refresher = Refresher(lambda: kept.refresh(), refresh_s)  # noqa: PLW0108 - `kept.refresh` would keep it alive

    def _close_snapshot(self) -> None:
        if self._refresher is not None:
            self._refresher.close()
        if self._snapshot is not None:
            self._snapshot.close()
