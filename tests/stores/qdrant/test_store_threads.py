"""Local mode is not made for threads; here it is asked by one at a time."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.schema import TextNode
from qdrant_client import QdrantClient

from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.stores.qdrant.store import QdrantBackend, QdrantStore
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.stores.qdrant.llama_index_stores import llama_index_store, nodes_with_uuids

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()
WRITERS, READERS, EACH = 4, 4, 25


def test_four_writers_and_four_readers_lose_nothing(store: QdrantStore) -> None:
    backend = QdrantBackend(store)
    store.add(sample_nodes(MODEL))
    vector = MODEL.get_query_embedding("annual leave")

    def write(writer: int) -> None:
        for number in range(EACH):
            name = f"w{writer}-{number}"
            store.add([TextNode(id_=name, text=f"text {name}", embedding=vector)])

    def read(_: int) -> None:
        for _ in range(EACH):
            both = backend.hybrid(vector, "leave", Search(5), nodes_last=False).function()
            assert len(both.vector) == 5
            assert both.keyword

    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        jobs = [pool.submit(write, each) for each in range(WRITERS)]
        jobs += [pool.submit(read, each) for each in range(READERS)]
        for job in jobs:
            job.result()
    assert store.count() == 12 + WRITERS * EACH


def test_stores_that_share_a_local_client_share_its_lock() -> None:
    client = QdrantClient(":memory:")
    store = llama_index_store(client)
    store.add(nodes_with_uuids(MODEL))
    backends = [LlamaIndexQdrantBackend(llama_index_store(client)) for _ in range(4)]
    vector = MODEL.get_query_embedding("leave")

    def read(backend: LlamaIndexQdrantBackend) -> int:
        call = backend.dense(vector, Search(3))
        return sum(len(call.function()) for _ in range(EACH))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, backends)) == [3 * EACH] * 4
    assert len({id(backend._connection._lock) for backend in backends}) == 1
    client.close()


@pytest.mark.parametrize("number", range(3))
def test_a_collection_created_by_several_threads_is_created_once(
    store: QdrantStore, number: int
) -> None:
    def add(name: str) -> list[str]:
        return store.add([TextNode(id_=name, text=name, embedding=[1.0, number])])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, "abcdefgh"))
    assert store.count() == 8
