"""A store of ours from making it to clearing it, on every Qdrant there is."""

import asyncio
import gc
import math
from pathlib import Path

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from qdrant_client import QdrantClient, models

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    InvalidFilterError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.engine.backend import Candidate, Search, hybrid_queries
from llama_retrieval_ext.stores.qdrant.store import (
    QdrantBackend,
    QdrantStore,
    backend_of,
    open_qdrant,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import each_case
from tests.stores.qdrant.fake_server import FakeServer
from tests.stores.qdrant.fixtures import Open


def node(name: str, embedding: list[float] | None = None, **metadata: object) -> TextNode:
    return TextNode(
        id_=name,
        text=f"text of {name}",
        embedding=embedding or [1.0, 0.0],
        metadata=metadata,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{name[0]}.md")},
    )


def ids(store: QdrantStore) -> list[str]:
    return [each.node_id for each in store.get_nodes()]


def color(value: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key="color", value=value)])


def test_a_new_store_is_empty_and_answers_before_the_first_node(store: QdrantStore) -> None:
    assert store.count() == 0
    assert store.get_nodes() == []
    assert store.dimension is None
    store.delete("no.md")
    store.delete_nodes(["no"])
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    backend = QdrantBackend(store)
    assert backend.keyword("leave", Search(3)).function() == []
    assert backend.batch(hybrid_queries([1.0], "leave", Search(3))).function() == [[], []]


def test_nodes_are_added_read_replaced_and_deleted(store: QdrantStore) -> None:
    assert store.add([node("a1", color="red"), node("a2", color="blue"), node("b1")]) == [
        "a1",
        "a2",
        "b1",
    ]
    assert store.count() == 3
    assert store.dimension == 2
    (read,) = store.get_nodes(["a1"])
    assert read == node("a1", color="red")
    store.add([node("a1", [0.0, 2.0], color="green")])
    assert store.count() == 3
    assert store.get_nodes(["a1"])[0].metadata == {"color": "green"}
    assert store.get_nodes(["a1"])[0].embedding == pytest.approx([0.0, 1.0])
    store.delete("a.md")
    assert ids(store) == ["b1"]


def test_nodes_come_in_the_order_asked_for(store: QdrantStore) -> None:
    store.add([node(name) for name in "cab"])
    assert ids(store) == ["a", "b", "c"]
    found = store.get_nodes(["c", "none", "a"])
    assert [each.node_id for each in found] == ["c", "a"]
    assert store.get_nodes([]) == []


def test_more_nodes_than_a_page_come_back(store: QdrantStore) -> None:
    names = [f"n{number:04}" for number in range(520)]
    store.add([node(name) for name in names])
    assert ids(store) == names


def test_deleting_takes_what_has_the_id_and_satisfies_the_filter(store: QdrantStore) -> None:
    store.add([node("a", color="red"), node("b", color="red"), node("c", color="blue")])
    either = MetadataFilters(
        filters=[*color("red").filters, *color("blue").filters], condition=FilterCondition.OR
    )
    store.delete_nodes(["a"], either)
    assert ids(store) == ["b", "c"]
    store.delete_nodes(["b"], color("blue"))
    store.delete_nodes([])
    assert ids(store) == ["b", "c"]
    store.delete_nodes(filters=color("blue"))
    assert ids(store) == ["b"]


def test_deleting_without_a_target_is_refused(store: QdrantStore) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match="clear"):
        store.delete_nodes()
    with pytest.raises(ConfigurationError, match="id of a document"):
        store.delete("")
    with pytest.raises(InvalidFilterError, match="empty group"):
        store.delete_nodes(filters=MetadataFilters(filters=[]))
    nothing = MetadataFilters(filters=color("red").filters, condition=None)
    with pytest.raises(InvalidFilterError, match="condition=None"):
        store.delete_nodes(filters=nothing)
    with pytest.raises(ConfigurationError, match="no options shard"):
        store.delete("a.md", shard=1)
    assert store.count() == 1


def test_a_cleared_store_takes_nodes_of_another_dimension(store: QdrantStore) -> None:
    store.add([node("a")])
    store.clear()
    assert store.count() == 0
    assert store.dimension is None
    store.add([node("b", [1.0, 0.0, 0.0])])
    assert ids(store) == ["b"]
    assert store.dimension == 3


