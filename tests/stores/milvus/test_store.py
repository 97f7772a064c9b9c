"""The promises of every store, in a file and on a server."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.store_contract import StoreContract, found, node

pytestmark = pytest.mark.slow

Opened = Callable[..., MilvusStore]


class TestStore(StoreContract[MilvusStore]):
    odd_ids = tuple(each for each in StoreContract.odd_ids if each)  # Milvus has no empty id


def test_threads_may_read_and_write_at_once(opened: Opened) -> None:
    store = opened()
    store.add([node("first")])

    def write(number: int) -> None:
        for part in range(10):
            store.add([node(f"n{number}-{part}-{each}") for each in range(5)])

    def read(_: int) -> None:
        for _ in range(10):
            assert found(store, similarity_top_k=3)
            assert store.count()

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(job, number) for number in range(4) for job in (write, read)]
        for job in jobs:
            job.result()
    assert store.count() == len(store.get_nodes()) == 201
