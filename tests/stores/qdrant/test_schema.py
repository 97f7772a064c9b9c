"""Creation of a collection: its settings, its field indexes, and which collections are refused."""

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.qdrant.store import QdrantStore, open_qdrant
from tests.stores.qdrant.fake_server import FakeServer
from tests.stores.store_contract import node

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
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


def test_metadata_fields_get_an_index_and_those_of_scopes_a_tenant_index(fake: FakeServer) -> None:
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
    assert bodies.count('"allowed"') == 1
    assert len(made) == 3 + 3 + 1 + 1