def test_another_handle_sees_what_one_adds_and_survives_that_one_clears(
    opened: Open, url: str
) -> None:
    if url == "qdrant::memory:":
        return  # every one of these is its own
    first, second = opened(), opened()
    first.add([node("a")])
    assert ids(second) == ["a"]
    first.clear()
    assert second.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    second.add([node("b")])
    assert ids(first) == ["b"]
    first.clear()
    second.add([node("c")])  # though it still takes the collection to be there
    assert ids(first) == ["c"]


def test_a_store_keeps_its_nodes_and_settings_when_it_is_opened_again(
    opened: Open, url: str
) -> None:
    if url == "qdrant::memory:":
        return
    tokenizer = Tokenizer(language="german")
    first = opened(tokenizer=tokenizer, distance="euclid")
    first.add([node("a", color="red"), node("b")])
    first.close()
    again = opened()
    assert ids(again) == ["a", "b"]
    assert again.tokenizer == tokenizer
    assert (again.distance, again.dimension) == ("euclid", 2)
    assert QdrantBackend(again).keyword("text of a", Search(5)).function()
    with pytest.raises(ConfigurationError, match="distance='euclid'"):
        opened(distance="cosine")
    with pytest.raises(DimensionMismatchError, match="dimension 2"):
        opened(dim=3)
    with pytest.raises(ConfigurationError, match="tokenizer"):
        opened(tokenizer=Tokenizer(language="french"))


def test_an_embedding_that_does_not_fit_is_refused_before_anything_is_stored(
    store: QdrantStore,
) -> None:
    store.add([node("a")])
    with pytest.raises(DimensionMismatchError, match="dimension 3"):
        store.add([node("b"), node("c", [1.0, 0.0, 0.0])])
    with pytest.raises(ConfigurationError, match="not finite"):
        store.add([node("b"), node("c", [math.nan, 0.0])])
    bare = node("c")
    bare.embedding = None
    with pytest.raises(ConfigurationError, match="no embedding"):
        store.add([node("b"), bare])
    assert ids(store) == ["a"]


@pytest.mark.parametrize("name", ["", "not a uuid", "a" * 3000, "中文", 'x" or "1"="1', "\x00"])
def test_any_string_is_an_id(store: QdrantStore, name: str) -> None:
    store.add([TextNode(id_=name, text="t", embedding=[1.0, 0.0]), node("other")])
    (found,) = store.get_nodes([name])
    assert found.node_id == name
    store.delete_nodes([name])
    assert ids(store) == ["other"]


async def test_async_does_what_sync_does(store: QdrantStore) -> None:
    await store.async_add([node("a1", color="red"), node("b1"), node("c1")])
    assert [each.node_id for each in await store.aget_nodes()] == ["a1", "b1", "c1"]
    await store.adelete("c.md")
    await store.adelete_nodes(filters=color("red"))
    result = await store.aquery(VectorStoreQuery(query_embedding=[1.0, 0.0]))
    assert result.ids == ["b1"]
    await store.aclear()
    assert store.count() == 0
    with pytest.raises(ConfigurationError):
        await store.adelete_nodes()


def test_it_works_on_one_event_loop_after_another(store: QdrantStore) -> None:
    backend = QdrantBackend(store)
    for number in range(3):
        asyncio.run(store.async_add([node(f"n{number}")]))
        assert len(asyncio.run(_found(backend))) == number + 1
    assert store.count() == 3


async def _found(backend: QdrantBackend) -> list[Candidate]:
    call = backend.dense([1.0, 0.0], Search(9))
    return call.function() if call.coroutine is None else await call.coroutine()


def test_a_closed_store_says_so(store: QdrantStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreClosedError, match="open it again"):
        store.count()
    with pytest.raises(StoreClosedError):
        QdrantBackend(store).dense([1.0], Search(1))


# The client that is refused leaves its lock file open.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_directory_is_shared_within_the_process_and_closed_with_the_last(tmp_path: Path) -> None:
    url = f"qdrant:{tmp_path}/kb"
    with QdrantStore(url) as first, QdrantStore(url) as second:
        first.add([node("a")])
        assert second.count() == 1
        first.close()
        assert second.count() == 1
    client = QdrantClient(path=str(tmp_path / "kb"))
    assert client.count("nodes").count == 1
    assert "another client" in _refusal(url)
    gc.collect()
    client.close()


def _refusal(url: str) -> str:
    try:
        QdrantStore(url)
    except StoreUnavailableError as error:
        return str(error)
    return "none"


