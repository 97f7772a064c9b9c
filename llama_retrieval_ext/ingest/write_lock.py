"""One writer at a time, however many knowledge base objects a process has on a directory."""

from pathlib import Path
from threading import Lock, RLock
from weakref import WeakValueDictionary


class WriteLock:
    """Held while something is written; the thread that holds it may take it again."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def lock_of(directory: Path) -> WriteLock:
    """The lock of a directory, the same for everyone in this process.

    Args:
        directory: Its real path.
    """
    with _making:
        return _locks.setdefault(directory, WriteLock())


# Module state, because the directory is shared by whoever opens it.
_making = Lock()
_locks: WeakValueDictionary[Path, WriteLock] = WeakValueDictionary()
