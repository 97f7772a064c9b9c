"""A server that is down, slow or locked: one clear error in time, and it works again after."""

from collections.abc import Callable, Iterator

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import StoreError, StoreUnavailableError
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.engine_backend import CollectionBackend
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.servers.forwarder import Forwarder
from tests.servers.given import local_port
from tests.stores.qdrant.fake_server import KEY, FakeServer
from tests.stores.server_contract import NODE, ServerContract

pytestmark = pytest.mark.slow


@pytest.fixture
def line(fake: FakeServer) -> Iterator[Forwarder]:
    with Forwarder(local_port(fake.url) or 0) as forwarder:
        yield forwarder


@pytest.fixture
def open_through(fake: FakeServer, line: Forwarder) -> Iterator[Callable[..., QdrantStore]]:
    stores: list[QdrantStore] = []

    def open_(timeout_s: float) -> QdrantStore:
        url = f"qdrant://127.0.0.1:{line.port}/line?timeout_s={timeout_s}"
        stores.append(QdrantStore(url))
        return stores[-1]

    with QdrantStore(f"qdrant://{fake.host}/line") as direct:
        direct.add([NODE])
    yield open_
    for each in stores:
        each.close()


class TestServer(ServerContract[QdrantStore]):
    pass


MODEL = FakeEmbedding()


@pytest.fixture
def store(fake: FakeServer) -> Iterator[QdrantStore]:
    with QdrantStore(f"qdrant://{fake.host}/kb") as opened:
        opened.add(sample_nodes(MODEL))
        yield opened


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
    [(401, "refused the credentials"), (429, "cannot answer now"), (503, "cannot answer now")],
)
async def test_an_error_status_is_unavailable_and_the_next_request_works(
    fake: FakeServer, store: QdrantStore, status: int, reason: str
) -> None:
    backend, vector = CollectionBackend(store), MODEL.get_query_embedding("leave")
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


def test_a_request_the_engine_refuses_is_an_error_that_says_why(
    fake: FakeServer, store: QdrantStore
) -> None:
    fake.status = 400
    with pytest.raises(StoreError, match="refused the request: 400") as caught:
        store.count()
    assert not isinstance(caught.value, StoreUnavailableError)


def test_a_server_that_is_not_qdrant_is_unavailable(fake: FakeServer, store: QdrantStore) -> None:
    fake.status = 200  # with a body that no client of Qdrant understands
    with pytest.raises(StoreUnavailableError, match="no Qdrant"):
        store.query(VectorStoreQuery(query_embedding=MODEL.get_query_embedding("leave")))
