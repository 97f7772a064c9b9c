"""`Mirror`: a ledger's tables in memory, whose every change is written to a server first."""

import logging
import secrets
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, sleep
from typing import Final, TypeAlias

from llama_retrieval_ext.errors import StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.ingest.ledger import (
    IN_MOTION_AND_NODES,
    SCHEMA,
    Database,
    Ledger,
    unknown_nodes_error,
)
from llama_retrieval_ext.ingest.records import (
    MANIFEST,
    Companion,
    State,
    Texts,
    Told,
    document_texts,
    insert_documents,
    manifest_text,
    manifest_told,
    redo_names,
    unused,
)

Rows: TypeAlias = tuple[tuple[str, str], ...]

_CHANGED = "CREATE TABLE changed (tenant, kb, ref, UNIQUE (tenant, kb, ref));"
# What notes which documents a transaction changes.
_NOTE = (
    "CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN INSERT OR IGNORE INTO changed {key}; END"
)
_TRIGGERS = [
    (f"{table}_{event}", event, table, key.format("OLD" if event == "DELETE" else "NEW"))
    for table, key in (
        ("documents", "VALUES ({0}.tenant, {0}.kb, {0}.ref)"),
        ("nodes", "SELECT tenant, kb, ref FROM documents WHERE id = {0}.document"),
        ("redo", "SELECT tenant, kb, ref FROM documents WHERE id = {0}.document"),
    )
    for event in ("INSERT", "UPDATE", "DELETE")
]


