"""`OpenDirectories`: the store directories that this process has open.

All store objects of a directory share one `StoreDirectory`, because the engine refuses to open a
directory twice, and a notebook cell that opens a store may run repeatedly.
"""

import os
import tempfile
from pathlib import Path
from threading import RLock
from typing import Final

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.engine.config import ConfigRequest
from llama_retrieval_ext.urls import local_path

MEMORY: Final = ":memory:"
_PREFIX: Final = "llama-retrieval-ext-"


class OpenDirectories:
    """Open directories by their real path.

    The garbage collector can release a store at any line of any thread. Therefore the lock is
    reentrant, and its holder never waits for another lock.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop all entries, because a forked child cannot use its parent's directories."""
        self._lock = RLock()
        self._open: dict[Path, StoreDirectory] = {}

    def acquire(self, path: str | Path, request: ConfigRequest) -> StoreDirectory:
        """Return the open directory of a path; the caller releases it exactly once."""
        is_temporary = str(path) == MEMORY
        real = Path(tempfile.mkdtemp(prefix=_PREFIX)) if is_temporary else local_path(path)
        while (directory := self._join(real, temporary=is_temporary)).is_closing:
            directory.close()  # waits for users
            self._remove(directory)
        try:
            directory.open(request)
        except BaseException:
            self.release(directory)
            raise
        return directory

    def release(self, directory: StoreDirectory) -> None:
        """Release a directory; close it if there are no other users."""
        with self._lock:
            directory.users -= 1
            if directory.users or directory.is_closing:
                return
            directory.is_closing = True
        directory.close()
        self._remove(directory)

    def remove(self, directory: StoreDirectory) -> None:
        """Close and delete a directory; raise if it has other users. The caller releases it."""
        with self._lock:
            if directory.users > 1:
                raise StoreUnavailableError(
                    f"{directory.path} is open elsewhere in this process; close it first"
                )
            directory.is_closing = True
        try:
            directory.remove()
        finally:
            directory.close()
            self._remove(directory)

    def _join(self, real: Path, *, temporary: bool) -> StoreDirectory:
        with self._lock:
            if real not in self._open:
                self._open[real] = StoreDirectory(real, temporary=temporary)
            directory = self._open[real]
            directory.users += 1
            return directory

    def _remove(self, directory: StoreDirectory) -> None:
        with self._lock:
            if self._open.get(directory.path) is directory:
                del self._open[directory.path]


# Module state, because a process can have a directory open only once.
open_directories: Final = OpenDirectories()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=open_directories.forget)
