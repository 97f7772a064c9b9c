"""Keeps other processes out of a store directory, from before its engine exists until it closes."""

import sys
from pathlib import Path
from typing import Final

from llama_retrieval_ext.errors import StoreUnavailableError

if sys.platform != "win32":
    import fcntl

LOCK: Final = "lock"


class DirectoryLock:
    """A lock that dies with its process. On Windows only the engine's own lock remains.

    Args:
        directory: What is locked; the lock is a file in it.

    Raises:
        StoreUnavailableError: Another process holds it.
    """

    def __init__(self, directory: Path) -> None:
        self._file = (directory / LOCK).open("ab")
        try:
            if sys.platform != "win32":
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise StoreUnavailableError(in_use(directory)) from error

    def release(self) -> None:
        """Let others in."""
        self._file.close()


def in_use(directory: Path) -> str:
    """What to tell who comes second."""
    return (
        f"another process has {directory} open; close it there, or use a server (qdrant://, "
        "milvus://, elasticsearch://), which several processes can share"
    )
