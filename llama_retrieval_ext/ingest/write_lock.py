"""One writer at a time, however many knowledge base objects a process has on a place."""

from collections.abc import Hashable
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


def lock_of(place: Hashable) -> WriteLock:
    """The lock of a place, the same for everyone in this process.

    Args:
        place: What tells it from all others, such as the real path of a directory.
    """
    with _making:
        return _locks.setdefault(place, WriteLock())


# Module state, because the place is shared by whoever opens it.
_making = Lock()
_locks: WeakValueDictionary[Hashable, WriteLock] = WeakValueDictionary()
