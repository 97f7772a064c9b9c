"""The store directories this process has open, so that opening one twice gives the same one twice.

A notebook cell that opens a store is run again and again; the engine would refuse the second time.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.points.manifest import Settings

MEMORY: Final = ":memory:"


@dataclass(slots=True, eq=False)
class Opened:
    """An open directory and how many use it; when nobody does, it is closed for good."""

    directory: StoreDirectory
    users: int = 0
    closing: bool = False


class Registry:
    """Open directories by their real path.

    The garbage collector releases stores at any line of any thread. Therefore the lock is
    reentrant, and nobody waits for a directory's own lock while holding it.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know of none: a forked child can use nothing of what its parent has open."""
        self._lock = RLock()
        self._open: dict[Path, Opened] = {}

    def acquire(self, path: str | Path, settings: Settings) -> Opened:
        """The directory of a path; who gets it releases it, once.

        Args:
            path: Where; ``":memory:"`` for a temporary directory, removed when released.
            settings: What the opener asks for.

        Raises:
            StoreFormatError: The directory holds something else, or a newer store.
            StoreUnavailableError: It cannot be used, or another process has it open.
            ConfigurationError: The store has another tokenizer or distance than asked for.
            DimensionMismatchError: The store has another dimension than asked for.
        """
        if str(path) == MEMORY:
            return Opened(_temporary(settings), users=1)
        real = Path(path).expanduser().resolve()
        while (opened := self._join(real, settings)).closing:
            opened.directory.close()  # waits for whoever is at it
            self._remove(opened)
        try:
            opened.directory.adopt(settings)
        except BaseException:
            self.release(opened)
            raise
        return opened

    def release(self, opened: Opened) -> None:
        """Close a directory, unless somebody else still uses it."""
        with self._lock:
            opened.users -= 1
            if opened.users or opened.closing:
                return
            opened.closing = True
        opened.directory.close()
        self._remove(opened)

    def remove(self, opened: Opened) -> None:
        """Close and delete a directory that nobody else uses; who got it releases it all the same.

        Raises:
            StoreUnavailableError: Somebody else uses it, or it cannot be deleted; it is closed
                then, too.
        """
        with self._lock:
            if opened.users > 1:
                raise StoreUnavailableError(
                    f"{opened.directory.path} is open elsewhere in this process; close it first"
                )
            opened.closing = True
        try:
            opened.directory.remove()
        finally:
            opened.directory.close()
            self._remove(opened)

    def _join(self, real: Path, settings: Settings) -> Opened:
        with self._lock:
            opened = self._open.get(real)
            if opened is None:
                opened = self._open[real] = Opened(StoreDirectory(real, settings))
            opened.users += 1
            return opened

    def _remove(self, opened: Opened) -> None:
        with self._lock:
            if self._open.get(opened.directory.path) is opened:
                del self._open[opened.directory.path]


def _temporary(settings: Settings) -> StoreDirectory:
    made = Path(tempfile.mkdtemp(prefix="llama-retrieval-ext-"))
    try:
        return StoreDirectory(made, settings, temporary=True)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


# Module state, because a process can have a directory open once, whoever opens it.
registry: Final = Registry()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=registry.forget)
