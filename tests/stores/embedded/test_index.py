import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext import Query, Scope, VectorRetriever
from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.embedded import directory, index, search
from llama_retrieval_ext.stores.embedded import store as embedded_store
from llama_retrieval_ext.stores.embedded.files import (
    EmbeddedConfig,
    EmbeddedRequest,
    IndexKind,
    VectorType,
)
from llama_retrieval_ext.stores.embedded.shard import Draft
from tests.patience import SOON_S
from tests.programs import run_program

pytestmark = pytest.mark.slow

_DIM = 16
_ID = attrgetter("node_id")
_RNG = random.Random(3)
_CENTRES = [[_RNG.gauss(0, 1) for _ in range(_DIM)] for _ in range(20)]


def embedding(number: int) -> list[float]:
    rng = random.Random(number)
    return [centre + rng.gauss(0, 0.4) for centre in _CENTRES[number % len(_CENTRES)]]


def nodes(first: int, last: int, text: str = "leave") -> list[TextNode]:
    return [
        TextNode(id_=f"n{number}", text=f"{text} {number}", embedding=embedding(number))
        for number in range(first, last)
    ]


def texts(store: EmbeddedVectorStore) -> dict[str, str]:
    return {node.node_id: node.get_content() for node in store.get_nodes()}


def nearest(store: EmbeddedVectorStore, number: int) -> list[str]:
    query = VectorStoreQuery(query_embedding=embedding(number), similarity_top_k=5)
    return store.query(query).ids or []


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FULL_SCAN_KB", 1)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Set when the copy is indexed; goes on when the second is set."""
    reached, go_on, real = threading.Event(), threading.Event(), index._index_files

    def waiting(draft: Draft) -> None:
        real(draft)
        reached.set()
        assert go_on.wait(60)

    monkeypatch.setattr(index, "_index_files", waiting)
    yield reached, go_on
    go_on.set()


