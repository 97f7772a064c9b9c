"""`ReadOnlyCopy`: a private copy of a knowledge base in a directory that another process writes to.

Only one process can open the engine's files, and reading also writes to them. A reader therefore
copies them to a temporary folder while the writer waits, and opens the copy, where unfinished
changes are undone or finished. The directory is only read, and may be on a read-only file system.
"""

import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from time import time
from typing import Final

from llama_retrieval_ext.checks import check_seconds
from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError, StoreUnavailableError
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.sqlite_rows import FILE as GRAPH_FILE
from llama_retrieval_ext.knowledge_base.graph import directory_of
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.sqlite_records import SqliteRecords
from llama_retrieval_ext.knowledge_base.storage import LEDGER, Storage, missing
from llama_retrieval_ext.stores.embedded.files import CAN_FREEZE, LOCK, DirectoryLock, frozen
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.urls import Location

_PREFIX: Final = "llama-retrieval-ext-"
# A younger folder may be one that is about to be locked.
_NEW_S: Final = 60.0
_logger = logging.getLogger(__name__)


class ReadOnlyCopy:
    """A copy of an embedded knowledge base, and of its embedded graph, in a temporary folder."""

    def __init__(self, url: str, graph: str | None = None) -> None:
        location = Location.of(url)
        if location.engine != "embedded" or location.path is None:
            raise ConfigurationError(
                f"read_only=True is for embedded:DIRECTORY, got {url}; a server takes any number "
                "of processes, leave it out"
            )
        self._source = location.path
        self._graph_source = None if graph is None else _graph_folder(graph)
        if not (self._source / LEDGER).is_file():
            raise missing(url, to_create=False)
        _remove_left_copies()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._guard = DirectoryLock(self._folder)  # until this process ends
        self._end = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._kb = self._folder / "kb"
        self.url = f"embedded:{self._kb}"
        self.graph = None if graph is None else f"graph:{self._folder / 'graph'}"
        self._seen: object = None
        try:
            self._copy_first()
        except BaseException:
            self.close()
            raise

    def refresh(self, storage: Storage) -> bool:
        """Update the open copy, while searches continue; return False if nothing was written."""
        store, ledger, side = storage.store, storage.ledger, storage.graph
        if not isinstance(store, EmbeddedVectorStore) or ledger.file is None:
            raise TypeError("a copy is on the embedded engine")
        if self._state() == self._seen:
            return False
        graph = side.graph if side and isinstance(side.graph, EmbeddedGraph) else None
        with ledger.file.connection():
            self._copy(store, ledger, graph)
        return True

    def close(self) -> None:
        """Delete the copy."""
        self._end()
        self._guard.release()

    def _copy_first(self) -> None:
        with ExitStack() as resources:
            store = resources.enter_context(EmbeddedVectorStore(self._kb))
            ledger = Ledger(SqliteRecords(self._kb / LEDGER), count_stored=store.count)
            resources.callback(ledger.close)
            graph = None
            if self.graph is not None:
                graph = resources.enter_context(EmbeddedGraph(self._folder / "graph"))
            self._copy(store, ledger, graph)

    def _copy(
        self, store: EmbeddedVectorStore, ledger: Ledger, graph: EmbeddedGraph | None
    ) -> None:
        try:
            with frozen(self._source):
                seen = self._state()
                # A document is written to the ledger, the graph and the store, in this order, then
                # recorded as done. Nothing is written to the store now. So the ledger's copy has
                # every document of the graph's copy, done or to be finished as after a crash.
                store.load(self._source)
                if graph is not None and self._graph_source is not None:
                    graph.load(self._graph_source)
                if ledger.file is not None:
                    ledger.file.copy_from(self._source / LEDGER)
                self._record_graph(ledger)
                self._seen = seen
        except OSError as error:
            if isinstance(error, StoreUnavailableError):
                raise
            raise StoreUnavailableError(
                f"{self._source} cannot be copied to {self._folder}: {error}; check that it can be "
                "read, and that there is room for a copy"
            ) from error

    def _record_graph(self, ledger: Ledger) -> None:
        """Record the copy of the graph, because the writer owns the original."""
        config = ledger.config()
        recorded = "" if config is None else config.graph
        if self._graph_source is not None and recorded != f"graph:{self._graph_source}":
            has = f"the graph {recorded}" if recorded else "no graph"
            raise ConfigurationError(
                f"{self._source} has {has}, and is opened with graph:{self._graph_source}; open it "
                "with its own, or leave graph out"
            )
        if config is not None:
            key = config.graph_key if self.graph else ""
            copied = replace(config, graph=self.graph or "", graph_key=key)
            ledger.update_config(lambda _: copied)

    def _state(self) -> object:
        """Return a value that changes with every write, because each one changes the ledger."""
        files = [self._source / LEDGER]
        if self._graph_source is not None:
            files.append(self._graph_source / GRAPH_FILE)
        logs = [file.with_name(f"{file.name}-wal") for file in files]
        stats = [file.stat() for file in (*files, *logs) if file.exists()]
        return [(stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]


def _graph_folder(url: str) -> Path:
    folder = directory_of(url)
    if folder is None:
        raise ConfigurationError(
            "with read_only=True the graph is copied, too, and must be graph:DIRECTORY, got "
            f"{url}; leave graph out to search without it"
        )
    if not (folder / GRAPH_FILE).is_file():
        raise ConfigurationError(f"there is no graph at {url}; check the URL, or leave graph out")
    return folder


def open_copy(
    url: str, graph: object, *, read_only: bool, refresh_s: float | None
) -> ReadOnlyCopy | None:
    """Return the copy to read from; None for a writable knowledge base."""
    if refresh_s is not None:
        check_seconds(refresh_s, "refresh_s", otherwise="to copy on request leave it out")
    if not read_only:
        if refresh_s is not None:
            raise ConfigurationError("refresh_s is for read_only=True; leave it out")
        return None
    if not CAN_FREEZE:
        raise ConfigurationError(
            "read_only=True needs file locks that Windows does not have; open the knowledge base "
            "in one process, or use a server (qdrant://, milvus://, elasticsearch://)"
        )
    if graph is not None and not isinstance(graph, str):
        raise ConfigurationError(
            "with read_only=True the graph is copied, too: pass its URL, graph:DIRECTORY, got "
            f"{type(graph).__name__}"
        )
    return ReadOnlyCopy(url, graph)


def refresh_every(seconds: float, refresh: Callable[[], object], resources: ExitStack) -> None:
    """Call a bound method at an interval until the resources are closed or its object is gone."""
    ended = Event()
    resources.callback(ended.set)
    arguments = weakref.WeakMethod(refresh), seconds, ended
    Thread(target=_refresh_every, args=arguments, daemon=True).start()


def _refresh_every(
    method: "weakref.WeakMethod[Callable[[], object]]", seconds: float, ended: Event
) -> None:
    while not ended.wait(seconds):
        refresh = method()
        if refresh is None:  # the knowledge base is gone
            return
        try:
            refresh()
        except RetrievalExtError as error:
            if not ended.is_set():
                _logger.warning("the snapshot stays as it was: %s", error)
        del refresh


def _remove_left_copies() -> None:
    """Delete what processes that were killed have left in the temporary folder."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{LOCK}"):
        with suppress(OSError):  # it is open, of another user, or gone
            if time() - lock.stat().st_mtime > _NEW_S:
                guard = DirectoryLock(lock.parent)
                shutil.rmtree(lock.parent, ignore_errors=True)
                guard.release()
