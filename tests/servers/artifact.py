"""Files from the Maven registry: fetched once, checked, kept in the system's temporary folder."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_TRIES = 3
_TRY_S = 300
_IN_USE = ".in-use"


@dataclass(frozen=True)
class Artifact:
    """A file in the Maven registry, as ``group:artifact:version:packaging``, and its digest."""

    coordinates: str
    sha256: str

    @property
    def file_name(self) -> str:
        _, name, version, packaging = self.coordinates.split(":")
        return f"{name}-{version}.{packaging}"


_SYSTEM = Path(tempfile.gettempdir())  # before the tests set theirs
# Servers wait for the disk at each write.
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 6 * 2**30


def cache(parent: Path = _SYSTEM) -> Path:
    """Where what was fetched stays: a folder of this user's that others may enter, not change."""
    folder = parent / f"llama-retrieval-servers-{os.getuid()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else; remove it, or set TMPDIR")
    folder.chmod(0o755)
    return folder


def missing_tools() -> str:
    """Why nothing can be fetched and started; empty where it can."""
    missing = [tool for tool in ("java", "mvn", "bash") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def fetched(artifact: Artifact) -> Path:
    """The file, fetched if need be; workers that run side by side wait for each other."""
    path = cache() / artifact.file_name
    with locked(path):
        for _ in range(_TRIES):
            if path.exists() and _sha256(path) == artifact.sha256:
                return path
            path.unlink(missing_ok=True)
            _fetch(artifact, path.parent)
        if path.exists() and _sha256(path) == artifact.sha256:
            return path
    raise ConnectionError(f"{artifact.coordinates} could not be fetched whole in {_TRIES} tries")


def own_folder(prefix: str) -> Path:
    """A new folder, in memory if it has room, for a server of this process.

    Those of killed processes are removed.
    """
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    parent = cache(_MEMORY if in_memory else _SYSTEM)
    for left in parent.glob(f"{prefix}-*{_IN_USE}"):
        with left.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(left.with_name(left.name.removesuffix(_IN_USE)), ignore_errors=True)
            left.unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))
    mark = os.open(folder.with_name(folder.name + _IN_USE), os.O_CREAT | os.O_WRONLY)
    fcntl.flock(mark, fcntl.LOCK_EX)  # open, and so locked, until the process ends
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(artifact: Artifact, folder: Path) -> None:
    options = [f"-Dartifact={artifact.coordinates}", f"-DoutputDirectory={folder}"]
    command = ["mvn", "-B", "-ntp", "-q", _PLUGIN, *options]
    subprocess.run(command, check=False, timeout=_TRY_S, stdin=subprocess.DEVNULL)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
