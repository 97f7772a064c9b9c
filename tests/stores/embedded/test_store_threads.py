"""Threads share a store."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from qdrant_edge import CountRequest, EdgeShard

from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore

pytestmark = pytest.mark.slow

SIZE = 8
# Readers that never rest keep Python's global lock, and the test would take seconds for it.
PAUSE_S = 0.0005


def nodes(writer: int, call: int) -> list[TextNode]:
    return [
        TextNode(
            id_=f"{writer}-{call}-{n}",
            text=f"words of writer {writer}",
            embedding=[1.0, float(writer), float(call * SIZE + n)],
            metadata={"writer": writer, f"field{call % 3}": call},
        )
        for n in range(SIZE)
    ]


def test_clearing_a_store_disturbs_no_reader(store: EmbeddedVectorStore) -> None:
    done = Event()
    query = VectorStoreQuery(
        query_embedding=[1.0, 0.0, 0.0],
        query_str="words",
        similarity_top_k=50,
        mode=VectorStoreQueryMode.HYBRID,
    )

    def read() -> set[int]:
        sizes = set()
        while not done.wait(PAUSE_S):
            sizes.add(len(store.query(query).ids or []))
        return sizes

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for call in range(4):
                store.add(nodes(0, call))
                store.clear()
        finally:
            done.set()
        for reader in readers:
            assert reader.result() <= set(range(SIZE + 1))
    assert store.count() == 0


def test_a_reader_sees_an_empty_store_after_a_concurrent_clear(store: EmbeddedVectorStore) -> None:
    store.add(nodes(0, 0))

    def read(shard: EdgeShard) -> int:
        store.clear()
        return shard.count(CountRequest())

    assert store._directory.read(read, empty=-1) == -1


def test_closing_a_store_ends_its_readers_with_store_closed_error() -> None:
    store = EmbeddedVectorStore(":memory:")
    store.add(nodes(0, 0))
    begun = Event()

    def read() -> str:
        try:
            while True:
                store.query(VectorStoreQuery(query_embedding=[1.0, 0.0, 0.0]))
                begun.set()
        except StoreClosedError:
            return "closed"

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        begun.wait()
        store.close()
        assert [reader.result() for reader in readers] == ["closed"] * 2