class Mirror(Database):
    """The tables of a ledger whose lasting place is a companion.

    A transaction is over when the companion has its changes. What others write is seen by
    `refresh`.

    One process may write at a time. Another one is noticed, when its writes come between those of
    this one.

    Args:
        companion: Where the records are.

    Raises:
        StoreUnavailableError: It cannot be read.
    """

    def __init__(self, companion: Companion) -> None:
        self._companion = companion
        self._is_loaded = False
        self._redo: dict[str, str] = {}
        self._own_stamp = ""
        told = self._told()
        super().__init__(None, SCHEMA + _CHANGED)
        with super().transaction() as connection:
            connection.executemany("INSERT INTO manifest VALUES (?, ?)", told.rows)
            _set_triggers(connection)
        self._state, self._rows = told.state, told.rows

    def counts(self) -> tuple[int, int]:
        """How many documents are being written and how many nodes all have, as last read."""
        with self._lock:
            if self._is_loaded:
                # Who died before the manifest was written has left it behind the documents.
                ((in_motion, n_nodes),) = self.rows(IN_MOTION_AND_NODES)
                return int(str(in_motion)), int(str(n_nodes))
            return self._state.in_motion, self._state.n_nodes

    def other_writer_state(self) -> str:
        """What tells that another one was writing when it was last read; empty if none was.

        It is another text each time that one has written, until it is done or dead.
        """
        with self._lock:
            is_own = self._state.stamp == self._own_stamp
            return self._state.stamp if self._state.in_motion and not is_own else ""

    def motion_now(self) -> str:
        """What tells that somebody is writing, asked anew, and kept nowhere; empty if nobody is."""
        state = self._told().state
        return state.stamp if state.in_motion else ""

    @property
    def is_there(self) -> bool:
        """Whether the companion had a manifest when it was last read."""
        return bool(self._state.stamp)

    def claim(self) -> None:
        """Say that what others have left half done is this one's to settle, so that others wait.

        Raises:
            StoreUnavailableError: Somebody else was faster.
        """
        with self._lock:
            in_motion, _ = self.counts()
            if not in_motion or self._state.stamp == self._own_stamp:
                return
            self._check_alone()
            with super().transaction() as connection:
                self._write_manifest(connection)
            self._check_alone()

    def is_current(self) -> bool:
        """Whether nobody has written since it was last read."""
        with self._lock:
            return self._told().state == self._state

    def refresh(self) -> None:
        """See all documents, as whoever wrote last has left them.

        Raises:
            StoreUnavailableError: The companion cannot be read.
        """
        with self._lock:
            told = self._told()
            if self._is_loaded and told.state == self._state:
                return
            self._is_loaded = False
            records = self._companion.read_all() if told.rows else {}
            with super().transaction() as connection:
                _fill(connection, told, records)
                # Where the manifest was removed it comes back with the next dimension alone.
                self._rows = _manifest_rows(connection)
            self._redo = redo_names(records)
            self._companion.delete_later(unused(records))
            # As it was before the others were read: what was written meanwhile is seen next time.
            self._state, self._is_loaded = told.state, True

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of it is kept, or nothing; of its documents each, if it fails halfway.

        Raises:
            StoreUnavailableError: The companion cannot be written, or somebody else has written.
            StoreClosedError: It is closed.
        """
        with self._lock:
            try:
                with super().transaction() as connection:
                    yield connection
                    self._write_through(connection)
            except BaseException:
                # The companion may know more than is known here.
                self._is_loaded = False
                raise

    def _write_through(self, connection: sqlite3.Connection) -> None:
        changed = connection.execute("SELECT tenant, kb, ref FROM changed").fetchall()
        connection.execute("DELETE FROM changed")
        if not changed and _manifest_rows(connection) == self._rows:
            return
        self._check_alone()
        self._write_documents([document_texts(connection, key) for key in changed])
        self._check_alone()  # what was written may have taken a while
        # Last: who reads it earlier would take what is there for all there is.
        self._write_manifest(connection)
        self._companion.tidy()

    def _write_manifest(self, connection: sqlite3.Connection) -> None:
        state = self._next_state(connection)
        self._own_stamp = state.stamp
        self._companion.write({MANIFEST: manifest_text(connection, state)})
        self._state, self._rows = state, _manifest_rows(connection)

    def _check_alone(self) -> None:
        if self._told().state != self._state:
            raise StoreUnavailableError(
                "another process has written to this knowledge base at the same time; let one "
                "process write at a time, and do this again"
            )

    def _write_documents(self, documents: Sequence[Texts]) -> None:
        outdated = [self._redo.pop(each.name) for each in documents if each.name in self._redo]
        redo = {each.redo_name: each.redo for each in documents if each.redo_name is not None}
        # What finishes an update must be there before the document says that it is begun.
        self._companion.write(redo)
        self._companion.write({each.name: each.text for each in documents if each.text is not None})
        self._companion.delete(each.name for each in documents if each.text is None)
        self._companion.delete_later(outdated)
        for each in documents:
            if each.redo_name is not None:
                self._redo[each.name] = each.redo_name

    def _next_state(self, connection: sqlite3.Connection) -> State:
        stamp = secrets.token_hex(8)
        if not self._is_loaded:  # it is opened, and only the manifest changes
            return replace(self._state, stamp=stamp)
        return State(stamp, *connection.execute(IN_MOTION_AND_NODES).fetchone())

    def _told(self) -> Told:
        text = self._companion.read(MANIFEST)
        return Told(State(), ()) if text is None else manifest_told(text)


def _fill(connection: sqlite3.Connection, told: Told, records: Mapping[str, str]) -> None:
    for name, *_ in _TRIGGERS:
        connection.execute(f"DROP TRIGGER {name}")
    for table in ("documents", "nodes", "redo", *(["manifest"] if told.rows else [])):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - one of those
    if told.rows:
        connection.executemany("INSERT INTO manifest VALUES (?, ?)", told.rows)
    else:  # nothing was added yet, or somebody has removed it all
        connection.execute("DELETE FROM manifest WHERE key = 'dimension'")
    insert_documents(connection, records)
    _set_triggers(connection)


def _set_triggers(connection: sqlite3.Connection) -> None:
    for name, event, table, key in _TRIGGERS:
        connection.execute(_NOTE.format(name=name, event=event, table=table, key=key))


def _manifest_rows(connection: sqlite3.Connection) -> Rows:
    return tuple(connection.execute("SELECT key, value FROM manifest ORDER BY key").fetchall())


_LOOK_AGAIN_S: Final = 0.1
_TOLD_AFTER_S: Final = 2.0
_logger = logging.getLogger(__name__)


class MirroredLedger(Ledger):
    """A ledger whose lasting place is beside the store, where every machine finds it.

    Args:
        mirror: Its tables.
        held: How many nodes the store holds.
        patience_s: After so long without a sign of it another writer counts as dead. It gives one
            before and after each batch.
    """

    def __init__(self, mirror: Mirror, *, held: Callable[[], int], patience_s: float = 0.0) -> None:
        super().__init__(mirror)
        self._mirror = mirror
        self._held = held
        self._patience_s = patience_s

    def refresh(self) -> None:
        """See what others have written.

        Raises:
            StoreUnavailableError: The server does not answer.
            ModelMismatchError: Since it was opened, somebody has set it up with another model.
            ConfigurationError: Likewise, with other settings.
        """
        self._mirror.refresh()
        recorded = self.manifest()
        if recorded is not None and self._admitted is not None:
            recorded.opened(*self._admitted)

    def refresh_to_write(self) -> None:
        """See what others have written, once none is writing, or who was is dead.

        Raises:
            StoreUnavailableError: The server does not answer.
            StoreClosedError: Since it was opened, somebody has removed it.
            ModelMismatchError: Likewise, somebody has set it up with another model.
            ConfigurationError: Likewise, with other settings.
        """
        seen, since = "", 0.0
        is_told = False
        while True:
            self.refresh()
            self._check_there()
            motion = self._mirror.other_writer_state()
            if motion != seen:
                seen, since = motion, monotonic()
            if not motion or monotonic() - since >= self._patience_s:
                self._mirror.claim()
                return
            if not is_told and monotonic() - since > _TOLD_AFTER_S:
                _logger.warning(
                    "another process is writing to this knowledge base, or died while it was: "
                    "waiting, for %g seconds without a sign of it",
                    self._patience_s,
                )
                is_told = True
            sleep(_LOOK_AGAIN_S)

    def check_unwritten(self, where: str) -> None:
        """Nothing, unless somebody is writing; who began to, and gives no sign, is dead.

        Args:
            where: The knowledge base, for messages.

        Raises:
            StoreUnavailableError: Somebody is, or the server does not answer.
        """
        motion = self._mirror.motion_now()
        until = monotonic() + self._patience_s
        while motion and monotonic() < until:
            sleep(_LOOK_AGAIN_S)
            if self._mirror.motion_now() != motion:
                raise StoreUnavailableError(
                    f"{where} is being written to by another process; do this again when it is done"
                )

    def record_dimension(self, dimension: int) -> None:
        """Keep the dimension of the vectors, before the first is stored.

        Raises:
            StoreFormatError: The store is not empty: since it was opened its ledger was removed.
            StoreClosedError: Since it was opened, somebody has removed it.
            ConfigurationError: Likewise, somebody has set it up otherwise.
            ModelMismatchError: Likewise, with another embedding model.
        """
        held = self._held()
        if held and self.dimension() is None:
            raise unknown_nodes_error("the store", held)
        self.refresh()
        self._check_there()
        super().record_dimension(dimension)

    def at_rest(self) -> int | None:
        """How many nodes the store must hold; None while something is being written."""
        in_motion, n_nodes = self._mirror.counts()
        return None if in_motion else n_nodes

    def is_current(self) -> bool:
        """Whether nobody has written since it was last read."""
        return self._mirror.is_current()

    def _check_there(self) -> None:
        if not self._mirror.is_there:
            raise StoreClosedError(
                "the knowledge base was removed since it was opened; open it again to make a new "
                "one"
            )
