"""A store of ours from making it to clearing it, on every Qdrant there is."""

import gc
from pathlib import Path

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from qdrant_client import QdrantClient, models

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.stores.qdrant.store import (
    QdrantBackend,
    QdrantStore,
    backend_of,
    open_qdrant,
)
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.stores.qdrant.fake_server import FakeServer
from tests.stores.store_contract import StoreContract


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


class TestStore(StoreContract[QdrantStore]):
    @pytest.fixture(autouse=True)
    def _memory_is_not_shared(self, url: str) -> None:
        self.reopens = url != "qdrant::memory:"  # type: ignore[misc]


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


def test_a_tokenizer_of_another_release_is_named(fake: FakeServer) -> None:
    vectors = {"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)}
    tokenizer = {**Tokenizer().to_dict(), "stemmer": "new"}
    metadata = {"llama_retrieval_ext": {"format": 3, "tokenizer": tokenizer}}
    fake.client.create_collection("kb", vectors, metadata=metadata)
    with pytest.raises(ConfigurationError, match="recorded by another release"):
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
