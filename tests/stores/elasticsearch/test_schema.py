"""Creation of an index: its settings, its mapping, and which indices are refused."""

import pytest
from elasticsearch import Elasticsearch
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError, StoreFormatError
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from tests.stores.elasticsearch.msearch import Opener
from tests.stores.store_contract import node

pytestmark = pytest.mark.slow


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
