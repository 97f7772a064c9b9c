"""Settings of an engine when a store is opened again, and stores beside others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.open import open_store
from tests.knowledge_base.engines import place, start
from tests.servers.elasticsearch import elasticsearch_url

__all__ = ["elasticsearch_url"]

pytestmark = pytest.mark.slow
Open = Callable[..., EngineStore]

# By engine: what a collection is made with, what differs from it, and what is of searches alone.
MADE: dict[str, dict[str, Any]] = {
    "qdrant": {"hnsw_config": {"m": 32}, "vector": {"on_disk": True}},
    "qdrant-server": {"hnsw_config": {"m": 32}, "vector": {"on_disk": True}},
    "milvus": {
        "index_params": {
            "index_type": "HNSW",
            "metric_type": "COSINE",
            "params": {"M": 8, "efConstruction": 64},
        }
    },
    "elasticsearch": {"number_of_shards": 2, "index_options": {"type": "int8_hnsw", "m": 8}},
}
OTHER: dict[str, list[dict[str, Any]]] = {
    "qdrant": [{"hnsw_config": {"m": 16}}, {"vector": {"on_disk": False}}, {"shard_number": 2}],
    "milvus": [
        {"index_params": {"index_type": "FLAT"}},
        {"index_params": {"index_type": "HNSW", "params": {"M": 16}}},
        {"consistency_level": "Strong"},
        {"by_tenant": True},
    ],
    "elasticsearch": [
        {"number_of_shards": 3},
        {"number_of_replicas": 1},
        {"index_options": {"type": "hnsw"}},
        {"settings": {"refresh_interval": "5s"}},
        {"routing": True},
    ],
}
OF_SEARCHES: dict[str, dict[str, Any]] = {
    "qdrant-server": {"search": {"exact": True}},
    "milvus": {"search_params": {"ef": 200}},
    "elasticsearch": {"num_candidates": 50},
}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    start(name, request)
    return name


@pytest.fixture
def opened(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    stores: list[EngineStore] = []
    with place(engine, tmp_path, request) as url:

        def open_(params: dict[str, Any] | None = None) -> EngineStore:
            stores.append(open_store(url, store_params=params))
            return stores[-1]

        yield open_
        for each in stores:
            each.close()


def fill(store: EngineStore) -> None:
    store.add([TextNode(id_=f"n{n}", text="leave", embedding=[1.0, n]) for n in range(30)])


def found(store: EngineStore) -> list[str]:
    return store.query(VectorStoreQuery(query_embedding=[0.0, 1.0], similarity_top_k=25)).ids or []


@pytest.mark.parametrize("engine", MADE, indirect=True)
def test_settings_of_the_collection_are_repeated_or_left_out_and_others_are_refused_by_name(
    opened: Open, engine: str
) -> None:
    fill(opened(MADE[engine]))
    for params in (MADE[engine], None, OF_SEARCHES.get(engine)):
        assert len(found(opened(params))) == 25
    for params in OTHER.get(engine, ()):
        (name,) = params
        with pytest.raises(
            ConfigurationError, match=rf"was made with.*{name}=.* leave {name}.* out"
        ):
            opened(params)


@pytest.mark.parametrize("engine", ["qdrant"], indirect=True)
def test_the_first_writer_decides_and_settings_that_were_not_recorded_are_refused(
    opened: Open, engine: str
) -> None:
    first, second = opened(), opened(MADE[engine])
    fill(first)
    with pytest.raises(ConfigurationError, match="was made without hnsw_config, and is opened"):
        fill(second)
    assert first.count() == 30


@pytest.mark.parametrize("engine", ["milvus"], indirect=True)
def test_milvus_search_params_take_effect(opened: Open, engine: str) -> None:
    fill(opened(MADE[engine]))
    assert 0 < len(found(opened({"search_params": {"radius": 0.995}}))) < 25
    assert len(found(opened({"search_params": {"ef": 2}}))) == 25  # raised to top_k


def test_a_store_beside_another_has_its_own_nodes_and_is_closed_with_it(tmp_path: Path) -> None:
    pytest.importorskip("qdrant_client")
    with open_store(f"qdrant:{tmp_path}/kb") as store:
        assert isinstance(store, CollectionStore)
        records = store.beside("__ledger")
        records.add([TextNode(id_="record", text="leave", embedding=[1.0, 0.0])])
        assert (records.count(), store.count()) == (1, 0)
        records.clear()
        records.close()
        with pytest.raises(StoreClosedError):
            store.count()
