"""A real Qdrant: by URL from the environment, or started here from a binary beside the repository.

No package registry has a server. `BINARY`, in ``../shared/servers``, is one that was built from
source; where it is missing, the tests that need it are skipped.

``LLAMA_RETRIEVAL_QDRANT_URL`` names a server of the user's own, as ``http://host:6333``, or
``qdrant://host:6333?api_key_env=NAME&prefer_grpc=true&grpc_port=6334``, without which gRPC is not
tested. What the tests make there, they remove.
"""

import lzma
import os
import shutil
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.servers.artifact import cache, locked, own_folder
from tests.servers.given import given_server, reachable
from tests.servers.once import url_of
from tests.servers.process import Server, free_port, spawn, wait_until

URL_VARIABLE = "LLAMA_RETRIEVAL_QDRANT_URL"
BINARY = Path(__file__).parents[3] / "shared/servers/qdrant-1.19.0-linux-x86_64.xz"

_START_S = 90
_OF_GRPC = ("prefer_grpc", "grpc_port")


@pytest.fixture(scope="session")
def qdrant_url() -> str:
    """The base URL of a server, by gRPC, the same for the whole session; see `by_http`."""
    given = given_server(URL_VARIABLE, "qdrant")
    if given:
        return reachable(URL_VARIABLE, given)
    require_binary()
    return url_of(__name__)


def require_binary() -> None:
    """Skip where there is no server to start."""
    if not BINARY.exists():
        pytest.skip(f"Qdrant needs ../shared/servers/{BINARY.name}, or a URL in {URL_VARIABLE}")


def by_http(url: str) -> str:
    """The URL without the options of gRPC."""
    base, _, query = url.partition("?")
    options = [(name, value) for name, value in parse_qsl(query) if name not in _OF_GRPC]
    return f"{base}?{urlencode(options)}" if options else base


def by_grpc(url: str) -> str:
    """The same URL; the test is skipped where a user's own server has no gRPC."""
    if "prefer_grpc=true" not in url:
        pytest.skip(f"{URL_VARIABLE} names no gRPC: add ?prefer_grpc=true&grpc_port=PORT")
    return url


def http_address(url: str) -> str:
    """``http://host:port``, as Qdrant's client takes it."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme.endswith('s') else 'http'}://{parts.hostname}:{parts.port}"


def start(*, key: str = "") -> Server:
    """Start an empty server, which asks for the key if there is one."""
    folder = own_folder("qdrant")
    return _run(folder, free_port(), free_port(), key)


def start_again(server: Server) -> Server:
    """Start a server that has ended, with what it wrote and on the same ports."""
    parts = urlsplit(server.url)
    return _run(server.folder, parts.port or 0, int(dict(parse_qsl(parts.query))["grpc_port"]), "")


def _run(folder: Path, port: int, grpc_port: int, key: str) -> Server:
    settings = {
        "TELEMETRY_DISABLED": "true",
        "LOG_LEVEL": "WARN",
        "STORAGE__STORAGE_PATH": str(folder / "storage"),
        "STORAGE__SNAPSHOTS_PATH": str(folder / "snapshots"),
        "SERVICE__HOST": "127.0.0.1",
        "SERVICE__HTTP_PORT": str(port),
        "SERVICE__GRPC_PORT": str(grpc_port),
        "SERVICE__ENABLE_STATIC_CONTENT": "false",
        **({"SERVICE__API_KEY": key} if key else {}),
    }
    environment = {f"QDRANT__{name}": value for name, value in settings.items()}
    environment["QDRANT_INIT_FILE_PATH"] = str(folder / "initialized")  # not where tests run
    environment |= {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    process = spawn([str(_binary()), "--disable-telemetry"], folder, environment=environment)
    server = Server("", folder, process)
    wait_until(lambda: _is_ready(port), server, "Qdrant", within_s=_START_S)
    return replace(server, url=f"qdrant://127.0.0.1:{port}?prefer_grpc=true&grpc_port={grpc_port}")


def _binary() -> Path:
    """The unpacked binary, the same for all servers."""
    unpacked = cache() / BINARY.stem
    with locked(unpacked):
        if not unpacked.exists():
            part = unpacked.with_suffix(".part")
            with lzma.open(BINARY) as packed, part.open("wb") as file:
                shutil.copyfileobj(packed, file, 2**20)
            part.chmod(0o755)
            part.rename(unpacked)
    return unpacked


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
