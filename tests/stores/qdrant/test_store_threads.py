"""Local mode is not made for threads; here it is asked by one at a time."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from qdrant_client import QdrantClient

from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.stores.qdrant.llama_index_stores import llama_index_store, nodes_with_uuids

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()
READS = 25


def test_stores_that_share_a_local_client_share_its_lock() -> None:
    client = QdrantClient(":memory:")
    store = llama_index_store(client)
    store.add(nodes_with_uuids(MODEL))
    backends = [LlamaIndexQdrantBackend(llama_index_store(client)) for _ in range(4)]
    vector = MODEL.get_query_embedding("leave")

    def read(backend: LlamaIndexQdrantBackend) -> int:
        call = backend.dense(vector, Search(3))
        return sum(len(call.function()) for _ in range(READS))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, backends)) == [3 * READS] * 4
    assert len({id(backend._connection._lock) for backend in backends}) == 1
    client.close()
