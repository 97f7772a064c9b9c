"""Files while they are closed: checksums, which show damage before it is read, and copies."""

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from llama_retrieval_ext.stores.embedded.files import damaged_error, frozen, sync_path

SUFFIX: Final = ".closed"
_BLOCK: Final = bytes(2**16)
# The engine repeats and deletes these journals of its flushes when it loads a shard.
_JOURNAL: Final = "tracker_journal.dat"


class ClosedFiles:
    """The sizes and checksums of files, in a file that exists while they are closed and complete.

    It is removed before they may change, so that it is missing after an unclean end.

    Args:
        name: The path of what the files belong to; the checksums are in ``NAME.closed``.
        files: Returns the files, which are in the same directory or below.
    """

    def __init__(self, name: Path, files: Callable[[], Iterable[Path]]) -> None:
        self._name = name
        self._path = name.with_name(name.name + SUFFIX)
        self._files = files

    def check(self) -> bool:
        """Return whether the files were closed cleanly; raise if they have changed since.

        Cost: files are read at some GB/s, holes at no cost.

        Raises:
            StoreFormatError: A file has changed, or is missing.
        """
        try:
            text, _, checksum = self._path.read_text("utf-8").rpartition("\n")
            if int(checksum) != crc32(text.encode()):
                return False
            recorded: dict[str, list[int]] = json.loads(text)
        except (FileNotFoundError, ValueError):
            return False
        for name, state in recorded.items():
            path = self._path.parent / name
            is_left_out = path.name == _JOURNAL and not path.exists()
            if not is_left_out and _state(path) != state:
                change = "has changed" if path.exists() else "is missing"
                raise damaged_error(self._name.parent, f"{name} {change} since it was closed")
        return True

    def record(self) -> None:
        """Record the files, which are closed; no-op if they have not changed.

        Nor is a database recorded that another object has open: that one does when it is closed. It
        need not reach the disk: without it, they are compared when they are opened.
        """
        if self._path.exists() or self._name.with_name(f"{self._name.name}-wal").exists():
            return
        folder = self._path.parent
        files = {path.relative_to(folder).as_posix(): _state(path) for path in self._files()}
        text = json.dumps(files)
        draft = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):  # such as a full disk
            draft.write_text(f"{text}\n{crc32(text.encode())}", "utf-8")
            draft.replace(self._path)

    def forget(self) -> None:
        """Remove the record, durably, since the files are about to change."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return
        sync_path(self._path.parent)


def _state(path: Path) -> list[int] | None:
    """Return the size and the checksum of what is not zero in a file; None if it is missing."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return None
    checksum = position = 0
    with file:
        size = os.fstat(file.fileno()).st_size
        while position < size:
            if hasattr(os, "SEEK_DATA"):  # pass over holes
                try:
                    position = file.seek(position, os.SEEK_DATA) // len(_BLOCK) * len(_BLOCK)
                except OSError as error:
                    if error.errno == errno.ENXIO:  # the rest is a hole
                        break
            file.seek(position)
            block = file.read(len(_BLOCK))
            if block != _BLOCK[: len(block)]:
                checksum = crc32(block, crc32(position.to_bytes(8), checksum))
            position += len(block) or size
    return [size, checksum]


def check_database(connection: sqlite3.Connection, where: str) -> None:
    """Raise if the pages of a database contradict each other, as after an unclean end.

    Raises:
        StoreFormatError: They do.
    """
    (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise damaged_error(where, str(result))


def copy_database(source: Path, target: sqlite3.Connection) -> None:
    """Copy a database that may be open elsewhere or on a read-only file system.

    Raises:
        StoreFormatError: It has changed since it was closed.
    """
    ClosedFiles(source, list).check()
    # Without a WAL file no process has the database open or can open it while the directory is
    # frozen, so SQLite does not need its shared files.
    is_open = source.with_name(f"{source.name}-wal").exists()
    flags = "mode=ro" if is_open else "mode=ro&immutable=1"
    with (
        nullcontext() if is_open else frozen(source.parent),
        closing(sqlite3.connect(f"{source.as_uri()}?{flags}", uri=True)) as connection,
    ):
        connection.backup(target)
