"""`Refreshable`: the part of a knowledge base that reads from a copy; see `Snapshot`."""

import weakref
from abc import abstractmethod

from llama_retrieval_ext.checks import check_seconds
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.ingest.add import IngestionParts
from llama_retrieval_ext.ingest.browsing import Browsable
from llama_retrieval_ext.ingest.local_ledger import LocalLedger
from llama_retrieval_ext.ingest.snapshot import Refresher, Snapshot
from llama_retrieval_ext.ingest.storage import Storage
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore


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

    def _check_writable(self) -> None:
        if self._snapshot is not None:
            raise ConfigurationError(
                "this knowledge base was opened to read only; open it without read_only to write"
            )
