"""A server that is down, slow or refuses: one clear error in time, and then on."""

import asyncio
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from llama_index.core.schema import NodeWithScore, TextNode
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.stores.milvus.store import MilvusStore, open_milvus
from tests.programs import run_program
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url, local_port
from tests.servers.milvus import require_lite, start
from tests.stores.server_contract import NODE, QUERY, ServerContract

pytestmark = pytest.mark.slow


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


def _node(node_id: str) -> TextNode:
    return TextNode(id_=node_id, text="leave", embedding=[1.0, 0.0])


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
