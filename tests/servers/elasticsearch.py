"""A real Elasticsearch: by URL from the environment, or started here from the Maven registry.

What is fetched is Elastic's own distribution for integration tests; it needs Java 17, no Docker. To
fetch it before the tests run: ``python -m tests.servers.elasticsearch``.

``LLAMA_RETRIEVAL_ELASTICSEARCH_URL`` names a server of the user's own, as ``http://host:9200``; it
has to do without credentials. What the tests make there, they remove.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.servers.artifact import Artifact, cache, fetched, locked, missing_tools, own_folder
from tests.servers.given import given_server, reachable
from tests.servers.once import url_of
from tests.servers.process import Server, spawn, wait_until

URL_VARIABLE = "LLAMA_RETRIEVAL_ELASTICSEARCH_URL"

_DISTRIBUTION = Artifact(
    "org.elasticsearch.distribution.integ-test-zip:elasticsearch:8.19.21:zip",
    "215d5f3dbf0609a149f6218a9e47b6ae2df34ebbff3c5754e35f15a5e5393c8a",
)
_failures: list[Exception] = []
_START_S = 90
_JAVA_OPTIONS = (
    "-Xms512m -Xmx512m -XX:TieredStopAtLevel=1"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# Ports are free ones, named in a file. Nothing of modules that this distribution has not: it stops.
_SETTINGS = """\
discovery.type: single-node
network.host: 127.0.0.1
http.port: 0
transport.port: 0
node.portsfile: true
cluster.routing.allocation.disk.threshold_enabled: false
xpack.security.enabled: false
"""


@pytest.fixture(scope="session")
def elasticsearch_url() -> str:
    """The base URL of a server, the same for the whole session."""
    given = given_server(URL_VARIABLE, "elasticsearch")
    if given:
        return reachable(URL_VARIABLE, given).replace("elasticsearch", "http", 1).rstrip("/")
    reason = missing_tools()
    if reason:
        pytest.skip(f"Elasticsearch needs Java 17 and Maven, or a URL in {URL_VARIABLE}; {reason}")
    return url_of(__name__)


def prefetch() -> None:
    """Fetch what the fixtures start, if they will: no test is charged for a slow download."""
    if not os.environ.get(URL_VARIABLE) and not missing_tools():
        with contextlib.suppress(ConnectionError):  # which the fixtures tell
            _home()


def start() -> Server:
    """Start a server with an empty folder of its own, at a free port."""
    home = _home()
    folder = own_folder("elasticsearch")
    _prepare(home, folder)
    return _run(home, folder)


def _run(home: Path, folder: Path) -> Server:
    process = spawn(
        ["bash", str(home / "bin/elasticsearch")],
        folder,
        environment=_environment(folder),
        privileges=_somebody_else(),
    )
    server = Server("", folder, process)

    def ready() -> str:
        ports = folder / "logs/http.ports"
        lines = ports.read_text().split() if ports.exists() else []
        url = f"http://{lines[0]}" if lines else ""
        return url if url and _is_healthy(url) else ""

    return replace(server, url=wait_until(ready, server, "Elasticsearch", within_s=_START_S))


def _home() -> Path:
    """The unpacked distribution, the same for all servers."""
    archive = _archive()
    home = cache() / archive.stem
    with locked(home):
        if not (home / "bin/elasticsearch").exists():
            with (
                tempfile.TemporaryDirectory(dir=cache()) as part,
                zipfile.ZipFile(archive) as zipped,
            ):
                zipped.extractall(part)
                unpacked = next(Path(part).iterdir())
                for script in (unpacked / "bin").iterdir():
                    script.chmod(0o755)  # zipfile drops the mode
                for name in ("plugins", "logs"):
                    (unpacked / name).mkdir(exist_ok=True)
                unpacked.rename(home)
    return home


def _archive() -> Path:
    if not _failures:
        try:
            return fetched(_DISTRIBUTION)
        except (ConnectionError, subprocess.TimeoutExpired) as error:
            _failures.append(error)
    # What has failed for minutes is not tried again for the next test.
    raise ConnectionError(f"Elasticsearch could not be fetched: {_failures[0]}")


def _prepare(home: Path, folder: Path) -> None:
    shutil.copytree(home / "config", folder / "config")
    for name in ("data", "logs", "tmp"):
        (folder / name).mkdir()
    paths = f"path.data: {folder / 'data'}\npath.logs: {folder / 'logs'}\n"
    (folder / "config/elasticsearch.yml").write_text(_SETTINGS + paths)
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, "nobody", "nogroup")


def _environment(folder: Path) -> dict[str, str]:
    java = Path(shutil.which("java") or "java").resolve()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ES_JAVA_HOME": str(java.parent.parent),
        "ES_JAVA_OPTS": _JAVA_OPTIONS,
        "ES_PATH_CONF": str(folder / "config"),
        "ES_TMPDIR": str(folder / "tmp"),
    }


def _somebody_else() -> list[str]:
    """It refuses to run as root."""
    root = os.getuid() == 0
    return ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if root else []


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_cluster/health", timeout=5) as answer:
            return json.load(answer)["status"] in {"green", "yellow"}  # replicas need another
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


if __name__ == "__main__":
    _home()
