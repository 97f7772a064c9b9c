"""A server as a process of its own on this machine, which does not outlive the test run."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_STOP_S = 20


@dataclass(frozen=True)
class Server:
    """A running server that was started here.

    Attributes:
        url: Without a collection.
        folder: What it writes.
    """

    url: str
    folder: Path
    process: "subprocess.Popen[bytes]"

    def stop(self, *, keep: bool = False) -> None:
        """End it and, unless `keep`, remove what it wrote; a second call does nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(_STOP_S)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """End it at once, with what it started, as a crash does; what it wrote stays."""
        for pid in [*_started_by(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(_STOP_S)

    def log(self) -> str:
        """The end of what it printed."""
        return (self.folder / "output.log").read_text(errors="replace")[-2000:]


def spawn(
    command: list[str],
    folder: Path,
    *,
    environment: dict[str, str] | None = None,
    privileges: Sequence[str] = (),
) -> "subprocess.Popen[bytes]":
    """Start a program that prints into the folder's `output.log`, and ends with this thread.

    Args:
        command: The program and its arguments.
        folder: Of the server.
        environment: None for that of this process.
        privileges: Options of ``setpriv``, where the system has it.
    """
    before = setpriv("--pdeathsig", "TERM", *privileges)
    with (folder / "output.log").open("wb") as log:
        return subprocess.Popen(
            [*before, *command], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def wait_until(ready: Callable[[], T | None], server: Server, name: str, *, within_s: float) -> T:
    """What a server has when it is ready; it is stopped if it does not get there.

    Args:
        ready: None, or something false, as long as the server is not ready.
        server: As it was started.
        name: Of the program, for the error.
        within_s: How long that may take.

    Raises:
        ConnectionError: If it ends, or is not ready in time.
    """
    deadline = time.monotonic() + within_s
    with contextlib.ExitStack() as unless_ready:
        unless_ready.callback(server.stop)
        while time.monotonic() < deadline and server.process.poll() is None:
            if found := ready():
                unless_ready.pop_all()
                return found
            time.sleep(0.1)
        raise ConnectionError(f"{name} did not start within {within_s} s:\n{server.log()}")


def _started_by(pid: int) -> list[int]:
    """The processes under one, Linux's own list of them."""
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listing.read_text(encoding="ascii").split()):
            found += [child, *_started_by(child)]
    return found


def setpriv(*options: str) -> list[str]:
    """What goes before a command; nothing where the system has no such program."""
    return ["setpriv", *options] if shutil.which("setpriv") else []


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
