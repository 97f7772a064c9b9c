"""Collections: their settings, and those that are refused."""

from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.store import QdrantStore, open_qdrant
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.cases import cases
from tests.stores.store_contract import node

pytestmark = pytest.mark.slow


def test_settings_of_the_engine_reach_it(new_url: str) -> None:
    params = {
        "hnsw_config": {"m": 32},
        "quantization_config": {"scalar": {"type": "int8"}},
        "on_disk_payload": True,
        "shard_number": 2,
        "vector": {"on_disk": True, "datatype": "float16"},
        "sparse_vector": {"index": {"on_disk": True}},
        "search": {"hnsw_ef": 256, "exact": True},
    }
    with open_qdrant(new_url, store_params=params) as store:
        store.add([node("a")])
        made: Any = store.client.get_collection(new_url.rpartition("/")[2]).config
        search: Any = store.vector_search([1.0, 0.0], Search(3))
    dense = made.params.vectors["dense"]
    assert made.hnsw_config.m == 32
    assert made.quantization_config.scalar.type == "int8"
    assert (made.params.on_disk_payload, made.params.shard_number) == (True, 2)
    assert (dense.on_disk, dense.datatype) == (True, "float16")
    assert made.params.sparse_vectors["bm25"].index.on_disk
    assert (search.params.hnsw_ef, search.params.exact) == (256, True)


@cases(
    "params",
    [
        {"hnsw": {}},
        {"hnsw_config": {"m": "many"}},
        {"vectors": {}},
        {"vector": {"of": 1}},
        {"vector": 3},
        {"search": {"ef": 1}},
        {"vector": {"distance": "Dot"}},
        {"vector": {"size": 3}},
        {"sparse_vector": {"modifier": "none"}},
    ],
)
def test_settings_unknown_to_the_engine_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="store_params"):
        QdrantStore("qdrant::memory:", store_params=params)


def test_metadata_fields_get_an_index_and_those_of_scopes_a_tenant_index(new_url: str) -> None:
    with QdrantStore(new_url) as store:
        store.add([node("a", color="red", year=2020, tags=["x"], text="long " * 99, flag=True)])
        store.add([node("b", color="red", size=1.5)])
        schema = store.client.get_collection(new_url.rpartition("/")[2]).payload_schema
    made = {name.replace('"', ""): field for name, field in schema.items()}
    fields = ["doc", "allowed", "meta.tenant_id", "meta.kb_id", "meta.color", "meta.year"]
    assert sorted(made) == sorted([*fields, "list.tags", "meta.size"])
    tenants = [name for name, field in made.items() if getattr(field.params, "is_tenant", False)]
    assert sorted(tenants) == ["meta.kb_id", "meta.tenant_id"]


def test_a_collection_of_somebody_else_is_refused(new_url: str, server: str) -> None:
    vectors = models.VectorParams(size=2, distance=models.Distance.COSINE)
    QdrantClient(server).create_collection(new_url.rpartition("/")[2], vectors)
    with pytest.raises(StoreFormatError, match="not made by this package"):
        QdrantStore(new_url)


def test_a_collection_of_a_newer_release_is_refused(new_url: str, server: str) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    metadata = {"llama_retrieval_ext": {"format": 99}}
    QdrantClient(server).create_collection(new_url.rpartition("/")[2], vectors, metadata=metadata)
    with pytest.raises(StoreFormatError, match="format 99"):
        QdrantStore(new_url)


def test_a_tokenizer_of_another_release_is_named(new_url: str, server: str) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    tokenizer = {**Tokenizer().to_dict(), "stemmer": "new"}
    metadata = {"llama_retrieval_ext": {"format": 5, "tokenizer": tokenizer}}
    QdrantClient(server).create_collection(new_url.rpartition("/")[2], vectors, metadata=metadata)
    with pytest.raises(ConfigurationError, match="recorded by another release"):
        QdrantStore(new_url)
