"""A store from the first node to the last, on a real server."""

import asyncio
import math
from typing import Any

import pytest
from elasticsearch import Elasticsearch
from llama_index.core.schema import Document, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreClosedError,
    StoreFormatError,
    UnsupportedModeError,
)
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.stores.elasticsearch.msearch import Opener

LONG_ID = "ä" * 4000


def node(id_: str, *, document: str = "", **metadata: object) -> TextNode:
    relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {}
    return TextNode(
        id_=id_,
        text=f"about {id_}",
        embedding=[0.6, 0.8],
        metadata=metadata,
        relationships=relationships,
    )


def only(key: str, value: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value)])


def ids(store: ElasticsearchVectorStore) -> list[str]:
    return [each.node_id for each in store.get_nodes()]


def test_an_index_that_is_not_there_yet_is_empty(store: ElasticsearchVectorStore) -> None:
    assert store.count() == 0
    assert store.get_nodes() == []
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    store.delete("nothing")
    store.delete_nodes(["nothing"])
    store.clear()
    with Elasticsearch(store.transport.config.where) as client:
        assert not client.indices.exists(index=store.index)


def test_nodes_come_back_as_they_went_in_with_their_embeddings(
    store: ElasticsearchVectorStore,
) -> None:
    nodes = [
        node("a", document="doc", tags=["x"], year=2024, nothing=None, nan=math.inf),
        IndexNode(id_="b", index_id="table", text="", embedding=[1.0, 0.0]),
        Document(id_="c", text="lone \ud800 surrogate", embedding=[0.0, 1.0]),
        node(LONG_ID, lang="en"),
        node("sha256:" + "0" * 64),
    ]
    assert store.add(nodes) == [each.node_id for each in nodes]
    back = store.get_nodes([each.node_id for each in nodes])
    for given, got in zip(nodes, back, strict=True):
        assert got.embedding == pytest.approx(given.embedding)
        assert got.model_copy(update={"embedding": None}) == given.model_copy(
            update={"embedding": None}
        )


def test_get_nodes_keeps_the_order_of_the_ids_and_leaves_missing_ones_out(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([node(id_, kind=id_) for id_ in "abc"])
    assert [each.node_id for each in store.get_nodes(["c", "x", "a", "c"])] == ["c", "a"]
    assert store.get_nodes([]) == []
    assert [each.node_id for each in store.get_nodes(["c", "a"], only("kind", "a"))] == ["a"]
    assert ids(store) == ["a", "b", "c"]


def test_a_node_with_the_same_id_replaces_the_old_one(store: ElasticsearchVectorStore) -> None:
    store.add([node("a", version="1"), node("b")])
    store.add([node("a", version="2"), node("a", version="3")])
    assert store.count() == 2
    assert store.count(only("version", "3")) == 1


def test_nodes_are_deleted_by_id_by_document_and_by_filter(store: ElasticsearchVectorStore) -> None:
    store.add([node(f"{n}", document=f"d{n % 3}", parity=f"{n % 2}") for n in range(9)])
    store.delete("d0")
    assert ids(store) == ["1", "2", "4", "5", "7", "8"]
    store.delete_nodes(["1", "2"], only("parity", "1"))
    assert ids(store) == ["2", "4", "5", "7", "8"]
    store.delete_nodes(filters=only("parity", "0"))
    assert ids(store) == ["5", "7"]
    store.delete_nodes([])
    assert ids(store) == ["5", "7"]
    store.delete_nodes(["5"])
    assert ids(store) == ["7"]


def test_many_nodes_are_read_and_deleted_by_pages(store: ElasticsearchVectorStore) -> None:
    store.add([node(f"{n:05}", parity=f"{n % 2}") for n in range(2500)])
    assert ids(store) == [f"{n:05}" for n in range(2500)]
    store.delete_nodes(filters=only("parity", "0"))
    assert store.count() == 1250


def test_to_delete_without_a_target_is_refused(store: ElasticsearchVectorStore) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match="clear"):
        store.delete_nodes()
    with pytest.raises(ConfigurationError, match="id of a document"):
        store.delete("")
    assert store.count() == 1


def test_async_does_what_sync_does(store: ElasticsearchVectorStore) -> None:
    async def live() -> list[str]:
        await store.async_add([node(id_, document=f"d{id_}", kind=id_) for id_ in "abcd"])
        await store.adelete("da")
        await store.adelete_nodes(["b"])
        found = await store.aquery(VectorStoreQuery(query_embedding=[0.6, 0.8], similarity_top_k=9))
        assert found.ids == [each.node_id for each in await store.aget_nodes()]
        return found.ids or []

    assert asyncio.run(live()) == ["c", "d"]
    asyncio.run(store.aclear())
    assert asyncio.run(store.aget_nodes()) == []


