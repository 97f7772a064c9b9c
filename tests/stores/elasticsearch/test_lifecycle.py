"""A store from the first node to the last, on a real server."""

from collections.abc import Iterator
from typing import Any

import pytest
from elasticsearch import Elasticsearch
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError, StoreFormatError
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.elasticsearch.store import (
    ElasticsearchBackend,
    ElasticsearchVectorStore,
)
from llama_retrieval_ext.stores.engine.backend import Search
from tests.stores.elasticsearch.msearch import Opener
from tests.stores.store_contract import StoreContract


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


@pytest.fixture
def opened(open_store: Opener) -> Iterator[Opener]:
    """Opens one index, as often as needed."""
    stores = [open_store()]

    def again(**settings: Any) -> ElasticsearchVectorStore:
        stores.append(open_store(stores[0].index, **settings))
        return stores[-1]

    yield again
    stores[0].clear()


class TestStore(StoreContract[ElasticsearchVectorStore]):
    ranks_zeros = False  # they have no cosine


def test_an_index_that_is_not_there_yet_is_empty(store: ElasticsearchVectorStore) -> None:
    assert store.count() == 0
    assert store.get_nodes() == []
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    store.delete("nothing")
    store.delete_nodes(["nothing"])
    store.clear()
    with Elasticsearch(store.transport.config.where) as client:
        assert not client.indices.exists(index=store.index)


@pytest.mark.parametrize(
    ("params", "reason"),
    [({"analyzer": "standard"}, "without analyzer"), ({"routing": True}, "many_tenants")],
)
def test_settings_that_do_not_fit_are_refused_at_opening(
    open_store: Opener, store: ElasticsearchVectorStore, params: dict[str, Any], reason: str
) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match=reason):
        open_store(store.index, store_params=params)


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


def test_metadata_that_cannot_be_stored_is_refused_and_nothing_is_written(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([node("a")])
    with pytest.raises(ConfigurationError, match="cannot be stored"):
        store.add([node("b"), node("odd", lock=object())])
    assert ids(store) == ["a"]


def test_an_index_that_somebody_deleted_is_made_anew_with_our_mapping(
    store: ElasticsearchVectorStore,
) -> None:
    store.add([node("a")])
    with Elasticsearch(store.transport.config.where) as client:
        client.indices.delete(index=store.index)
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == []
    store.add([node("b")])
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).ids == ["b"]


def test_settings_in_the_form_of_create_index_reach_the_index(open_store: Opener) -> None:
    vector = {
        "type": "dense_vector",
        "dims": 2,
        "similarity": "cosine",
        "index_options": {"type": "int8_hnsw", "m": 8},
    }
    body = {
        "settings": {"index": {"number_of_shards": 2}, "index.refresh_interval": "5s"},
        "mappings": {"properties": {"embedding": vector}},
    }
    store = open_store(store_params={"body": body})
    store.add([node("a")])
    found = store.client.indices.get(index=store.index)[store.index]
    assert found["settings"]["index"]["refresh_interval"] == "5s"
    assert found["settings"]["index"]["number_of_shards"] == "2"
    assert found["settings"]["index"]["number_of_replicas"] == "0"
    assert found["mappings"]["properties"]["vector"]["index_options"]["m"] == 8


@pytest.mark.parametrize(
    ("vector", "reason"),
    [({"similarity": "l2_norm"}, "distance='euclid'"), ({"dims": 3}, "takes 2; leave dims out")],
    ids=str,
)
def test_a_vector_field_that_contradicts_the_store_is_refused(
    open_store: Opener, vector: dict[str, object], reason: str
) -> None:
    field = {"type": "dense_vector", **vector}
    body = {"mappings": {"properties": {"embedding": field}}}
    with pytest.raises((ConfigurationError, DimensionMismatchError), match=reason):
        open_store(store_params={"body": body}).add([node("a")])


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
