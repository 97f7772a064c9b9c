"""Files of a store directory: free space, locks, recorded config, and errors."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from mmap import PAGESIZE, mmap
from pathlib import Path
from threading import RLock
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.engine.config import (
    ConfigRequest,
    EngineParams,
    StoreConfig,
    format_error,
)
from llama_retrieval_ext.stores.qdrant_common.points import QdrantConfig
from llama_retrieval_ext.urls import local_path

C = TypeVar("C", bound=StoreConfig)

# Bytes that must stay free when nodes are added. The engine writes to memory-mapped files, which
# kills the process on a full disk; its files grow by up to 32 MB at a time. On disks of 200 MB,
# 4 MB were enough; with 0 the process died.
MIN_FREE_BYTES: Final = 64 * 2**20
# Opening and deleting write little, and must work on a disk too full for adding. With 64 kB free
# on ext4 the engine opened and read a store, and died while it deleted; 1 MB were enough.
SOME_BYTES: Final = 4 * 2**20
# Kept in a file for them, and given back when the disk is full. Each write leaves less than 4 MB.
RESERVE: Final = "reserve"
_RESERVE_BYTES: Final = 2 * SOME_BYTES
# The unit of `st_blocks`.
_BLOCK_BYTES: Final = 512


def check_room(directory: Path, *, size: int = SOME_BYTES, min_free: int | None = None) -> None:
    """Raise `StoreUnavailableError` if `size` bytes do not fit, or leave less than `min_free`.

    With None, as for opening and deleting, a full disk gets the reserve back.
    """
    free = shutil.disk_usage(directory).free
    if free < size and min_free is None:
        (directory / RESERVE).unlink(missing_ok=True)
        free = shutil.disk_usage(directory).free
    needed = size + (min_free or 0)
    if free < needed:
        lower = ", or open it with store_params={'min_free_bytes': ...} below"
        raise StoreUnavailableError(
            f"{free / 2**20:.0f} MB are free under {directory}, at least {needed / 2**20:.0f} MB "
            f"are needed; make room{f'{lower} {min_free:,}' if min_free else ''}. What was stored "
            "before is safe; opened with read_only=True, it is read from a copy in the temporary "
            "folder"
        )


def keep_reserve(directory: Path) -> None:
    """Reserve room for opening and deleting, if there is some and it is not reserved already.

    In memory (tmpfs) reading a hole of a file allocates it, so that opening takes tens of megabytes
    there: no reserve is kept, and opening on a full disk is refused.
    """
    path = directory / RESERVE
    if path.exists() or shutil.disk_usage(directory).free < MIN_FREE_BYTES:
        return
    try:
        with path.open("w+b") as file:
            file.truncate(PAGESIZE)
            with mmap(file.fileno(), PAGESIZE) as page:
                is_hole = page[0] == 0 and os.fstat(file.fileno()).st_blocks == 0
            if is_hole:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
                return
    except (OSError, AttributeError):  # Windows and macOS do not have these functions
        pass
    path.unlink(missing_ok=True)


def prepare(directory: Path) -> None:
    """Create the directory; raise if it contains files but no store."""
    with clear_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in directory.iterdir()}
    if MANIFEST not in names and (strange := names - {LOCK, FREEZE, DRAFT, RESERVE}):
        raise StoreFormatError(
            f"{directory} is not a store: it holds {min(strange)!r} and no "
            f"{MANIFEST}; choose an empty directory"
        )


def is_new(path: str | Path) -> bool:
    """Return whether the path contains no store."""
    return not (local_path(path) / MANIFEST).is_file()


@contextmanager
def clear_errors(directory: Path) -> Generator[None]:
    """Convert errors of the engine and of the operating system to errors of the store."""
    try:
        yield
    except StoreUnavailableError:  # a subclass of OSError
        raise
    except OSError as error:
        raise StoreUnavailableError(_explained(error, directory)) from error
    except BaseException as error:
        if is_engine_error(error):
            raise translate_error(error, directory) from error
        raise


def _explained(error: OSError, directory: Path) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{directory} is not a directory, or is below a file; choose another path"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return (
            f"{directory} cannot be written to ({error.strerror}); the embedded engine needs that "
            "to write: change the permissions, or open the knowledge base with read_only=True"
        )
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"no room is left for {directory} ({error.strerror}); what was stored before is safe"
    return f"{directory} cannot be used: {error}"


def bytes_on_disk(path: Path) -> int:
    """Return the allocated bytes of a file or folder; engines create sparse files."""
    if path.is_file():
        return _allocated(path)
    # `walk` passes over folders that a compaction or an indexing deletes meanwhile.
    folders = os.walk(path)
    return sum(_allocated(Path(folder, name)) for folder, _, names in folders for name in names)


def _allocated(file: Path) -> int:
    """Return the allocated bytes of a file; 0 if it is gone."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return 0
    return stat.st_blocks * _BLOCK_BYTES if hasattr(stat, "st_blocks") else stat.st_size


