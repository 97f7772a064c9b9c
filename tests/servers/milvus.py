"""A Milvus that speaks gRPC: by URL from the environment, or Milvus Lite as a server, started here.

What is started here listens on this machine alone. ``LLAMA_RETRIEVAL_MILVUS_URL`` names a server of
the user's own, as ``http://host:19530``, or ``milvus://host:19530?token_env=NAME`` for one that
asks for credentials. What the tests make there, they remove.
"""

import atexit
import functools
import importlib.util
import socket
import sys
from pathlib import Path

import pytest

from tests.servers.artifact import own_folder
from tests.servers.given import given_server, reachable
from tests.servers.process import Server, free_port, spawn, wait_until

URL_VARIABLE = "LLAMA_RETRIEVAL_MILVUS_URL"

_START_S = 60
# As `milvus-lite server` does; the command itself need not be on the path.
_PROGRAM = "import sys; from milvus_lite.cmdline import main; sys.exit(main())"


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
    process = spawn([*command, "--host", "127.0.0.1", "--port", str(port)], folder)
    server = Server(f"milvus://127.0.0.1:{port}", folder, process)
    wait_until(lambda: _listens(port), server, "Milvus Lite", within_s=_START_S)
    return server


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
