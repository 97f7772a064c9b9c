"""URLs and versions of Milvus: what they mean, and which are refused."""

import asyncio
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from llama_index.core.schema import NodeWithScore
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.stores.milvus.client import check_version, is_lite, parse_address, token_of
from llama_retrieval_ext.stores.milvus.store import MilvusStore, open_milvus
from llama_retrieval_ext.urls import Address
from tests.cases import cases
from tests.programs import run_program
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url, local_port
from tests.servers.milvus import require_lite, start
from tests.stores.server_contract import NODE, QUERY, ServerContract

pytestmark = pytest.mark.slow


def test_a_server_has_host_port_and_collection() -> None:
    assert parse_address("milvus://db:1234/kb") == Address("kb", url="http://db:1234", timeout_s=10)
    assert parse_address("milvuss://db/kb") == Address("kb", url="https://db:19530", timeout_s=10)
    assert parse_address("milvus://[::1]/kb?db_name=x&timeout_s=2.5") == Address(
        "kb", url="http://[::1]:19530", timeout_s=2.5, options={"db_name": "x"}
    )


def test_a_file_has_a_collection(tmp_path: Path) -> None:
    path = (tmp_path / "a b.db").resolve()
    assert parse_address(f"milvus:{tmp_path}/a%20b.db") == Address(
        "nodes", path=str(path), timeout_s=10
    )
    assert parse_address(f"milvus:{path}?collection=kb").collection == "kb"


@cases("url", ["milvus:./kb", "milvus:./no-such-folder/kb.db", "milvus://host/1a"])
def test_a_file_or_collection_that_milvus_would_refuse_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(url)


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    by_token = parse_address("milvus://host/kb?token_env=MILVUS_TOKEN")
    with pytest.raises(ConfigurationError, match="MILVUS_TOKEN"):
        token_of(by_token)
    monkeypatch.setenv("MILVUS_TOKEN", "hidden")
    monkeypatch.setenv("MILVUS_USER", "root")
    assert token_of(by_token) == "hidden"
    assert "hidden" not in repr(by_token)
    by_user = parse_address("milvus://host/kb?user_env=MILVUS_USER&password_env=MILVUS_TOKEN")
    assert token_of(by_user) == "root:hidden"
    assert token_of(parse_address("milvus://host/kb")) == ""


@cases("version", ["v2.3.5-lite", "2.4-20240912-1a2b"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"http://db:19530 is .*2\.5 or newer"):
        check_version(version, "http://db:19530")


@cases(
    "version",
    [
        "v2.5.0",
        "2.5-20250318-8de5174e-amd64",
        "v10.0.0",
        "Zilliz Cloud Vector Database(Compatible with Milvus 2.4)",
    ],
)
def test_a_newer_server_or_one_of_unknown_version_is_accepted(version: str) -> None:
    check_version(version, "http://db:19530")


def test_milvus_lite_is_recognised_by_its_version() -> None:
    assert is_lite("milvus_lite-3.2.2")
    assert not is_lite("v2.3.5-lite")


def test_an_old_server_is_refused_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MilvusClient, "get_server_version", lambda *_, **__: "v2.4.1")
    with pytest.raises(ConfigurationError, match=r"v2\.4\.1"):
        open_milvus(f"milvus:{tmp_path}/kb.db")


@pytest.fixture
def open_through(milvus_url: str, line: Forwarder) -> Iterator[Callable[..., MilvusStore]]:
    name, stores = f"t{uuid.uuid4().hex}", list[MilvusStore]()

    def open_(timeout_s: int) -> MilvusStore:
        stores.append(open_milvus(_forwarded(milvus_url, line, name, timeout_s=timeout_s)))
        return stores[-1]

    with open_milvus(collection_url(milvus_url, name)) as direct:
        direct.add([NODE])
        yield open_
        for each in stores:
            each.close()
        direct.clear()


class TestServer(ServerContract[MilvusStore]):
    pass


@pytest.fixture
def line(milvus_url: str) -> Iterator[Forwarder]:
    port = local_port(milvus_url)
    if port is None:
        pytest.skip("the server is not on this machine, or speaks TLS")
    with Forwarder(port) as forwarder:
        yield forwarder


def _forwarded(url: str, forwarder: Forwarder, name: str, *, timeout_s: int) -> str:
    """The same server's URL, and what stands after ``?``, by way of the forwarder."""
    options = [each for each in (urlsplit(url).query, f"timeout_s={timeout_s}") if each]
    return f"milvus://127.0.0.1:{forwarder.port}/{name}?{'&'.join(options)}"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MilvusException(3, "query node out of memory"), "cannot answer now"),
        (MilvusException(65535, "auth check failure, please check"), "refused the credentials"),
    ],
)
def test_an_error_of_the_server_is_unavailable_and_the_next_request_works(
    store: MilvusStore, monkeypatch: pytest.MonkeyPatch, error: MilvusException, reason: str
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    store.add([NODE])
    retriever = VectorRetriever(store)
    with monkeypatch.context() as patched:
        patched.setattr(store.client, "search", failing)
        with pytest.raises(StoreUnavailableError, match=reason):
            retriever.retrieve(QUERY)
        with pytest.raises(StoreUnavailableError, match=reason):
            asyncio.run(retriever.aretrieve(QUERY))
    assert retriever.retrieve(QUERY)


def test_a_server_that_is_slow_to_take_a_connection_is_reached(
    milvus_url: str, line: Forwarder
) -> None:
    line.delay_s = 0.5
    with open_milvus(_forwarded(milvus_url, line, "slow", timeout_s=30)) as store:
        assert store.count() == 0


def test_a_server_that_restarts_is_found_again_with_what_it_had() -> None:
    require_lite()
    server = start()
    try:
        with open_milvus(f"{server.url}/kb?timeout_s=5") as store:
            store.add([NODE])
            server.stop(keep=True)
            server = start(port=local_port(server.url), folder=server.folder)
            assert [hit.node_id for hit in _retrieved(store)] == ["a"]
    finally:
        server.stop()


def _retrieved(store: MilvusStore) -> list[NodeWithScore]:
    return VectorRetriever(store).retrieve(QUERY)


def test_a_file_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kb.db"
    program = f"""
from llama_retrieval_ext.stores.milvus.store import open_milvus
from llama_retrieval_ext.errors import StoreUnavailableError
try:
    open_milvus("milvus:{path}")
except StoreUnavailableError as error:
    assert "another process" in str(error)
    print("refused")
else:
    print("opened")
"""

    def other() -> str:
        done = run_program(program)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with open_milvus(f"milvus:{path}") as store, open_milvus(f"milvus:{path}") as twice:
        store.add([NODE])
        assert twice.count() == 1
        assert other() == "refused"
        store.close()
        assert twice.count() == 1
    assert other() == "opened"


def test_added_nodes_survive_a_kill(tmp_path: Path) -> None:
    program = f"""
import os, signal
from llama_index.core.schema import TextNode
from llama_retrieval_ext.stores.milvus.store import open_milvus
store = open_milvus("milvus:{tmp_path}/kb.db")
store.add([TextNode(id_=str(i), text="leave", embedding=[1.0, 0.0]) for i in range(300)])
store.add([TextNode(id_="last", text="leave", embedding=[1.0, 0.0])])
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run_program(program)
    assert done.returncode == -signal.SIGKILL
    with open_milvus(f"milvus:{tmp_path}/kb.db") as store:
        assert store.count() == 301
        assert store.get_nodes(["last"])
