"""The files of Milvus Lite that this process has open, so that the last one out lets go of them.

pymilvus runs one server a file in this process and stops it at the interpreter's exit only: until
then no other process can open the file.
"""

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Final

from llama_retrieval_ext.errors import MissingDependencyError


class LiteFiles:
    """Counts who uses a file."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._users: Counter[Path] = Counter()

    def acquire(self, path: Path) -> None:
        """Use a file; who does releases it, once.

        Raises:
            MissingDependencyError: Milvus Lite is not installed; servers need none.
        """
        if find_spec("milvus_lite") is None:
            raise MissingDependencyError("Milvus Lite", "milvus")
        with self._lock:
            self._users[path] += 1

    def release(self, path: Path) -> None:
        """Let go of a file; when nobody uses it any more, its server stops."""
        with self._lock:
            self._users[path] -= 1
            if not self._users[path]:
                del self._users[path]
                _stop_server(path)


def _stop_server(path: Path) -> None:
    from milvus_lite.server_manager import (  # noqa: PLC0415 - half a second, and for files only
        server_manager_instance,
    )

    server_manager_instance.release_server(str(path))


# Module state, because a process has one server a file, whoever opens it.
lite_files: Final = LiteFiles()
