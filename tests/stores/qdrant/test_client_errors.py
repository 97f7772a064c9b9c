"""A server that is down, slow or locked: one clear error in time, and it works again after."""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import DeadlineExceededError, StoreError, StoreUnavailableError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.store import QdrantBackend, QdrantStore
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.stores.qdrant.fake_server import KEY, FakeServer, serving

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()
LONG_S = 60  # what nobody waits for, however slow the machine is


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
def store(fake: FakeServer) -> Iterator[QdrantStore]:
    with QdrantStore(f"qdrant://{fake.host}/kb?timeout_s={LONG_S}") as opened:
        opened.add(sample_nodes(MODEL))
        yield opened


def test_opening_at_a_closed_port_fails_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="cannot be reached") as caught:
        QdrantStore(f"qdrant://127.0.0.1:{free_port()}/kb")
    assert time.monotonic() - started < 5
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.__cause__ is not None


def test_a_wrong_or_missing_key_is_refused(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.key = KEY
    monkeypatch.setenv("WRONG_KEY", "wrong")
    for url in (f"qdrant://{fake.host}/kb", f"qdrant://{fake.host}/kb?api_key_env=WRONG_KEY"):
        with pytest.raises(StoreUnavailableError, match="refused the credentials") as caught:
            QdrantStore(url)
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "refused the credentials"),
        (403, "refused the credentials"),
        (429, "cannot answer now"),
        (500, "cannot answer now"),
        (502, "cannot answer now"),
        (503, "cannot answer now"),
    ],
)
async def test_an_error_status_is_unavailable_and_the_next_request_works(
    fake: FakeServer, store: QdrantStore, status: int, reason: str
) -> None:
    backend, vector = QdrantBackend(store), MODEL.get_query_embedding("leave")
    call = backend.dense(vector, Search(3))
    assert call.coroutine is not None
    fake.status = status
    with pytest.raises(StoreUnavailableError, match=reason):
        call.function()
    with pytest.raises(StoreUnavailableError, match=reason):
        await call.coroutine()
    for change in (lambda: store.add(sample_nodes(MODEL)), lambda: store.delete("x"), store.clear):
        with pytest.raises(StoreUnavailableError, match=reason):
            change()
    fake.status = None
    assert len(call.function()) == len(await call.coroutine()) == 3
    assert store.count() == 12


def test_an_optional_leg_on_a_server_that_is_down_is_left_out(
    fake: FakeServer, store: QdrantStore
) -> None:
    other = BM25Retriever([TextNode(id_="m", text="leave")])
    both = (VectorRetriever(QdrantBackend(store), embed_model=MODEL) | other) >> RRF()
    assert len(both.search("leave").hits) > 1
    fake.status = 503
    result = both.search("leave")
    assert [hit.node_id for hit in result.hits] == ["m"]
    assert [part.where for part in result.degraded] == ["vector"]
    fake.status = None
    assert not both.search("leave").degraded


def test_a_request_the_engine_refuses_is_an_error_that_says_why(
    fake: FakeServer, store: QdrantStore
) -> None:
    fake.status = 400
    with pytest.raises(StoreError, match="refused the request: 400") as caught:
        store.count()
    assert not isinstance(caught.value, StoreUnavailableError)


async def test_a_request_to_a_silent_server_ends_at_the_timeout_of_the_connection(
    fake: FakeServer, store: QdrantStore
) -> None:
    with QdrantStore(f"qdrant://{fake.host}/kb?timeout_s=1") as hurried:
        call = QdrantBackend(hurried).dense(MODEL.get_query_embedding("leave"), Search(3))
        fake.delay_s = LONG_S
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="ReadTimeout"):
            call.function()
        assert call.coroutine is not None
        with pytest.raises(StoreUnavailableError, match="ReadTimeout"):
            await call.coroutine()
    assert time.monotonic() - started < LONG_S / 2


async def test_the_deadline_of_a_query_holds(fake: FakeServer, store: QdrantStore) -> None:
    retriever = VectorRetriever(QdrantBackend(store), embed_model=MODEL)
    fake.delay_s = LONG_S
    query = Query("leave", timeout_s=0.2)
    started = time.monotonic()
    with pytest.raises((DeadlineExceededError, StoreUnavailableError)):
        retriever.retrieve(query)
    with pytest.raises((DeadlineExceededError, StoreUnavailableError)):
        await retriever.aretrieve(query)
    assert time.monotonic() - started < LONG_S / 2
    fake.delay_s = 0.0
    assert retriever.retrieve("leave")


def test_a_server_that_is_not_qdrant_is_unavailable(fake: FakeServer, store: QdrantStore) -> None:
    fake.status = 200  # with a body that no client of Qdrant understands
    with pytest.raises(StoreUnavailableError, match="no Qdrant"):
        store.query(VectorStoreQuery(query_embedding=MODEL.get_query_embedding("leave")))


def test_a_server_that_comes_back_is_used_without_opening_again() -> None:
    fake, port = FakeServer(), free_port()
    with serving(fake, port=port), QdrantStore(f"qdrant://127.0.0.1:{port}/kb") as store:
        store.add([TextNode(id_="a", text="t", embedding=[1.0])])
        retriever = HybridRetriever(QdrantBackend(store), embed_model=MODEL)
    with QdrantStore("qdrant::memory:") as other:
        assert other.count() == 0
    store = _reopened(fake, port)
    with pytest.raises(StoreUnavailableError):
        store.count()
    with serving(fake, port=port):
        assert store.count() == 1
        assert asyncio.run(_count(store)) == 1
    store.close()
    assert retriever.backend.describe()["engine"] == "qdrant"


def _reopened(fake: FakeServer, port: int) -> QdrantStore:
    with serving(fake, port=port):
        return QdrantStore(f"qdrant://127.0.0.1:{port}/kb")


async def _count(store: QdrantStore) -> int:
    return len(await store.aget_nodes())
