"""What the file system under a store allows: checked before the engine would fall over it."""

import errno
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.stores.embedded.lock import LOCK
from llama_retrieval_ext.stores.embedded.manifest import DRAFT, MANIFEST

# The engine writes to memory-mapped files: where the disk is full that kills the process. So much
# must be left when nodes are added; the engine's own files grow by up to 32 MB at a time. Measured
# on disks of 200 MB, 4 MB were enough, and without any the process died.
MIN_FREE_BYTES: Final = 64 * 2**20
# What opening and deleting write is small, and both must be possible on a disk that is too full to
# add to.
SOME_BYTES: Final = 4 * 2**20
# What `st_blocks` counts in.
_BLOCK_BYTES: Final = 512


def check_room(directory: Path, *, needed: int) -> None:
    """Nothing, if there is room to write.

    Args:
        directory: Where.
        needed: Bytes that may be written.

    Raises:
        StoreUnavailableError: There is not; nothing was written.
    """
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise StoreUnavailableError(
            f"{free / 2**20:.0f} MB are free under {directory}, at least "
            f"{needed / 2**20:.0f} MB are needed; make room, or set another min_free_bytes. What "
            "was stored before is safe"
        )


def prepare(directory: Path) -> None:
    """Make the directory, unless it is there and is a store or empty.

    Raises:
        StoreFormatError: It holds something else.
        StoreUnavailableError: It is no directory, or cannot be written to.
    """
    with clear_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in directory.iterdir()}
    if MANIFEST not in names and names - {LOCK, DRAFT}:
        raise StoreFormatError(
            f"{directory} is not a store: it holds {min(names - {LOCK, DRAFT})!r} and no "
            f"{MANIFEST}; choose an empty directory"
        )


def is_new(path: str | Path) -> bool:
    """Whether opening a store there would make one."""
    return not (Path(path).expanduser() / MANIFEST).is_file()


@contextmanager
def clear_errors(directory: Path) -> Generator[None]:
    """Say what the operating system's errors mean for a store.

    Raises:
        StoreUnavailableError: There was one.
    """
    try:
        yield
    except StoreUnavailableError:  # an OSError itself, and clear enough
        raise
    except OSError as error:
        raise StoreUnavailableError(_meaning(error, directory)) from error


def _meaning(error: OSError, directory: Path) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{directory} is not a directory, or is below a file; choose another path"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return (
            f"{directory} cannot be written to ({error.strerror}); the embedded engine needs that "
            "even to read: change the permissions, or copy the directory"
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"no room is left for {directory} ({error.strerror}); what was stored before is safe"
    return f"{directory} cannot be used: {error}"


def bytes_on_disk(path: Path) -> int:
    """Return what a file or folder takes on the disk: engines make files long before they are full.

    Args:
        path: The file or folder.
    """
    files = [path] if path.is_file() else path.rglob("*")
    found = [file.stat() for file in files if file.is_file()]
    return sum(
        each.st_blocks * _BLOCK_BYTES if hasattr(each, "st_blocks") else each.st_size
        for each in found
    )