if sys.platform != "win32":
    import fcntl

LOCK: Final = "lock"
# Whether writers wait while the directory is copied.
CAN_FREEZE: Final = sys.platform != "win32"


class DirectoryLock:
    """A lock that ends with its process. On Windows only the engine's lock exists."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / LOCK).open("ab")
        try:
            if sys.platform != "win32":
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise StoreUnavailableError(in_use(directory)) from error

    def release(self) -> None:
        """Unlock."""
        self._file.close()


def is_locked(directory: Path) -> bool:
    """Return whether a process has the directory open."""
    try:
        with (directory / LOCK).open("rb") as file:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


FREEZE: Final = "freeze"


class FreezingLock:
    """A reentrant lock that also prevents other processes from copying the directory."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / FREEZE).open("ab")
        self._lock = RLock()
        self._depth = 0
        self._process = os.getpid()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            if not self._depth:
                self._flock(exclusive=True)
        except BaseException:  # such as an interrupt while another process copies
            self._lock.release()
            raise
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        try:
            if not self._depth:
                self._flock(exclusive=False)
        finally:
            self._lock.release()

    def release(self) -> None:
        """Close the file; afterwards the lock only covers this process."""
        self._file.close()

    def _flock(self, *, exclusive: bool) -> None:
        # A forked child shares its parent's lock and would release it.
        is_usable = not self._file.closed and os.getpid() == self._process
        if is_usable and sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_UN)


