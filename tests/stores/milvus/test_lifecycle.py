"""Create, open, reopen, count, get, upsert, delete, clear: in a file and on a server."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.store_contract import StoreContract

Opened = Callable[..., MilvusStore]


def node(node_id: str, *, doc: str = "", text: str = "leave", **metadata: object) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc)} if doc else {}
    return TextNode(
        id_=node_id, text=text, metadata=metadata, relationships=source, embedding=[1.0, 0.5]
    )


def only(key: str, value: object) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])  # type: ignore[arg-type]


def ids(store: MilvusStore, **query: object) -> list[str]:
    asked = {"query_embedding": [1.0, 0.5], "query_str": "leave", "similarity_top_k": 10, **query}
    return store.query(VectorStoreQuery(**asked)).ids or []  # type: ignore[arg-type]


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
            assert ids(store, similarity_top_k=3)
            assert store.count()

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(job, number) for number in range(4) for job in (write, read)]
        for job in jobs:
            job.result()
    assert store.count() == len(store.get_nodes()) == 201


@pytest.mark.parametrize(
    ("params", "reason"), [({"by_tenant": True}, "by_tenant"), ({"hnsw": 1}, "hnsw")]
)
def test_settings_that_do_not_fit_are_refused_at_opening(
    opened: Opened, params: dict[str, object], reason: str
) -> None:
    opened().add([node("a")])
    with pytest.raises(ConfigurationError, match=reason):
        opened(store_params=params)


@pytest.mark.parametrize(
    "odd",
    [
        TextNode(id_="odd", text="界" * 30_000, embedding=[1.0, 0.0]),
        TextNode(id_="odd", text="a", metadata={"k": "v" * 70_000}, embedding=[1.0, 0.0]),
        TextNode(id_="odd", text="x y " * 10_000, embedding=[1.0, 0.0]),
        TextNode(id_="odd", text="a", metadata={"tenant_id": "t" * 5000}, embedding=[1.0, 0.0]),
        TextNode(id_="", text="a", embedding=[1.0, 0.0]),
    ],
    ids=["text", "metadata", "terms", "tenant", "id"],
)
def test_what_milvus_cannot_hold_is_refused_and_named(store: MilvusStore, odd: TextNode) -> None:
    with pytest.raises(ConfigurationError, match=r"odd|empty id"):
        store.add([node("a"), odd])
    assert store.count() == 0


@pytest.mark.parametrize(
    "params",
    [
        {"index_params": {"index_type": "HNSW", "params": {"M": 8, "efConstruction": 64}}},
        {
            "index_params": {"index_type": "IVF_FLAT", "params": {"nlist": 2}},
            "search_params": {"nprobe": 2},
        },
        {"by_tenant": True, "num_partitions": 4},
    ],
    ids=str,
)
def test_store_params_reach_the_engine(opened: Opened, params: dict[str, Any]) -> None:
    store = opened(store_params=params)
    nodes = [node(f"n{number}", tenant_id=f"t{number % 3}") for number in range(30)]
    store.add(nodes)
    assert ids(store, filters=only("tenant_id", "t1"), similarity_top_k=30) == sorted(
        each.node_id for each in nodes if each.metadata["tenant_id"] == "t1"
    )
    assert len(ids(store, mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=30)) == 30
    index = store.client.describe_index(store.describe()["collection"], "dense")
    assert index["index_type"] == params.get("index_params", index)["index_type"]
    fields = store.client.describe_collection(store.describe()["collection"])["fields"]
    assert any(each.get("is_partition_key") for each in fields) is params.get("by_tenant", False)


def test_a_collection_that_is_not_ours_is_refused(opened: Opened) -> None:
    store = opened()
    name = str(store.describe()["collection"])
    store.client.create_collection(name, 2, id_type="string", max_length=10)
    with pytest.raises(StoreFormatError, match="not made by this package"):
        opened()
    store.client.drop_collection(name)


def test_a_released_collection_is_loaded_again(opened: Opened) -> None:
    store = opened()
    store.add([node("a")])
    store.client.release_collection(str(store.describe()["collection"]))
    assert ids(store) == ["a"]


def test_more_hits_than_milvus_returns_are_refused(store: MilvusStore) -> None:
    store.add([node("a")])
    assert ids(store, similarity_top_k=16_384) == ["a"]
    with pytest.raises(ConfigurationError, match="16384"):
        ids(store, similarity_top_k=16_385)


def test_words_that_are_no_words_to_milvus_are_found(store: MilvusStore) -> None:
    store.add([node("c", text="C++ by example"), node("d", text="D by example")])
    assert ids(store, mode=VectorStoreQueryMode.SPARSE, query_str="c++") == ["c"]


def test_is_empty_and_ne_see_missing_fields(store: MilvusStore) -> None:
    store.add([node("a", k="x"), node("b"), node("c", k=[])])
    empty = MetadataFilter(key="k", operator=FilterOperator.IS_EMPTY, value=None)
    other = MetadataFilter(key="k", operator=FilterOperator.NE, value="x")
    assert ids(store, filters=MetadataFilters(filters=[empty])) == ["b", "c"]
    assert ids(store, filters=MetadataFilters(filters=[other])) == ["b", "c"]
