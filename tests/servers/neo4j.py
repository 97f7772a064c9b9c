"""A real Neo4j: by URL from the environment, or started here from the Maven registry.

What is fetched is Neo4j Community with APOC core, which LlamaIndex's own store needs and ours does
not; it runs on Java 17, without Docker. To fetch it before the tests run:
``python -m tests.servers.neo4j``.

``LLAMA_RETRIEVAL_NEO4J_URL`` names a server of the user's own, as ``bolt://host:7687``; it has to
do without credentials. The tests delete all that is in it.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.servers.artifact import cache, locked, missing_tools, own_folder
from tests.servers.given import reachable
from tests.servers.once import url_of
from tests.servers.process import Server, free_port, spawn, wait_until

URL_VARIABLE = "LLAMA_RETRIEVAL_NEO4J_URL"

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_APOC = ("org.neo4j.procedure:apoc-core:5.26.19", "org.neo4j.procedure:apoc-common:5.26.19")
_ARTIFACTS = ("org.neo4j:neo4j:5.26.30", *_APOC)
_TRIES = 3
_FETCH_S = 300
_START_S = 90
_MAIN = "META-INF/services/org.neo4j.server.startup.EntryPoint"
_JAVA = (
    *("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # It loads 20,000 classes: not to verify them is a seventh of its time in these tests.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
    *(
        f"--add-opens=java.base/{each}=ALL-UNNAMED"
        for each in ("java.nio", "java.io", "sun.nio.ch")
    ),
)
# A plan is kept: few nodes come and go with each test, and each time all would be made anew.
_SETTINGS = """\
server.default_listen_address=127.0.0.1
server.default_advertised_address=127.0.0.1
server.bolt.listen_address=127.0.0.1:{port}
server.http.enabled=false
server.https.enabled=false
dbms.security.auth_enabled=false
dbms.security.procedures.unrestricted=apoc.*
dbms.usage_report.enabled=false
client.allow_telemetry=false
server.memory.pagecache.size=64m
db.tx_log.preallocate=false
db.tx_log.rotation.size=16m
db.transaction.monitor.check.interval=100ms
internal.dbms.bolt.netty_server_shutdown_quiet_period=0
dbms.cypher.statistics_divergence_threshold=1.0
dbms.cypher.min_replan_interval=1h
"""


@pytest.fixture(scope="session")
def neo4j_url() -> str:
    """The URL of a server, the same for the whole session."""
    named = os.environ.get(URL_VARIABLE, "")
    if named:
        return reachable(URL_VARIABLE, named)
    reason = missing_tools()
    if reason:
        pytest.skip(f"Neo4j needs Java 17 and Maven, or a URL in {URL_VARIABLE}; {reason}")
    return url_of(__name__)


def prefetch() -> None:
    """Fetch what the fixture starts, if it will: no test is charged for a slow download."""
    if not os.environ.get(URL_VARIABLE) and not missing_tools():
        with contextlib.suppress(ConnectionError, subprocess.TimeoutExpired):  # the fixture tells
            _class_path()


def start() -> Server:
    """Start an empty server; once more where another process took its port meanwhile."""
    class_path = _class_path()
    try:
        return _start(class_path)
    except ConnectionError:
        return _start(class_path)


def _start(class_path: str) -> Server:
    folder = own_folder("neo4j")
    port = free_port()
    for name in ("conf", "plugins", "logs"):
        (folder / name).mkdir()
    (folder / "conf/neo4j.conf").write_text(_SETTINGS.format(port=port))
    jars = [Path(jar) for jar in class_path.split(":")]
    for jar in jars:
        if jar.name.startswith("apoc-"):
            shutil.copy(jar, folder / "plugins")  # procedures load only from there
    with zipfile.ZipFile(_jar(jars)) as zipped:
        main = zipped.read(_MAIN).decode().strip()
    home = [f"--home-dir={folder}", f"--config-dir={folder / 'conf'}"]
    return _run(["java", *_JAVA, "-cp", class_path, main, *home], folder, port)


def _run(command: list[str], folder: Path, port: int) -> Server:
    process = spawn(command, folder)
    server = Server(f"bolt://127.0.0.1:{port}", folder, process)
    log = folder / "logs/neo4j.log"
    wait_until(
        lambda: log.exists() and " Started." in log.read_text(errors="replace"),
        server,
        "Neo4j",
        within_s=_START_S,
    )
    return server


def _class_path() -> str:
    """The jars of the server, fetched if need be; workers side by side wait for each other."""
    pom = _pom()
    digest = hashlib.sha256(pom.encode()).hexdigest()[:16]
    folder = cache() / f"neo4j-{digest}-class-path"
    folder.mkdir(exist_ok=True)
    listing = folder / "class-path.txt"
    with locked(folder):
        (folder / "pom.xml").write_text(pom)
        options = ["-DincludeScope=runtime", f"-Dmdep.outputFile={listing}"]
        for _ in range(_TRIES):
            if listing.exists() and all(Path(j).exists() for j in listing.read_text().split(":")):
                return listing.read_text().strip()
            listing.unlink(missing_ok=True)
            subprocess.run(
                ["mvn", "-B", "-ntp", "-q", "-f", str(folder / "pom.xml"), _PLUGIN, *options],
                check=False,
                timeout=_FETCH_S,
                stdin=subprocess.DEVNULL,
            )
    raise ConnectionError(f"Neo4j could not be fetched in {_TRIES} tries")


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in (artifact.split(":") for artifact in _ARTIFACTS)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tests</groupId><artifactId>neo4j</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _jar(jars: list[Path]) -> Path:
    _, name, version = _ARTIFACTS[0].split(":")
    return next(jar for jar in jars if jar.name == f"{name}-{version}.jar")


if __name__ == "__main__":
    _class_path()
