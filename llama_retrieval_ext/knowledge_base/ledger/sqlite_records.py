"""`SqliteRecords`: the records beside an embedded store, in a SQLite file or in memory.

Only one process opens the file. Its objects share a write lock; each rereads the file.
"""

import json
import secrets
import sqlite3
import weakref
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Final

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.errors import (
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base.ledger.config import FORMAT, check_format
from llama_retrieval_ext.stores.embedded.closed_files import (
    SUFFIX,
    ClosedFiles,
    check_database,
    copy_database,
)
from llama_retrieval_ext.stores.engine.records import Record

# Other handles lock the file for milliseconds; a minute allows for a machine that swaps.
_WAIT_S: Final = 60.0
# The fields of a ledger's records, each a column.
_FIELDS: Final = ("kind", "owner", "ref", "tenant", "kb", "source", "writer", "since")
_INDEXED: Final = ("owner", "ref", "source", "writer", "since")
_COLUMNS: Final = ", ".join(("id", "text", "version", *_FIELDS))
_SCHEMA: Final = f"""
CREATE TABLE records (
    id TEXT PRIMARY KEY, text TEXT NOT NULL, version TEXT NOT NULL, {", ".join(_FIELDS)}
);
PRAGMA user_version = {FORMAT};
""" + "".join(
    f"CREATE INDEX of_{name} ON records ({name}) WHERE {name} IS NOT NULL;\n" for name in _INDEXED
)
_OPERATORS: Final = {
    FilterOperator.EQ: "= ?",
    FilterOperator.IN: "IN (SELECT value FROM json_each(?))",
    FilterOperator.LTE: "<= ?",
    FilterOperator.GT: "> ?",
}
# An upsert changes only the indexes of fields that differ.
_WRITE: Final = (
    f"INSERT INTO records ({_COLUMNS}) VALUES ({', '.join('?' * (3 + len(_FIELDS)))}) "  # noqa: S608 - of our fields
    "ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in ("text", "version", *_FIELDS))
)


class SqliteRecords:
    """Records in a thread-safe SQLite database; in memory without a path.

    Attributes:
        was_closed: Whether the file was closed cleanly before it was opened, or is new.
        is_checked: Whether it is known to agree with the store, so that its end may be recorded.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._where = "the ledger in memory" if path is None else str(path)
        self._closed_files = None if path is None else ClosedFiles(path, lambda: [path])
        self.was_closed = path is None or ClosedFiles(path, list).check() or not path.exists()
        self.is_checked = self.was_closed
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
                self._set_up()
        except StoreError:
            self._end()
            raise

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the existing records with these ids."""
        if not ids:
            return {}
        records = self._select("id IN (SELECT value FROM json_each(?))", [json.dumps(list(ids))])
        return {record.id: record for record in records}

    def find(
        self, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records whose fields satisfy the filters, by id; all for None."""
        condition, values = _condition(filters)
        if limit is not None:
            condition, values = f"{condition} ORDER BY id LIMIT ?", [*values, limit]
        return self._select(condition, values)

    def count(self, filters: MetadataFilters) -> int:
        """Return the number of records that satisfy the filters."""
        condition, values = _condition(filters)
        query = f"SELECT count(*) FROM records WHERE {condition}"  # noqa: S608 - of our fields
        with self._lock, self._translated():
            return int(self._connection.execute(query, values).fetchone()[0])

    def put(self, records: Sequence[Record]) -> None:
        """Write records, regardless of stored versions."""
        if records:
            with self.transaction() as connection:
                connection.executemany(
                    _WRITE, [_row(record, secrets.token_hex(8)) for record in records]
                )

    def replace(
        self, records: Sequence[Record], *, remove: Sequence[Record] = (), held: bool = False
    ) -> dict[str, str]:
        """Write and remove records with unchanged versions; see `Records.replace`."""
        del held
        replaced: dict[str, str] = {}
        rows: list[tuple[object, ...]] = []
        with self.transaction() as connection:
            stored = self.get([record.id for record in (*records, *remove)])
            for record in records:
                if record.version == (stored[record.id].version if record.id in stored else ""):
                    replaced[record.id] = version = secrets.token_hex(8)
                    rows.append(_row(record, version))
            connection.executemany(_WRITE, rows)
            for record in remove:
                if record.id in stored and record.version == stored[record.id].version:
                    replaced[record.id] = ""
                    connection.execute("DELETE FROM records WHERE id = ?", (record.id,))
        return replaced

    def delete(self, ids: Iterable[str]) -> None:
        """Delete records, regardless of their version."""
        rows = [(id_,) for id_ in ids]
        if rows:
            with self.transaction() as connection:
                connection.executemany("DELETE FROM records WHERE id = ?", rows)

    def remove(self) -> None:
        """Close the file and delete it."""
        self.close()
        for suffix in ("", "-wal", "-shm", SUFFIX):
            if self._path is not None:
                self._path.with_name(f"{self._path.name}{suffix}").unlink(missing_ok=True)

    def compact(self) -> None:
        """Rewrite the file and its log without deleted records, which may contain text."""
        with self.connection() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Yield the connection, outside of a transaction."""
        with self._lock, self._translated():
            if self._closed_files is not None:
                self._closed_files.forget()
            yield self._connection

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Yield the connection; commit on success, else roll back."""
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # SQLite rolls back by itself when the disk is full.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def copy_from(self, source: Path) -> None:
        """Replace all records by those of a file, which may be open elsewhere."""
        with self.connection() as connection:
            copy_database(source, connection)
            self._check_format()

    def close(self) -> None:
        """Close the file; a second call is a no-op."""
        with self._lock:
            if self._end.alive:
                self._end()
                if self._closed_files is not None and self.is_checked:
                    self._closed_files.record()

    def _set_up(self) -> None:
        if not self.was_closed:
            check_database(self._connection, self._where)
        is_new = self._check_format()
        self._connection.execute("PRAGMA journal_mode = WAL")
        # Commits must survive a power cut: a ledger older than the store would leave nodes without
        # a document.
        self._connection.execute("PRAGMA synchronous = FULL")
        if is_new:
            self._connection.executescript(_SCHEMA)

    def _check_format(self) -> bool:
        """Return whether the file is empty; raise if another version wrote it."""
        query = "SELECT count(*), user_version FROM sqlite_schema, pragma_user_version"
        ((n_tables, format_),) = self._connection.execute(query)
        if n_tables:
            check_format(format_, self._where)
        return not n_tables

    def _select(self, condition: str, values: Sequence[object]) -> list[Record]:
        query = f"SELECT {_COLUMNS} FROM records WHERE {condition}"  # noqa: S608 - of our fields
        with self._lock, self._translated():
            rows = self._connection.execute(query, values).fetchall()
        return [
            Record(id_, text, dict(zip(_FIELDS, fields, strict=True)), version)
            for id_, text, version, *fields in rows
        ]

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


def _condition(filters: MetadataFilters | None) -> tuple[str, list[object]]:
    """Return a condition in SQL and the values for its question marks."""
    parts, values = [], list[object]()
    for filter_ in [] if filters is None else filters.filters:
        if isinstance(filter_, MetadataFilter):
            parts.append(f"{_FIELDS[_FIELDS.index(filter_.key)]} {_OPERATORS[filter_.operator]}")
            value = filter_.value
            values.append(json.dumps(value) if isinstance(value, list) else value)
        else:
            part, more = _condition(filter_)
            parts.append(f"({part})")
            values += more
    either = filters is not None and filters.condition == FilterCondition.OR
    return (" OR " if either else " AND ").join(parts) or "1", values


def _row(record: Record, version: str) -> tuple[object, ...]:
    fields = record.fields or {}
    return (record.id, record.text, version, *map(fields.get, _FIELDS))
