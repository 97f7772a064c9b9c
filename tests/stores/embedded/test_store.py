"""A store from the first node to the last; all store objects of a directory share it."""

import errno
import gc
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from qdrant_edge import CountRequest, EdgeShard

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreClosedError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.embedded.files import frozen
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.programs import run_program
from tests.stores.store_contract import StoreContract


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., EmbeddedVectorStore]]:
    """Opens one directory, as often as needed."""
    stores: list[EmbeddedVectorStore] = []

    def again(**settings: Any) -> EmbeddedVectorStore:
        stores.append(EmbeddedVectorStore(tmp_path / "kb", **settings))
        return stores[-1]

    yield again
    for each in stores:
        each.close()


class TestStore(StoreContract[EmbeddedVectorStore]):
    """The contract of every store."""


def test_a_closed_store_describes_nothing(store: EmbeddedVectorStore) -> None:
    store.close()
    for use in (store.describe, store.persist, lambda: store.dimension):
        with pytest.raises(StoreClosedError, match="was closed"):
            use()


NODES = [
    TextNode(id_="a", text="annual leave", embedding=[1.0, 0.0], metadata={"k": "v", "n": 3}),
    TextNode(id_="b", text="sick leave", embedding=[0.0, 1.0], metadata={"a.b": ["x"]}),
]


def elsewhere(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """What a process of its own makes of some code; the store class is imported there."""
    importing = "from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore"
    return run_program(f"import os, sys\n{importing}\n{textwrap.dedent(code)}", *arguments)


def count_elsewhere(path: Path) -> "subprocess.CompletedProcess[str]":
    return elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", path)


@pytest.mark.slow
def test_opening_twice_gives_the_same_store_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "s")
    first = EmbeddedVectorStore(tmp_path / "s")
    second = EmbeddedVectorStore(str(tmp_path / "link"))
    first.add(NODES[:1])
    assert second.count() == 1
    first.close()
    second.add(NODES[1:])
    assert second.count() == 2
    with pytest.raises(StoreClosedError):
        first.count()
    second.close()
    with EmbeddedVectorStore(tmp_path / "s") as third:
        assert third.count() == 2


@pytest.mark.slow
def test_another_process_gets_a_directory_when_its_last_store_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = EmbeddedVectorStore(path)
    store.add(NODES)
    again = EmbeddedVectorStore(path)
    with pytest.raises(ConfigurationError, match="distance"):
        EmbeddedVectorStore(path, distance="dot")
    with pytest.raises(DimensionMismatchError):
        EmbeddedVectorStore(path, dim=3)
    del store
    gc.collect()
    assert again.count() == 2
    refusal = count_elsewhere(path).stderr.splitlines()[-1]
    assert f"StoreUnavailableError: another process has {path} open" in refusal
    assert "use a server" in refusal
    del again
    gc.collect()
    assert count_elsewhere(path).stdout == "2\n"


def test_an_opening_that_waits_for_a_copy_delays_no_other_directory(tmp_path: Path) -> None:
    def count(name: str) -> int:
        with EmbeddedVectorStore(tmp_path / name) as store:
            return store.count()

    assert count("copied") == 0
    with ThreadPoolExecutor(2) as pool:
        with frozen(tmp_path / "copied"):
            waiting = pool.submit(count, "copied")
            with pytest.raises(TimeoutError):
                waiting.result(0.05)
            assert pool.submit(count, "other").result(20) == 0
        assert waiting.result(20) == 0


@pytest.mark.slow
def test_threads_can_open_and_close_the_same_directory(tmp_path: Path) -> None:
    def work(worker: int) -> None:
        for call in range(10):
            with EmbeddedVectorStore(tmp_path / "s") as store:
                store.add([TextNode(id_=f"{worker}-{call}", embedding=[1.0, call])])
                assert store.count() >= call + 1

    with ThreadPoolExecutor(4) as pool:
        for worker in [pool.submit(work, worker) for worker in range(4)]:
            worker.result()
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert store.count() == 4 * 10


@pytest.mark.slow
def test_a_store_in_memory_is_gone_when_closed_and_shared_with_nobody() -> None:
    first, second = EmbeddedVectorStore(":memory:"), EmbeddedVectorStore(":memory:")
    first.add(NODES)
    assert second.count() == 0
    place = first._directory.path
    assert place.is_dir()
    first.close()
    assert not place.exists()
    place = second._directory.path
    del second
    gc.collect()
    assert not place.exists()


@pytest.mark.slow
def test_a_store_in_memory_is_gone_at_exit() -> None:
    done = elsewhere(
        """
        store = EmbeddedVectorStore(":memory:", dim=2)
        print(store._directory.path)
        """
    )
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).exists()


@pytest.mark.slow
def test_a_store_that_cannot_be_removed_is_closed_and_others_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedVectorStore(tmp_path / "s")
    store.add(NODES)
    with (
        EmbeddedVectorStore(tmp_path / "s"),
        pytest.raises(StoreUnavailableError, match="open elsewhere in this process; close it"),
    ):
        store.remove()

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    with monkeypatch.context() as patched:
        patched.setattr("llama_retrieval_ext.stores.embedded.directory.write_config", failing)
        with pytest.raises(StoreUnavailableError, match="broken disk"):
            store.remove()
    with pytest.raises(StoreClosedError):
        store.count()
    store.close()
    assert count_elsewhere(tmp_path / "s").stdout == "2\n"
    with EmbeddedVectorStore(tmp_path / "s") as again:
        again.remove()
    assert not (tmp_path / "s").exists()


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_reader_sees_an_empty_store_after_a_concurrent_clear(store: EmbeddedVectorStore) -> None:
    store.add(nodes(0, 0))

    def read(shard: EdgeShard) -> int:
        store.clear()
        return shard.count(CountRequest())

    assert store._directory.read(read, empty=-1) == -1


@pytest.mark.slow
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
