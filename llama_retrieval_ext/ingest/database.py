"""The SQLite file under a ledger: one connection, used by one thread at a time."""

import sqlite3
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from llama_retrieval_ext.errors import (
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)

# Another handle on the same file holds it for milliseconds; a minute is for a machine that swaps.
_WAIT_S = 60.0


class Database:
    """A SQLite database that may be used from any thread.

    Args:
        path: The file, made if need be; None for one in memory.
        schema: Statements that make its tables where they are missing.

    Raises:
        StoreUnavailableError: The file cannot be opened or written.
        StoreFormatError: The file is no database.
    """

    def __init__(self, path: Path | None, schema: str) -> None:
        self._where = "the ledger in memory" if path is None else str(path)
        self._lock = RLock()
        with self._translated():
            self._connection = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        # Also when nobody does, and the program ends: Python 3.13 warns of what is left open.
        self._end = weakref.finalize(self, self._connection.close)
        try:
            with self._translated():
                self._connection.execute("PRAGMA journal_mode = WAL")
                # What is committed survives a power cut: the ledger must never know less than the
                # store, or nodes would be left over that nobody knows of.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.executescript(schema)
        except StoreError:
            self._end()
            raise

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of it is kept, or nothing.

        Raises:
            StoreUnavailableError: There is no room, or no right to write.
            StoreClosedError: The database is closed.
        """
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk has rolled it back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        """What a query finds.

        Raises:
            StoreClosedError: The database is closed.
        """
        with self._lock, self._translated():
            return self._connection.execute(query, parameters).fetchall()

    def close(self) -> None:
        """Close the file; twice does no harm."""
        with self._lock:
            self._end()

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