@pytest.mark.usefixtures("small_graphs")
def test_writes_during_a_build_are_in_the_new_shard(
    paused: tuple[threading.Event, threading.Event], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(index, "_FEW", 1)  # it is brought over before writers wait, and again then
    reached, go_on = paused
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(nodes(0, 300))
        building = threading.Thread(target=store.build_index)
        building.start()
        assert reached.wait(60)
        store.add(nodes(290, 310, "changed"))
        store.delete_nodes([f"n{number}" for number in range(5)])
        store.add(nodes(2, 3, "again"))
        expected = texts(store)
        assert nearest(store, 305)[0] == "n305"
        go_on.set()
        building.join(60)
        assert texts(store) == expected
        assert (expected["n2"], expected["n295"], len(expected)) == ("again 2", "changed 295", 306)
        assert store.index_info().indexed == 300
        assert store.compact() >= 0
        assert (texts(store), store.index_info().indexed) == (expected, 306)
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert texts(store) == expected
        assert store.index_info().indexed == 306


@pytest.mark.parametrize("end", ["close", "clear"])
def test_closing_or_clearing_during_a_build_leaves_no_draft(
    paused: tuple[threading.Event, threading.Event], end: str, tmp_path: Path
) -> None:
    reached, go_on = paused
    store = EmbeddedVectorStore(tmp_path / "s")
    store.add(nodes(0, 300))

    def build() -> None:
        with suppress(StoreClosedError):
            store.build_index()

    building = threading.Thread(target=build, daemon=True)
    building.start()
    assert reached.wait(60)
    ending = threading.Thread(target=getattr(store, end))
    ending.start()
    go_on.set()
    for thread in (ending, building):
        thread.join(60)
        assert not thread.is_alive()
    store.close()
    with EmbeddedVectorStore(tmp_path / "s") as again:
        assert again.count() == (300 if end == "close" else 0)
    assert len(list((tmp_path / "s").glob("shard*"))) == (1 if end == "close" else 0)


def indexed_by_itself(store: EmbeddedVectorStore) -> int:
    end = time.monotonic() + SOON_S
    while store.index_info().is_building and time.monotonic() < end:
        time.sleep(0.02)
    return store.index_info().indexed


def test_an_index_is_built_without_a_call_when_there_are_many_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(index, "BUILD_FROM", {"hnsw": 200})
    monkeypatch.setattr(embedded_store, "OPEN_FOR_S", 0.0)
    with EmbeddedVectorStore(tmp_path / "s", index="hnsw") as store:
        store.add(nodes(0, 150))
        assert not store.index_info().is_building
        store.add(nodes(150, 300))
        store.add(nodes(300, 600))  # while the first 300 are indexed
        assert indexed_by_itself(store) == 600
        store.add(nodes(600, 1200))  # and the process ends meanwhile
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert indexed_by_itself(store) == 1200


@pytest.mark.usefixtures("small_graphs")
@pytest.mark.parametrize("few", [search._FEW_VISIBLE, 0], ids=["few", "many"])
def test_a_search_for_principals_finds_in_an_index_what_an_exact_one_finds(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_FEW_VISIBLE", few)
    groups = {"half": 2, "tenth": 10, "few": 150}
    with EmbeddedVectorStore(":memory:", index="exact") as store:
        made = nodes(0, 1200)
        for number, node in enumerate(made):
            allowed = [name for name, each in groups.items() if number % each == 0]
            node.metadata = {"tenant_id": f"t{number % 3 % 2}", "allowed": allowed or ["nobody"]}
        made[1].metadata["allowed"] = []
        made[2].metadata["allowed"] = "half"  # no list, so that nobody sees it
        store.add(made)
        store._directory.open(EmbeddedRequest(index="hnsw"))
        assert store.build_index()
        retriever = VectorRetriever(store, top_k=5)
        found = best = 0
        for group, tenant, number in product([*groups, "other"], [None, "t0"], range(0, 60, 5)):
            scope = Scope(tenant, principals=[group])
            query = Query("leave", embedding=embedding(number), scope=scope)
            hits = retriever.retrieve(query)
            assert all(scope.has_principal_of(hit.metadata) for hit in hits)
            query.exact = True
            exact = {hit.node_id for hit in retriever.retrieve(query)}
            found, best = found + len(exact.intersection(map(_ID, hits))), best + len(exact)
    assert best > 200
    assert found >= 0.98 * best


def test_an_error_after_the_new_shard_is_current_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the old files are busy")

    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(nodes(0, 450))
        with monkeypatch.context() as patched:
            patched.setattr(directory, "remove_shard", fail)
            with pytest.raises(Exception, match="the old files are busy"):
                store.build_index()
        assert nearest(store, 7)[0] == "n7"


def test_the_vector_type_is_fixed_and_the_kind_of_index_may_change(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s", vectors="float16") as store:
        store.add(nodes(0, 3))
    with pytest.raises(ConfigurationError, match="made with vectors='float16', not 'int8'"):
        EmbeddedVectorStore(tmp_path / "s", vectors="int8")
    with EmbeddedVectorStore(tmp_path / "s", index="exact") as store:
        assert store.index_info().vectors == "float16"
        with pytest.raises(ConfigurationError, match="needs no index"):
            store.build_index()
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert store.index_info().index == "exact"
    with pytest.raises(ConfigurationError, match="index must be one of"):
        EmbeddedVectorStore(":memory:", index="ivf")  # type: ignore[arg-type]


_KILLED = """
import os, signal
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.stores.embedded.test_index import nodes
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.stores.embedded import directory, index, search
from llama_retrieval_ext.stores.embedded import store as embedded_store
from llama_retrieval_ext.stores.embedded.files import EmbeddedRequest
store = EmbeddedVectorStore({folder!r})
store.add(nodes(0, 400))
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
real = {target}
def killed(*arguments, **named):
    if {target!r} != "directory.write_config":
        store.add(nodes(400, 450))
    if {before}:
        kill()
    real(*arguments, **named)
    kill()
{target} = killed
store.build_index()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(
    ("target", "before", "count"),
    [("directory.StoreDirectory.finish_draft", True, 450), ("directory.write_config", False, 400)],
)
def test_a_process_killed_while_it_builds_loses_nothing(
    target: str, before: bool, count: int, tmp_path: Path
) -> None:
    folder = tmp_path / "s"
    done = run_program(_KILLED.format(folder=str(folder), target=target, before=before))
    assert done.returncode == -9, done.stderr
    with EmbeddedVectorStore(folder) as store:
        assert store.count() == count
        assert nearest(store, count - 1)[0] == f"n{count - 1}"
        assert store.build_index()
    assert len(list(folder.glob("shard*"))) == 1


__all__ = ["small_graphs"]


@pytest.mark.parametrize(
    ("vectors", "kind"),
    [
        ("float16", "auto"),
        ("turbo8", "auto"),
        ("int8", "exact"),
        ("int8", "hnsw"),
        ("turbo4", "hnsw"),
    ],
)
@pytest.mark.usefixtures("small_graphs")
def test_an_index_finds_what_an_exact_search_finds_and_the_trace_says_which_was_used(
    vectors: VectorType, kind: IndexKind
) -> None:
    with EmbeddedVectorStore(":memory:", vectors=vectors, index=kind) as store:
        store.add(nodes(0, 600))
        retriever = VectorRetriever(store, top_k=5)
        before = retriever.search(Query("leave", embedding=embedding(7)))
        assert store.build_index()
        store.add(nodes(600, 610))
        after = retriever.explain(Query("leave", embedding=embedding(7)))
        exact = retriever.explain(Query("leave", embedding=embedding(7), exact=True))
        assert store.check_recall(50) >= 0.98
        assert nearest(store, 605)[0] == "n605"
        store.delete_nodes(["n605", "n7"])
        assert "n605" not in nearest(store, 605)
        assert "n7" not in nearest(store, 7)
    assert [hit.node_id for hit in after.hits] == [hit.node_id for hit in before.hits]
    assert [hit.score for hit in after.hits] == pytest.approx([hit.score for hit in before.hits])
    assert [hit.node_id for hit in exact.hits] == [hit.node_id for hit in after.hits]
    assert "600 of 610 nodes" in str(after.to_dict())
    assert "600 of 610" not in str(exact.to_dict())


def test_a_search_has_more_candidates_the_more_nodes_are_indexed() -> None:
    def candidates(indexed: int, top_k: int = 10, *, among_few: bool = False) -> int | None:
        config = replace(EmbeddedConfig(), indexed=indexed)
        return search.vector_params(config, top_k, exact=False, among_few=among_few).hnsw_ef

    assert [*map(candidates, (0, 100_000, 300_000, 1_000_000, 10**7))] == [
        128,
        128,
        300,
        1000,
        1000,
    ]
    assert (candidates(10**6, 2000), candidates(10**6, among_few=True)) == (4000, 128)


def test_a_failed_build_changes_nothing_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "DATATYPES", {"float32": "Float128"})
    with EmbeddedVectorStore(":memory:") as store:
        store.add(nodes(0, 50))
        with pytest.raises(StoreUnavailableError, match=r"(?s)could not be built.*Float128"):
            store.build_index()
        assert (store.count(), store.index_info().indexed) == (50, 0)
