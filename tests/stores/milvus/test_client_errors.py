"""A server that is down, slow or refuses: one clear error in time, and then on."""

import asyncio
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from llama_index.core.schema import NodeWithScore, TextNode
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import DeadlineExceededError, StoreUnavailableError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stores.milvus.store import MilvusBackend, MilvusStore, open_milvus
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.programs import run_program
from tests.servers.forwarder import Forwarder
from tests.servers.given import collection_url, local_port
from tests.servers.milvus import require_lite, start
from tests.servers.process import free_port

pytestmark = pytest.mark.slow

QUERY = Query("leave", embedding=[1.0, 0.0])
CALLS: dict[str, Callable[[MilvusStore], object]] = {
    "search": lambda store: VectorRetriever(MilvusBackend(store)).retrieve(QUERY),
    "async search": lambda store: asyncio.run(
        VectorRetriever(MilvusBackend(store)).aretrieve(QUERY)
    ),
    "add": lambda store: store.add([_node("b")]),
    "count": lambda store: store.count(),
}


def _node(node_id: str) -> TextNode:
    return TextNode(id_=node_id, text="leave", embedding=[1.0, 0.0])


@pytest.fixture
def forwarder(milvus_url: str) -> Iterator[Forwarder]:
    port = local_port(milvus_url)
    if port is None:
        pytest.skip("the server is not on this machine, or speaks TLS")
    with Forwarder(port) as forwarder:
        yield forwarder


@pytest.fixture
def through(milvus_url: str, forwarder: Forwarder) -> Iterator[MilvusStore]:
    name = f"t{uuid.uuid4().hex}"
    with open_milvus(_forwarded(milvus_url, forwarder, name, timeout_s=2)) as store:
        store.add([_node("a")])
        yield store
    with open_milvus(collection_url(milvus_url, name)) as direct:
        direct.clear()


def _forwarded(url: str, forwarder: Forwarder, name: str, *, timeout_s: int) -> str:
    """The same server's URL, and what stands after ``?``, by way of the forwarder."""
    options = [each for each in (urlsplit(url).query, f"timeout_s={timeout_s}") if each]
    return f"milvus://127.0.0.1:{forwarder.port}/{name}?{'&'.join(options)}"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_server_that_is_down_is_unavailable_and_works_again_when_it_is_back(
    through: MilvusStore, forwarder: Forwarder, call: Callable[[MilvusStore], object]
) -> None:
    forwarder.down()
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1"):
        call(through)
    assert time.monotonic() - started < 10
    forwarder.up()
    assert call(through)


def test_an_optional_leg_on_a_server_that_is_down_is_left_out(
    through: MilvusStore, forwarder: Forwarder
) -> None:
    other = BM25Retriever([TextNode(id_="m", text="leave")])
    both = (VectorRetriever(MilvusBackend(through)) | other) >> RRF()
    assert {hit.node_id for hit in both.search(QUERY).hits} >= {"a", "m"}
    forwarder.down()
    result = both.search(QUERY)
    assert [hit.node_id for hit in result.hits] == ["m"]
    assert [part.where for part in result.degraded] == ["vector"]
    forwarder.up()
    assert not both.search(QUERY).degraded


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MilvusException(3, "query node out of memory"), "cannot answer now"),
        (MilvusException(8, "rate limit exceeded"), "cannot answer now"),
        (MilvusException(9, "quota exceeded"), "cannot answer now"),
        (MilvusException(65535, "auth check failure, please check"), "refused the credentials"),
    ],
)
def test_an_error_of_the_server_is_unavailable_and_the_next_request_works(
    store: MilvusStore, monkeypatch: pytest.MonkeyPatch, error: MilvusException, reason: str
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    store.add([_node("a")])
    retriever = VectorRetriever(MilvusBackend(store))
    with monkeypatch.context() as patched:
        patched.setattr(store.client, "search", failing)
        with pytest.raises(StoreUnavailableError, match=reason):
            retriever.retrieve(QUERY)
        with pytest.raises(StoreUnavailableError, match=reason):
            asyncio.run(retriever.aretrieve(QUERY))
    assert retriever.retrieve(QUERY)


def test_a_server_that_is_slow_to_take_a_connection_is_reached(
    milvus_url: str, forwarder: Forwarder
) -> None:
    forwarder.delay_s = 0.5
    with open_milvus(_forwarded(milvus_url, forwarder, "slow", timeout_s=30)) as store:
        assert store.count() == 0


def test_a_silent_server_takes_no_longer_than_the_timeout_of_the_query(
    through: MilvusStore, forwarder: Forwarder
) -> None:
    retriever = VectorRetriever(MilvusBackend(through))
    forwarder.silent.set()
    started = time.monotonic()
    with pytest.raises((StoreUnavailableError, DeadlineExceededError)):
        retriever.retrieve(QUERY.but(timeout_s=0.3))
    assert time.monotonic() - started < 1.8
    with pytest.raises(StoreUnavailableError):
        retriever.retrieve(QUERY)
    forwarder.down()
    forwarder.silent.clear()
    forwarder.up()
    assert retriever.retrieve(QUERY)


def test_a_server_that_restarts_is_found_again_with_what_it_had() -> None:
    require_lite()
    server = start()
    try:
        with open_milvus(f"{server.url}/kb?timeout_s=5") as store:
            store.add([_node("a")])
            server.stop(keep=True)
            server = start(port=local_port(server.url), folder=server.folder)
            assert [hit.node_id for hit in _retrieved(store)] == ["a"]
    finally:
        server.stop()


def _retrieved(store: MilvusStore) -> list[NodeWithScore]:
    return VectorRetriever(MilvusBackend(store)).retrieve(QUERY)


def test_opening_without_a_server_fails_in_time() -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        open_milvus(f"milvus://127.0.0.1:{free_port()}/kb?timeout_s=1")
    assert time.monotonic() - started < 10


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
        store.add([_node("a")])
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


def test_a_hybrid_answers_by_keywords_when_the_embedding_fails(store: MilvusStore) -> None:
    class Broken(FakeEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            raise ConnectionError("no model")

    store.add([_node("a")])
    result = HybridRetriever(MilvusBackend(store), embed_model=Broken()).search("leave")
    assert [hit.node_id for hit in result.hits] == ["a"]
    assert result.degraded