def test_a_store_that_is_opened_again_has_what_was_added(
    open_store: Opener, store: ElasticsearchVectorStore
) -> None:
    store.add([node("a")])
    again = open_store(store.index)
    assert ids(again) == ["a"]
    assert (again.dimension, again.distance) == (2, "cosine")
    assert again.tokenizer == store.tokenizer


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"dim": 3}, DimensionMismatchError, "dimension 2, not 3"),
        ({"distance": "dot"}, ConfigurationError, "distance='cosine'"),
        ({"tokenizer": Tokenizer(language="german")}, ConfigurationError, "german"),
        ({"store_params": {"analyzer": "standard"}}, ConfigurationError, "analyzer=None"),
        ({"store_params": {"routing": True}}, ConfigurationError, "routing=False"),
    ],
)
def test_what_does_not_fit_the_index_is_refused_at_opening(
    open_store: Opener,
    store: ElasticsearchVectorStore,
    options: dict[str, Any],
    error: type[Exception],
    told: str,
) -> None:
    store.add([node("a")])
    with pytest.raises(error, match=told):
        open_store(store.index, **options)


def test_an_index_that_is_none_of_ours_is_refused_and_stays(
    open_store: Opener, store: ElasticsearchVectorStore
) -> None:
    name = store.index
    with Elasticsearch(store.transport.config.where) as client:
        client.indices.create(index=name)
        with pytest.raises(StoreFormatError, match="not made by this package"):
            open_store(name)
        with pytest.raises(StoreFormatError, match="not made by this package"):
            store.clear()
        assert client.indices.exists(index=name)
        client.indices.delete(index=name)


def test_nodes_that_do_not_fit_are_refused_and_nothing_is_written(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([node("a")])
    odd = TextNode(id_="odd", text="", embedding=[1.0, 0.0, 0.0])
    with pytest.raises(DimensionMismatchError, match="'odd'"):
        store.add([node("b"), odd])
    for embedding in ([math.nan, 1.0], [math.inf, 1.0], None):
        with pytest.raises(ConfigurationError, match="'odd'"):
            store.add([node("b"), TextNode(id_="odd", embedding=embedding)])
    with pytest.raises(ConfigurationError, match="cannot be stored"):
        store.add([node("b"), node("odd", lock=object())])
    assert ids(store) == ["a"]


def test_after_clear_another_dimension_may_come(store: ElasticsearchVectorStore) -> None:
    store.add([node("a")])
    store.clear()
    assert store.count() == 0
    store.add([TextNode(id_="b", embedding=[1.0, 0.0, 0.0])])
    assert store.dimension == 3
    assert ids(store) == ["b"]


def test_an_index_that_somebody_deleted_is_made_anew_with_our_mapping(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([node("a")])
    with Elasticsearch(store.transport.config.where) as client:
        client.indices.delete(index=store.index)
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    store.add([node("b")])
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == ["b"]


def test_a_closed_store_says_so(store: ElasticsearchVectorStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.count()
    with pytest.raises(StoreClosedError):
        asyncio.run(store.aget_nodes())


def test_a_mode_that_is_not_served_is_refused(store: ElasticsearchVectorStore) -> None:
    with pytest.raises(UnsupportedModeError, match="MMR"):
        store.query(VectorStoreQuery(query_embedding=[1.0, 0.0], mode=VectorStoreQueryMode.MMR))


def test_the_users_settings_and_fields_get_into_the_index(open_store: Opener) -> None:
    own = {"settings": {"refresh_interval": "5s"}, "properties": {"extra": {"type": "keyword"}}}
    options = {"index_options": {"type": "int8_hnsw", "m": 8}, **own}
    store = open_store(store_params=options)
    store.add([node("a")])
    told = store.client.indices.get(index=store.index)[store.index]
    assert told["settings"]["index"]["refresh_interval"] == "5s"
    properties = told["mappings"]["properties"]
    assert properties["extra"]["type"] == "keyword"
    assert properties["vector"]["index_options"]["m"] == 8
    assert told["settings"]["index"]["number_of_replicas"] == "0"


def test_a_field_of_ours_is_not_replaced(open_store: Opener) -> None:
    store = open_store(store_params={"properties": {"vector": {"type": "keyword"}}})
    with pytest.raises(ConfigurationError, match="vector"):
        store.add([node("a")])


def test_a_node_that_moves_to_another_tenant_is_there_once(open_store: Opener) -> None:
    store = open_store(store_params={"number_of_shards": 3, "routing": True})
    for tenant in ("acme", "globex", "initech", "umbrella"):
        store.add([node("a", tenant_id=tenant), node(f"of-{tenant}", tenant_id=tenant)])
    assert store.count() == 5
    for tenant in ("acme", "globex", "initech", "umbrella"):
        scope = Scope(tenant)
        search = Search(10, scope.condition, scope)
        found = ElasticsearchBackend(store).keyword("about", search).function()
        expected = {f"of-{tenant}"} | ({"a"} if tenant == "umbrella" else set())
        assert {each.node_id for each in found} == expected
    store.delete_nodes(["a", "of-acme"])
    assert store.count() == 3