@contextmanager
def frozen(directory: Path) -> Generator[None]:
    """Block writes to a store by all processes; raise if another directory is open in one."""
    path = directory / FREEZE
    is_store = path.exists()
    try:
        file = (path if is_store else directory / LOCK).open("rb")
    except FileNotFoundError:
        yield
        return
    with file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_SH | (0 if is_store else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise StoreUnavailableError(in_use(directory)) from error
        yield


# Smaller blocks keep smaller holes, larger ones are copied faster.
_ZEROS: Final = bytes(2**14)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder with the holes of its files; no process may write to it meanwhile.

    The files of the engine consist mainly of holes, which `shutil` would fill: 172 MB for a store
    of .4 MB. Hard links are not possible, because the engine writes to its files in place.
    """
    shutil.copytree(source, target, copy_function=_copy_file)


def _copy_file(source: str, target: str) -> None:
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        while block := old.read(len(_ZEROS)):
            if block == _ZEROS:
                new.seek(len(block), os.SEEK_CUR)
            else:
                new.write(block)
        new.truncate()
    shutil.copystat(source, target)


def sync_folder(folder: Path) -> None:
    """Write a folder and its files to the disk; no-op on Windows, which opens no folders."""
    for place, _, names in os.walk(folder):
        for path in (*(Path(place, name) for name in names), Path(place)):
            sync_path(path)


def sync_path(path: Path) -> None:
    """Write a file or folder to the disk; no-op on Windows."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # a new, empty part of the log, renamed by the engine's thread
        return
    try:
        os.fsync(descriptor)
    except OSError:
        # Some file systems write no folders alone. As in SQLite, this is no error; after the
        # replacement of a manifest it would leave a store that differs from it.
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def in_use(directory: Path) -> str:
    """Return the error message for a directory that another process has open."""
    return (
        f"another process has {directory} open; close it there, open the knowledge base with "
        "read_only=True to search only, or use a server (qdrant://, milvus://, "
        "elasticsearch://), which several processes can share"
    )


FORMAT: Final = 4
MANIFEST: Final = "store.json"
DRAFT: Final = "store.json.new"


VectorType: TypeAlias = Literal["float32", "float16", "turbo8", "int8", "turbo4"]
IndexKind: TypeAlias = Literal["auto", "hnsw", "exact"]


@dataclass(frozen=True, slots=True)
class EmbeddedConfig(QdrantConfig):
    """The config of a store directory; ``generation`` and ``indexed`` are of the current shard."""

    generation: int = 0
    indexed: int = 0
    vectors: VectorType = "float32"
    index: IndexKind = "auto"


@dataclass(frozen=True, slots=True)
class EmbeddedParams(EngineParams):
    """The ``store_params`` of the embedded engine; None for a recorded value."""

    engine = "the embedded engine"

    vectors: VectorType | None = None
    index: IndexKind | None = None
    min_free_bytes: int = MIN_FREE_BYTES


@dataclass(frozen=True, slots=True)
class EmbeddedRequest(ConfigRequest):
    """The config that a caller requests; ``index`` may differ from the recorded value."""

    vectors: VectorType | None = None
    index: IndexKind | None = None

    def __post_init__(self) -> None:
        ConfigRequest.__post_init__(self)  # super() does not work with slots
        for name, kinds in (("vectors", VectorType), ("index", IndexKind)):
            if (value := getattr(self, name)) not in (None, *get_args(kinds)):
                raise ConfigurationError(f"{name} must be one of {get_args(kinds)}, got {value!r}")

    def resolve(self, recorded: C, where: object) -> C:
        """Return the config of a store opened with this request."""
        config = ConfigRequest.resolve(replace(self, index=None), recorded, where)
        return config if self.index is None else replace(config, index=self.index)  # type: ignore[call-arg]  # an EmbeddedConfig


def read_config(directory: Path) -> EmbeddedConfig | None:
    """Return the recorded config of a directory; None without one."""
    path = directory / MANIFEST
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] == FORMAT:
            return EmbeddedConfig.from_dict(data)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreFormatError(
            f"{path} cannot be read ({type(error).__name__}: {error}); restore it from a backup, "
            "or index the documents again into an empty directory"
        ) from error
    raise format_error(data, where=directory, reads=FORMAT, instead="an empty directory")


def write_config(directory: Path, config: EmbeddedConfig) -> None:
    """Write the config atomically and durably, even if the process or machine dies."""
    data = {"format": FORMAT, **config.to_dict()}
    draft = directory / DRAFT
    with draft.open("w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / MANIFEST)
    sync_path(directory)


def is_engine_error(error: BaseException) -> bool:
    """Return whether the engine raised an error: a plain `Exception`, or a panic."""
    return type(error) is Exception or is_panic(error)


def is_panic(error: BaseException) -> bool:
    """Return whether the engine found a state that it considers impossible."""
    return type(error).__name__ == "PanicException"  # no `Exception`, and not importable


def damaged_error(where: object, damage: str) -> StoreFormatError:
    """Return the error for damaged files."""
    return StoreFormatError(
        f"{where} is damaged: {damage}; restore it from a backup, or delete it and add the "
        "documents again"
    )


def translate_error(error: BaseException, directory: Path) -> StoreError:
    """Return our error for an engine error."""
    message = str(error)
    if is_panic(error):
        return damaged_error(directory, f"the engine stopped ({message})")
    if "WouldBlock" in message:
        return StoreUnavailableError(in_use(directory))
    if "not initialized" in message:
        return StoreClosedError(f"the store {directory} was closed; open it again")
    if "No space left" in message or "Disk quota" in message:
        return StoreUnavailableError(
            f"no room is left for {directory}; what was stored before is safe"
        )
    return StoreUnavailableError(f"the engine failed in {directory}: {message}")
