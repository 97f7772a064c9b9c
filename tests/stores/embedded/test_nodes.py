"""Compaction gives back the space of deleted nodes, and changes nothing else."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext import BM25Retriever, KeywordRetriever
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.embedded import nodes as embedded_nodes
from tests.programs import Program

COMPACTING = """
import sys
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
store = EmbeddedVectorStore(sys.argv[1])
print(flush=True)
while True:
    store.compact()
"""


def node(number: int, *, dim: int = 4) -> TextNode:
    rng = random.Random(number)
    metadata = {"tenant_id": f"t{number % 3}", "year": 2000 + number % 20, 'a "b"': "x", "a b": 1}
    return TextNode(
        id_=f"n{number}",
        text=f"annual leave {number} w{number % 7}",
        metadata=metadata,
        embedding=[rng.gauss(0, 1) for _ in range(dim)],
    )


def answers(store: EmbeddedVectorStore) -> list[object]:
    keyword = VectorStoreQuery(
        query_str="leave w3", mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=150
    )
    dense = VectorStoreQuery(query_embedding=[0.3, 0.1, -0.8, 0.2], similarity_top_k=20)
    found = store.query(dense)
    # Compaction takes the mean length of texts anew, on which keyword scores depend.
    return [store.query(keyword).ids, found.ids, found.similarities]


def by_id(store: EmbeddedVectorStore) -> dict[str, BaseNode]:
    return {each.node_id: each for each in store.get_nodes()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add([node(number) for number in range(150)])
        store.delete_nodes([f"n{number}" for number in range(150) if number % 3])
        store.add([node(0), node(3)])
        yield store


def shards(store: EmbeddedVectorStore) -> list[str]:
    return sorted(each.name for each in Path(store.path).iterdir() if each.is_dir())


@pytest.mark.slow
def test_compaction_makes_the_directory_smaller(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add([node(number, dim=1024) for number in range(1_500)])
        store.delete_nodes([f"n{number}" for number in range(1_500) if number % 10])
        store.persist()
        before = size_bytes(tmp_path)
        freed = store.compact()
        after = size_bytes(tmp_path)
        assert store.count() == 150
    assert freed == before - after
    assert after < before / 2


def size_bytes(folder: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


@pytest.mark.slow
def test_compaction_changes_no_node_and_no_answer(
    store: EmbeddedVectorStore, tmp_path: Path
) -> None:
    before = answers(store), by_id(store)
    for _ in range(2):
        store.compact()
        assert (answers(store), by_id(store)) == before
    store.close()
    with EmbeddedVectorStore(tmp_path / "s") as again:
        assert (answers(again), by_id(again)) == before


@pytest.mark.slow
def test_compaction_keeps_the_field_indexes(store: EmbeddedVectorStore) -> None:
    def indexed() -> dict[str, object]:
        assert store.client is not None
        schema = store.client.info().payload_schema
        tenants = {name: getattr(index.params, "is_tenant", None) for name, index in schema.items()}
        return {name: (str(index.data_type), tenants[name]) for name, index in schema.items()}

    before = indexed()
    store.compact()
    assert indexed() == before != {}


@pytest.mark.slow
def test_a_compacted_store_takes_additions_replacements_deletions_and_clearing(
    store: EmbeddedVectorStore,
) -> None:
    store.compact()
    store.add([node(1), node(3)])
    store.delete_nodes(["n6"])
    assert store.count() == 50
    store.clear()
    assert (store.count(), shards(store)) == (0, [])
    store.add([node(7, dim=2)])
    store.compact()
    assert list(by_id(store)) == ["n7"]


def test_an_empty_store_and_one_in_memory_can_be_compacted() -> None:
    with EmbeddedVectorStore(":memory:") as store:
        assert store.compact() == 0
        store.add([node(1)])
        store.compact()
        assert list(by_id(store)) == ["n1"]
    with pytest.raises(StoreClosedError):
        store.compact()


@pytest.mark.slow
def test_a_compaction_that_fails_changes_nothing(
    store: EmbeddedVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(store)

    def failing(*_: object) -> None:
        raise Exception("No space left on device")  # noqa: TRY002 - the engine's own kind

    with monkeypatch.context() as patched:
        patched.setattr("llama_retrieval_ext.stores.embedded.nodes.copy_points", failing)
        with pytest.raises(StoreUnavailableError, match="no room is left"):
            store.compact()
        patched.setattr(store, "min_free_bytes", 2**60)
        with pytest.raises(StoreUnavailableError, match="MB are needed"):
            store.compact()
    assert (answers(store), shards(store)) == (before, ["shard"])
    store.compact()
    assert (answers(store), shards(store)) == (before, ["shard-1"])


@pytest.mark.slow
def test_searches_continue_during_compaction(store: EmbeddedVectorStore) -> None:
    before = answers(store)
    with ThreadPoolExecutor(2) as pool:
        compacting = pool.submit(lambda: [store.compact() for _ in range(3)])
        seen = [answers(store)]
        while not compacting.done():
            seen.append(answers(store))
            time.sleep(0.002)  # or compacting hardly gets on
    assert len(compacting.result()) == 3
    assert all(each == before for each in seen)


@pytest.mark.slow
def test_a_kill_during_compaction_loses_nothing(store: EmbeddedVectorStore, tmp_path: Path) -> None:
    before = answers(store), by_id(store)
    store.close()
    rng = random.Random(5)
    for _ in range(4):
        with Program(COMPACTING, tmp_path / "s") as child:
            child.stdout.readline()
            time.sleep(rng.uniform(0, 0.4))
            child.kill()
        with EmbeddedVectorStore(tmp_path / "s") as again:
            assert (answers(again), by_id(again)) == before


LENGTHS = [2, 3, 5, 8, 13, 21, 34, 55, 89, 4, 6, 7]


def keyword_scores(store: EmbeddedVectorStore) -> list[tuple[str, object]]:
    hits = KeywordRetriever(store, top_k=20).retrieve("leave policy")
    return [(hit.node_id, pytest.approx(hit.score, rel=1e-5)) for hit in hits]


@pytest.mark.slow
@pytest.mark.parametrize("rebuild", [EmbeddedVectorStore.compact, EmbeddedVectorStore.build_index])
def test_a_store_whose_first_text_is_unlike_the_others_ranks_like_a_new_one_after_a_rebuild(
    tmp_path: Path, rebuild: Callable[[EmbeddedVectorStore], object]
) -> None:
    texts = [f"leave {'policy ' * (n % 3)}{'other ' * length}" for n, length in enumerate(LENGTHS)]
    nodes = [
        TextNode(id_=f"n{number}", text=text, embedding=[1.0, number])
        for number, text in enumerate(["word " * 5000, *texts])
    ]
    with EmbeddedVectorStore(tmp_path / "s") as store, EmbeddedVectorStore(":memory:") as new:
        store.add(nodes[:1])
        store.add(nodes[1:7])
        wrong = keyword_scores(store)
        rebuild(store)
        assert keyword_scores(store) != wrong
        store.add(nodes[7:])  # weighed with the mean of the rebuild
        store.delete_nodes(["n0"])
        rebuild(store)
        new.add(nodes[1:])
        new.compact()
        in_memory = BM25Retriever(nodes[1:], similarity_top_k=20).retrieve("leave policy")
        assert keyword_scores(store) == keyword_scores(new)
        assert [name for name, _ in keyword_scores(new)] == [hit.node_id for hit in in_memory]
    with EmbeddedVectorStore(tmp_path / "s") as reopened:
        before = keyword_scores(reopened)
        reopened.compact()
        assert keyword_scores(reopened) == before


@pytest.mark.parametrize("added", [[node(1)], [node(2), node(1)]], ids=["later", "at once"])
def test_two_node_ids_with_one_hash_are_refused_and_nothing_is_replaced(
    added: list[TextNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_nodes, "number_of", lambda _: 7)
    with EmbeddedVectorStore(":memory:") as store:
        store.add([node(2)])
        with pytest.raises(ConfigurationError, match="'n1' has the same hash as node 'n2'"):
            store.add(added)
        assert list(by_id(store)) == ["n2"]
        store.add([node(2)])  # the same node, replaced