def test_a_collection_of_somebody_else_is_refused(fake: FakeServer) -> None:
    fake.client.create_collection(
        "kb", models.VectorParams(size=2, distance=models.Distance.COSINE)
    )
    with pytest.raises(StoreFormatError, match="not made by this package"):
        QdrantStore(f"qdrant://{fake.host}/kb")


@pytest.mark.parametrize("version", ["1.15.5", "1.9.0", "0.11.2"])
def test_a_server_that_keeps_no_settings_is_refused_before_anything_is_made(
    fake: FakeServer, version: str
) -> None:
    fake.version = version
    with pytest.raises(ConfigurationError, match=r"must be 1\.16 or newer"):
        QdrantStore(f"qdrant://{fake.host}/kb")
    assert {method for method, _, _ in fake.requests} == {"GET"}


@pytest.mark.parametrize("version", ["1.16.0", "2.0.0", "unknown"])
def test_any_other_server_is_taken(fake: FakeServer, version: str) -> None:
    fake.version = version
    with QdrantStore(f"qdrant://{fake.host}/kb") as store:
        assert store.count() == 0


def test_a_collection_of_a_newer_release_is_refused(fake: FakeServer) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    metadata = {"llama_retrieval_ext": {"format": 99}}
    fake.client.create_collection("kb", vectors, metadata=metadata)
    with pytest.raises(StoreFormatError, match="format 99"):
        QdrantStore(f"qdrant://{fake.host}/kb")


def test_settings_of_the_engine_reach_it(fake: FakeServer) -> None:
    params = {
        "hnsw_config": {"m": 32},
        "quantization_config": {"scalar": {"type": "int8"}},
        "on_disk_payload": True,
        "shard_number": 2,
        "vector": {"on_disk": True, "datatype": "float16"},
        "sparse_vector": {"index": {"on_disk": True}},
        "search": {"hnsw_ef": 256, "exact": True},
    }
    with open_qdrant(f"qdrant://{fake.host}/kb", store_params=params) as store:
        store.add([node("a")])
        store.query(VectorStoreQuery(query_embedding=[1.0, 0.0]))
    bodies = {path: body for _, path, body in fake.requests if body}
    created = bodies["/collections/kb"]
    for part in ('"m":32', '"int8"', '"on_disk_payload":true', '"shard_number":2', '"float16"'):
        assert part in created.replace(" ", "")
    searched = next(body for path, body in bodies.items() if "query/batch" in path)
    assert '"hnsw_ef":256' in searched.replace(" ", "")


@each_case(
    "params",
    [
        {"hnsw": {}},
        {"hnsw_config": {"m": "many"}},
        {"vectors": {}},
        {"vector": {"of": 1}},
        {"vector": 3},
        {"search": {"ef": 1}},
    ],
)
def test_settings_that_the_engine_has_not_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="store_params"):
        QdrantStore("qdrant::memory:", store_params=params)


def test_fields_that_are_filtered_by_get_an_index_and_scopes_a_tenants(fake: FakeServer) -> None:
    with QdrantStore(f"qdrant://{fake.host}/kb") as store:
        store.add([node("a", color="red", year=2020, tags=["x"], text="long " * 99, flag=True)])
        store.add([node("b", color="red", size=1.5)])
    made = [body for _, path, body in fake.requests if path.startswith("/collections/kb/index")]
    bodies = "\n".join(made).replace(" ", "")
    assert bodies.count('"is_tenant":true') == 2
    assert '"\\"meta\\".\\"tenant_id\\""' in bodies
    assert bodies.count('"\\"meta\\".\\"color\\""') == 1
    assert '"\\"list\\".\\"tags\\""' in bodies
    assert '"\\"meta\\".\\"text\\""' not in bodies
    assert '"\\"meta\\".\\"flag\\""' not in bodies
    assert len(made) == 3 + 3 + 1


def test_the_backend_of_a_store_is_found() -> None:
    with QdrantStore("qdrant::memory:") as store:
        assert isinstance(backend_of(store), QdrantBackend)


def test_operators_of_filters_work_in_counts(store: QdrantStore) -> None:
    store.add([node("a", year=2020), node("b", year=2024)])
    recent = MetadataFilter(key="year", value=2021, operator=FilterOperator.GTE)
    assert store.count(MetadataFilters(filters=[recent])) == 1
