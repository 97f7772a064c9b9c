"""Create, open, reopen, count, get, upsert, delete, clear: in a file and on a server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from pymilvus import DataType

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreClosedError,
    StoreFormatError,
    UnsupportedModeError,
)
from llama_retrieval_ext.stores.milvus.schema import (
    PROPERTY,
    MilvusConfig,
    MilvusParams,
    indexes_of,
    schema_of,
)
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from llama_retrieval_ext.text.tokenizer import Tokenizer

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


def test_a_new_store_is_empty(opened: Opened) -> None:
    store = opened()
    assert store.count() == 0
    assert store.get_nodes() == []
    assert store.dimension is None
    assert ids(store) == ids(store, mode=VectorStoreQueryMode.SPARSE) == []
    store.delete_nodes(["a"])
    store.delete("a.md")
    store.clear()
    assert store.add([]) == []


def test_nodes_are_there_after_reopening(opened: Opened) -> None:
    first = opened()
    first.add([node("a", k=1), node("b", k=2)])
    first.close()
    again = opened()
    assert ids(again) == ["a", "b"]
    assert ids(again, mode=VectorStoreQueryMode.SPARSE) == ["a", "b"]
    assert again.count(only("k", 2)) == 1
    assert again.dimension == 2


def test_many_nodes_are_there_after_reopening(opened: Opened) -> None:
    first = opened()
    nodes = [node(f"n{number:04}", even=number % 2) for number in range(1300)]
    assert first.add(nodes) == [each.node_id for each in nodes]
    first.close()
    again = opened()
    assert again.count() == 1300
    assert [each.node_id for each in again.get_nodes()] == [each.node_id for each in nodes]
    assert again.count(only("even", 1)) == 650
    assert ids(again, similarity_top_k=3) == ["n0000", "n0001", "n0002"]  # all tie


def test_adding_a_node_again_replaces_it_whole(opened: Opened) -> None:
    store = opened()
    store.add([node("a", text="leave", tenant_id="acme", old="x")])
    store.add([node("a", text="travel", new=1), node("a", text="lunch")])
    assert store.count() == 1
    assert store.get_nodes(["a"])[0].get_content() == "lunch"
    for filters in (only("old", "x"), only("new", 1), only("tenant_id", "acme")):
        assert store.count(filters) == 0
    assert ids(store, mode=VectorStoreQueryMode.SPARSE) == []
    store.persist()
    assert store.count() == len(store.get_nodes()) == 1


def test_nodes_come_in_the_order_of_their_ids_with_their_embeddings(opened: Opened) -> None:
    store = opened()
    store.add([node("a"), node("b"), node("c")])
    got = store.get_nodes(["c", "zz", "a", "c"])
    assert [each.node_id for each in got] == ["c", "a"]
    assert got[0].embedding == [1.0, 0.5]
    assert store.get_nodes([]) == []
    assert store.get_nodes(["a", "b"], filters=only("k", 1)) == []


def test_deleting_removes_what_is_named_and_nothing_else(opened: Opened) -> None:
    store = opened()
    store.add([node("a", doc="x.md", k=1), node("b", doc="y.md", k=1), node("c", doc="y.md", k=2)])
    store.add([node("d")])
    store.delete_nodes(["a", "c"], only("k", 2))
    assert ids(store) == ["a", "b", "d"]
    store.delete_nodes([])
    store.delete_nodes(filters=only("k", 99))
    store.delete("none.md")
    assert store.count() == 3
    store.delete("y.md")
    assert ids(store) == ["a", "d"]
    store.delete_nodes(["d"])
    assert [each.node_id for each in store.get_nodes()] == ["a"]


def test_deleting_without_a_target_is_refused(opened: Opened) -> None:
    store = opened()
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match="clear"):
        store.delete_nodes()
    with pytest.raises(ConfigurationError):
        store.delete_nodes(filters=MetadataFilters(filters=[]))
    with pytest.raises(ConfigurationError, match="document"):
        store.delete("")
    assert store.count() == 1


def test_a_cleared_store_takes_nodes_of_another_dimension(opened: Opened) -> None:
    store = opened()
    store.add([node("a")])
    store.clear()
    assert store.count() == 0
    assert ids(store) == []
    store.add([TextNode(id_="b", text="leave", embedding=[1.0, 0.0, 0.0])])
    assert store.dimension == 3
    assert ids(store, query_embedding=[1.0, 0.0, 0.0]) == ["b"]


def test_what_another_store_clears_is_gone_here_too(opened: Opened) -> None:
    first, second = opened(), opened()
    first.add([node("a")])
    assert ids(second) == ["a"]
    second.clear()
    assert ids(first) == []
    first.add([node("b")])
    assert second.count() == 1


def test_nodes_added_after_another_store_cleared_are_not_lost(opened: Opened) -> None:
    first, second = opened(), opened()
    first.add([node("a")])
    second.clear()
    first.add([node("b")])
    assert ids(first) == ids(second) == ["b"]


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
    ("asked", "error"),
    [
        ({"dim": 3}, DimensionMismatchError),
        ({"distance": "dot"}, ConfigurationError),
        ({"tokenizer": Tokenizer(language="german")}, ConfigurationError),
        ({"store_params": {"by_tenant": True}}, ConfigurationError),
        ({"store_params": {"hnsw": 1}}, ConfigurationError),
        ({"distance": "hamming"}, ConfigurationError),
        ({"dim": 0}, ConfigurationError),
    ],
)
def test_a_store_that_does_not_fit_is_refused_at_open(
    opened: Opened, asked: dict[str, object], error: type[Exception]
) -> None:
    opened().add([node("a")])
    with pytest.raises(error):
        opened(**asked)


def test_embeddings_that_do_not_fit_are_refused_and_nothing_is_written(opened: Opened) -> None:
    store = opened(dim=2)
    for embedding in ([1.0], [1.0, float("nan")], None):
        with pytest.raises((ConfigurationError, DimensionMismatchError), match="'b'"):
            store.add([node("a"), TextNode(id_="b", embedding=embedding)])
    assert store.count() == 0


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
    ("distance", "scores"),
    [("cosine", [1.0, 0.6]), ("dot", [2.0, 1.2]), ("euclid", [-1.0, -(0.8**0.5)])],
)
def test_higher_is_better_for_every_distance(
    opened: Opened, distance: str, scores: list[float]
) -> None:
    store = opened(distance=distance)
    store.add([TextNode(id_="a", embedding=[2.0, 0.0]), TextNode(id_="b", embedding=[1.2, 1.6])])
    result = store.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=2))
    found = dict(zip(result.ids or [], result.similarities or [], strict=True))
    expected = dict(zip("ab", scores, strict=True))
    if distance == "euclid":
        expected = {"a": -1.0, "b": -((0.2**2 + 1.6**2) ** 0.5)}
    assert found == pytest.approx(expected, abs=1e-5)
    assert result.similarities == sorted(result.similarities or [], reverse=True)


@pytest.mark.parametrize(
    "params",
    [
        {"index_type": "HNSW", "index_params": {"M": 8, "efConstruction": 64}},
        {"index_type": "IVF_FLAT", "index_params": {"nlist": 2}, "search_params": {"nprobe": 2}},
        {"by_tenant": True, "num_partitions": 4},
        {"analyzer_params": {"tokenizer": "standard"}},
    ],
    ids=str,
)
def test_store_params_reach_the_engine(opened: Opened, params: dict[str, object]) -> None:
    store = opened(store_params=params)
    nodes = [node(f"n{number}", tenant_id=f"t{number % 3}") for number in range(30)]
    store.add(nodes)
    assert ids(store, filters=only("tenant_id", "t1"), similarity_top_k=30) == sorted(
        each.node_id for each in nodes if each.metadata["tenant_id"] == "t1"
    )
    assert len(ids(store, mode=VectorStoreQueryMode.TEXT_SEARCH, similarity_top_k=30)) == 30
    index = store.client.describe_index(store.describe()["collection"], "dense")
    assert index["index_type"] == params.get("index_type", index["index_type"])
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


def test_modes_that_are_not_served_are_refused(store: MilvusStore) -> None:
    store.add([node("a")])
    assert ids(store, mode=VectorStoreQueryMode.HYBRID) == ["a"]
    assert ids(store, mode=VectorStoreQueryMode.HYBRID, alpha=0.3) == ["a"]
    for mode in (VectorStoreQueryMode.MMR, VectorStoreQueryMode.SEMANTIC_HYBRID):
        with pytest.raises(UnsupportedModeError):
            ids(store, mode=mode)
    with pytest.raises(ConfigurationError, match="query_str"):
        ids(store, mode=VectorStoreQueryMode.SPARSE, query_str=None)
    with pytest.raises(ConfigurationError, match="query_embedding"):
        ids(store, query_embedding=None)
    with pytest.raises(ConfigurationError, match="output_fields"):
        ids(store, output_fields=["node"])


def test_more_hits_than_milvus_returns_are_refused(store: MilvusStore) -> None:
    store.add([node("a")])
    assert ids(store, similarity_top_k=16_384) == ["a"]
    with pytest.raises(ConfigurationError, match="16384"):
        ids(store, similarity_top_k=16_385)


def test_doc_ids_and_node_ids_narrow_a_query(store: MilvusStore) -> None:
    store.add([node("a", doc="x.md"), node("b", doc="x.md"), node("c")])
    assert ids(store, doc_ids=["x.md"]) == ["a", "b"]
    assert ids(store, doc_ids=["x.md"], node_ids=["b", "c"]) == ["b"]
    assert ids(store, node_ids=[]) == ["a", "b", "c"]
    assert ids(store, doc_ids=[]) == []
    assert ids(store, doc_ids=[""]) == []


def test_every_event_loop_can_use_a_store(store: MilvusStore) -> None:
    async def all_of_it(node_id: str) -> list[str]:
        await store.async_add([node(node_id)])
        query = VectorStoreQuery(query_embedding=[1.0, 0.5], similarity_top_k=5)
        found = (await store.aquery(query)).ids or []
        assert [each.node_id for each in await store.aget_nodes([node_id])] == [node_id]
        await store.adelete_nodes([node_id])
        await store.adelete("none.md")
        return found

    assert asyncio.run(all_of_it("a")) == ["a"]
    assert asyncio.run(all_of_it("b")) == ["b"]
    asyncio.run(store.aclear())
    assert store.count() == 0


def test_a_closed_store_says_so(store: MilvusStore) -> None:
    store.add([node("a")])
    store.close()
    store.close()
    for use in (store.count, store.get_nodes, lambda: ids(store), lambda: store.add([node("b")])):
        with pytest.raises(StoreClosedError):
            use()


def test_words_that_are_no_words_to_milvus_are_found(store: MilvusStore) -> None:
    store.add([node("c", text="C++ by example"), node("d", text="D by example")])
    assert ids(store, mode=VectorStoreQueryMode.SPARSE, query_str="c++") == ["c"]


def test_is_empty_and_ne_see_missing_fields(store: MilvusStore) -> None:
    store.add([node("a", k="x"), node("b"), node("c", k=[])])
    empty = MetadataFilter(key="k", operator=FilterOperator.IS_EMPTY, value=None)
    other = MetadataFilter(key="k", operator=FilterOperator.NE, value="x")
    assert ids(store, filters=MetadataFilters(filters=[empty])) == ["b", "c"]
    assert ids(store, filters=MetadataFilters(filters=[other])) == ["b", "c"]


def test_a_collection_with_the_column_of_an_older_release_goes_on(opened: Opened) -> None:
    first = opened()
    name, lite = str(first.describe()["collection"]), first.searcher.is_lite
    config = MilvusConfig(dimension=2)
    columns = schema_of(config, lite=lite)
    columns.add_field("doc_key", DataType.VARCHAR, max_length=32)
    first.client.create_collection(name, schema=columns, properties={PROPERTY: config.to_text()})
    first.client.create_index(name, indexes_of(config, MilvusParams(), lite=lite))
    store = opened()
    store.add([node("a", k="x")])
    store.add([node("b"), node("a", k="y")])
    assert [each.metadata for each in store.get_nodes(["a", "b"])] == [{"k": "y"}, {}]
    assert ids(store) == sorted(ids(store, mode=VectorStoreQueryMode.SPARSE)) == ["a", "b"]
