"""A Milvus that speaks gRPC: by URL from the environment, or Milvus Lite as a server, started here.

What is started here listens on this machine alone. ``LLAMA_RETRIEVAL_MILVUS_URL`` names a server of
the user's own, as ``http://host:19530``, or ``milvus://host:19530?token_env=NAME`` for one that
asks for credentials. What the tests make there, they remove.
"""

import atexit
import functools
import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.artifact import own_folder
from tests.servers.given import given_server, reachable

URL_VARIABLE = "LLAMA_RETRIEVAL_MILVUS_URL"

_START_S = 60
_STOP_S = 10
# As `milvus-lite server` does; the command itself need not be on the path.
_PROGRAM = "import sys; from milvus_lite.cmdline import main; sys.exit(main())"


@dataclass(frozen=True)
class Server:
    """A running server that was started here."""

    port: int
    folder: Path
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        """Without a collection, as our URLs have it."""
        return f"milvus://127.0.0.1:{self.port}"

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


@pytest.fixture(scope="session")
def milvus_url() -> str:
    """The base URL of a server, the same for the whole session; see `collection_url`."""
    given = given_server(URL_VARIABLE, "milvus")
    return reachable(URL_VARIABLE, given) if given else _started().url


@functools.cache  # whoever asks, and from wherever the fixture is imported: one server a session
def _started() -> Server:
    require_lite()
    server = start()
    atexit.register(server.stop)
    return server


def require_lite() -> None:
    """Skip where Milvus Lite is not installed."""
    if importlib.util.find_spec("milvus_lite") is None:
        pytest.skip(f"needs the package milvus-lite, or a URL in {URL_VARIABLE}")


def start(*, port: int | None = None, folder: Path | None = None) -> Server:
    """Start a server.

    Args:
        port: Where it listens; None for a free one.
        folder: With what it wrote before; None for a new one.
    """
    port = port or free_port()
    folder = folder or own_folder("milvus-lite")
    command = [sys.executable, "-c", _PROGRAM, "server", "--data-dir", str(folder / "data")]
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(
            [*_dies_with_parent(), *command, "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    server = Server(port, folder, process)
    try:
        _wait(server)
    except BaseException:
        server.stop()
        raise
    return server


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _dies_with_parent() -> list[str]:
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def _wait(server: Server) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    told = (server.folder / "output.log").read_text(errors="replace")[-2000:]
    raise ConnectionError(f"Milvus Lite did not start within {_START_S} s:\n{told}")
