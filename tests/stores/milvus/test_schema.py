"""A collection: its schema and settings, and nodes that do not fit into Milvus."""

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from tests.stores.store_contract import MODES, found, node, where

pytestmark = pytest.mark.slow

Opened = Callable[..., MilvusStore]


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
    assert found(store, filters=where("tenant_id", "t1"), similarity_top_k=30) == sorted(
        each.node_id for each in nodes if each.metadata["tenant_id"] == "t1"
    )
    assert len(found(store, MODES.TEXT_SEARCH, similarity_top_k=30)) == 30
    index = store.client.describe_index(store.describe()["collection"], "dense")
    assert index["index_type"] == params.get("index_params", index)["index_type"]
    fields = store.client.describe_collection(store.describe()["collection"])["fields"]
    assert any(field.get("is_partition_key") for field in fields) is params.get("by_tenant", False)


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
    assert found(store) == ["a"]


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
def test_a_node_that_does_not_fit_into_milvus_is_refused_by_id(
    store: MilvusStore, odd: TextNode
) -> None:
    with pytest.raises(ConfigurationError, match=r"odd|empty id"):
        store.add([node("a"), odd])
    assert store.count() == 0
