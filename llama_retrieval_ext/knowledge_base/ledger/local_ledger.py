"""`LocalLedger`: the ledger of a knowledge base on this machine, in a SQLite file.

Only one process opens the file. Its objects share a write lock; each rereads the file.
"""

import json
import sqlite3
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import RLock
from typing import Any, Final

from llama_retrieval_ext.errors import (
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base.ledger.ledger import (
    Entry,
    KnowledgeBaseConfig,
    Ledger,
    SourceKey,
    SyncedSource,
    config_from,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.embedded.closed_files import ClosedFiles, check_database

# Other handles lock the file for milliseconds; a minute allows for a machine that swaps.
_WAIT_S = 60.0


# `source` is empty if the document is its own source. `state` and `role` are NULL unless a change
# is unfinished; `journal.py` lists their values. The key columns have the order of `DocumentKey`.
# `allowed` has the principals who may see it as a JSON list, `new_allowed` those after an update.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, kb TEXT NOT NULL, ref TEXT NOT NULL,
    digest TEXT NOT NULL, state TEXT, source TEXT NOT NULL, allowed TEXT NOT NULL DEFAULT '[]',
    new_allowed TEXT, UNIQUE (ref, tenant, kb)
);
CREATE INDEX IF NOT EXISTS documents_of_source ON documents (source);
CREATE INDEX IF NOT EXISTS documents_in_motion ON documents (state) WHERE state IS NOT NULL;
CREATE TABLE IF NOT EXISTS nodes (
    node_id TEXT PRIMARY KEY, document INTEGER NOT NULL, role TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS nodes_of_document ON nodes (document);
CREATE INDEX IF NOT EXISTS nodes_in_motion ON nodes (role) WHERE role IS NOT NULL;
CREATE TABLE IF NOT EXISTS redo (
    document INTEGER NOT NULL, node TEXT NOT NULL, embedding BLOB NOT NULL, rows TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS redo_of_document ON redo (document);
CREATE TABLE IF NOT EXISTS synced (
    owner TEXT NOT NULL, tenant TEXT NOT NULL, kb TEXT NOT NULL, source TEXT NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, content TEXT NOT NULL, stamp TEXT NOT NULL,
    allowed TEXT NOT NULL, earlier TEXT NOT NULL, PRIMARY KEY (owner, tenant, kb, source)
) WITHOUT ROWID;
"""


class Database:
    """The tables of a ledger in a thread-safe SQLite database; in memory without a path."""

    def __init__(self, path: Path | None) -> None:
        self._where = "the ledger in memory" if path is None else str(path)
        self._closed_files = None if path is None else ClosedFiles(path, lambda: [path])
        self.was_closed = path is None or ClosedFiles(path, list).check() or not path.exists()
        self._lock = RLock()
        with self._translated():
            self._connection = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        # Closes it without a call of `close`, too: Python 3.13 warns about open connections.
        self._end = weakref.finalize(self, self._connection.close)
        try:
            with self._translated():
                if not self.was_closed:
                    check_database(self._connection, self._where)
                self._connection.execute("PRAGMA journal_mode = WAL")
                # Commits must survive a power cut: a ledger older than the store would leave nodes
                # without a document.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.executescript(_SCHEMA)
        except StoreError:
            self._end()
            raise

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Yield the connection; commit on success, else roll back."""
        with self._lock, self._translated():
            self._forget_checksum()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite rolls back by itself when the disk is full.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Yield the connection, outside of a transaction."""
        with self._lock, self._translated():
            self._forget_checksum()
            yield self._connection

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._lock, self._translated():
            return self._connection.execute(query, parameters).fetchall()

    def close(self) -> None:
        """Close the file; a second call is a no-op."""
        with self._lock:
            if self._end.alive:
                self._end()
                if self._closed_files is not None:
                    self._closed_files.record()

    def _forget_checksum(self) -> None:
        if self._closed_files is not None:
            self._closed_files.forget()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreUnavailableError(
                f"{self._where} cannot be read or written: {error}; check that the directory is "
                "writable and has room. What was stored before is safe"
            ) from error
        except sqlite3.ProgrammingError as error:
            raise StoreClosedError(f"{self._where} is closed: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreFormatError(f"{self._where} is no ledger of ours: {error}") from error


# Number of unfinished documents, and number of nodes.
_IN_MOTION_AND_NODES: Final = (
    "SELECT (SELECT count(*) FROM documents WHERE state IS NOT NULL), count(*) FROM nodes"
)

# The name of a document's source.
_SOURCE: Final = "CASE source WHEN '' THEN ref ELSE source END"
# All documents of a source count once.
_N_SOURCES: Final = f"SELECT count(*) FROM (SELECT DISTINCT tenant, kb, {_SOURCE} FROM documents)"  # noqa: S608


class LocalLedger(Ledger):
    """A ledger in a SQLite database beside the tables of the journal."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def config(self) -> KnowledgeBaseConfig | None:
        """Return the configuration; None if the knowledge base is not set up yet."""
        rows = self.database.rows("SELECT key, value FROM manifest")
        return config_from({key: json.loads(value) for key, value in rows})

    def update_config(
        self, change: Callable[[KnowledgeBaseConfig | None], KnowledgeBaseConfig | None]
    ) -> KnowledgeBaseConfig | None:
        """Replace the configuration by the result of `change`; return the new one."""
        with self.database.transaction() as connection:
            config = change(self.config())
            if config is not None:
                rows = [(key, json.dumps(value)) for key, value in asdict(config).items()]
                connection.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)
        return config

    def dimension(self) -> int | None:
        """Return the dimension of the vectors; None until the first is stored."""
        rows = self.database.rows("SELECT value FROM manifest WHERE key = 'dimension'")
        return json.loads(rows[0][0]) if rows else None

    def check_unwritten(self, where: str) -> None:
        """No-op: no other process has the file open."""

    def n_nodes_at_rest(self, *, exact: bool = False) -> int | None:  # noqa: ARG002 - always is
        """Return the expected number of nodes in the store; None during writes."""
        ((in_motion, nodes),) = self.database.rows(_IN_MOTION_AND_NODES)
        return None if in_motion else int(nodes)

    def digests(self, keys: Iterable[DocumentKey]) -> list[str | None]:
        """Return the digest of each document, in order; None for one that is not stored."""
        query = (
            "SELECT digest FROM documents WHERE tenant = ? AND kb = ? AND ref = ? AND state IS NULL"
        )
        found = [self.database.rows(query, *key) for key in keys]
        return [rows[0][0] if rows else None for rows in found]

    def allowed(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, tuple[str, ...]]:
        """Return the principals of the documents that are stored and visible to some only."""
        query = (
            "SELECT allowed FROM documents "
            "WHERE tenant = ? AND kb = ? AND ref = ? AND allowed <> '[]'"
        )
        found = {key: self.database.rows(query, *key) for key in keys}
        return {key: tuple(json.loads(rows[0][0])) for key, rows in found.items() if rows}

    def node_ids(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, list[str]]:
        """Return the ids of each document's nodes, in ascending order."""
        query = (
            "SELECT node_id FROM nodes JOIN documents ON document = id "
            "WHERE tenant = ? AND kb = ? AND ref = ? ORDER BY node_id"
        )
        return {key: [id_ for (id_,) in self.database.rows(query, *key)] for key in keys}

    def doubt_all(self) -> None:
        """Mark every document as changed, so that adding it again writes it again."""
        with self.database.transaction() as connection:
            connection.execute("UPDATE documents SET digest = ''")

    def entries(self) -> list[Entry]:
        """Return all documents that are not being written, in insertion order."""
        return self._entries("state IS NULL")

    def named(self, name: str, scope: Scope | None) -> list[Entry]:
        """Return the documents with this id or source in a scope; None means in no scope."""
        condition, values = _visible_to(scope, none="tenant = '' AND kb = ''")
        return self._entries(f"(ref = ? OR source = ?) AND {condition}", name, name, *values)

    def visible(self, scope: Scope | None) -> list[Entry]:
        """Return the documents visible to a scope in insertion order; without a scope, all."""
        condition, values = _visible_to(scope, none="1")
        return self._entries(condition, *values)

    def visible_ids(self, scope: Scope | None, limit: int | None = None) -> list[str]:
        """Return the first node ids visible to a scope, in ascending order; without one, of any."""
        condition, values = _visible_to(scope, none="1")
        query = (
            "SELECT node_id FROM nodes JOIN documents ON document = id "  # noqa: S608
            f"WHERE {condition} ORDER BY node_id LIMIT ?"
        )
        return [
            node_id
            for (node_id,) in self.database.rows(query, *values, -1 if limit is None else limit)
        ]

    def settled_node_ids(self) -> list[str]:
        """Return the ids of nodes that are not being added or deleted, which the store has."""
        return [
            id_ for (id_,) in self.database.rows("SELECT node_id FROM nodes WHERE role IS NULL")
        ]

    def synced(self, owner: str | None = None) -> list[SyncedSource]:
        """Return the sources that a sync has recorded; None for those of all."""
        query = "SELECT * FROM synced WHERE owner = coalesce(?, owner)"
        rows = self.database.rows(query, owner)
        return [SyncedSource(by, SourceKey(*rest[:3]), *rest[3:]) for by, *rest in rows]

    def record_synced(
        self, sources: Sequence[SyncedSource], *, forget: Sequence[SyncedSource] = ()
    ) -> None:
        """Record sources of a sync, replacing earlier records, and forget others."""
        condition = "owner = ? AND tenant = ? AND kb = ? AND source = ?"
        with self.database.transaction() as connection:
            connection.executemany(
                f"DELETE FROM synced WHERE {condition}",  # noqa: S608
                [(each.owner, *each.key) for each in forget],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO synced VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(owner, *key, *state) for owner, key, *state in sources],
            )

    def n_sources(self) -> int:
        """Return the number of sources."""
        ((count,),) = self.database.rows(_N_SOURCES)
        return int(count)

    def count(self) -> tuple[int, int]:
        """Return the number of documents and nodes."""
        query = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM nodes)"
        ((documents, nodes),) = self.database.rows(query)
        return int(str(documents)), int(nodes)

    def compact(self) -> None:
        """Rewrite the file and its log without deleted rows, which may contain text."""
        with self.database.connection() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _entries(self, condition: str, *values: str) -> list[Entry]:
        query = (
            f"SELECT tenant, kb, ref, digest, {_SOURCE}, count(node_id), allowed "  # noqa: S608
            "FROM documents LEFT JOIN nodes "
            f"ON nodes.document = documents.id WHERE {condition} "
            "GROUP BY documents.id ORDER BY documents.id"
        )
        rows = [tuple(map(str, row)) for row in self.database.rows(query, *values)]
        return [
            Entry(DocumentKey(*key), digest, source, int(n_nodes), tuple(json.loads(allowed)))
            for *key, digest, source, n_nodes, allowed in rows
        ]


def _visible_to(scope: Scope | None, *, none: str) -> tuple[str, Sequence[str]]:
    """Return a condition in SQL and the values for its question marks."""
    if scope is None:
        return none, ()
    conditions = []
    values: list[str] = []
    if scope.tenant_id is not None:
        conditions.append("tenant = ?")
        values.append(scope.tenant_id)
    if scope.kb_ids:
        conditions.append(f"kb IN ({', '.join('?' * len(scope.kb_ids))})")
        values.extend(scope.kb_ids)
    if scope.principals is not None:
        conditions.append(_NAMES_NONE_OR_ONE)
        values.append(json.dumps(scope.principals))
    return " AND ".join(conditions), values


_NAMES_NONE_OR_ONE: Final = (
    "(allowed = '[]' OR EXISTS (SELECT 1 FROM json_each(allowed) AS name "
    "WHERE name.value IN (SELECT value FROM json_each(?))))"
)
