"""The promises of every store, in a file and on a server; the limit of hits, and terms."""

from collections.abc import Callable, Iterator

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import HybridRetriever, Retriever, Schema
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.store import MilvusStore, open_milvus
from llama_retrieval_ext.testing import BackendContract, FakeEmbedding, sample_nodes
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from tests.quick import in_turn
from tests.stores.milvus.conftest import place
from tests.stores.store_contract import MODES, StoreContract, found, node

pytestmark = pytest.mark.slow

Opened = Callable[..., MilvusStore]


class TestStore(StoreContract[MilvusStore]):
    odd_ids = tuple(
        node_id for node_id in StoreContract.odd_ids if node_id
    )  # Milvus has no empty id


def test_more_hits_than_milvus_returns_are_refused(store: MilvusStore) -> None:
    store.add([node("a")])
    assert found(store, similarity_top_k=16_384) == ["a"]
    with pytest.raises(ConfigurationError, match="16384"):
        found(store, similarity_top_k=16_385)


def test_terms_with_punctuation_are_found(store: MilvusStore) -> None:
    store.add(
        [
            TextNode(id_="c", text="C++ by example", embedding=[1.0, 0.0]),
            TextNode(id_="d", text="D by example", embedding=[1.0, 0.0]),
        ]
    )
    assert found(store, MODES.SPARSE, query_str="c++") == ["c"]


def test_an_indexing_of_fields_that_was_killed_is_finished_or_forgotten(opened: Opened) -> None:
    schema = Schema(text={"title": 1, "text": 1})
    store = opened(schema=schema)
    copy = f"{store.collection_name}__fields"
    store.add([node("a", title="film")])
    store.client.rename_collection(store.collection_name, copy)  # killed before its last step
    again = opened()
    assert (found(again, MODES.SPARSE), again.field_schema) == (["a"], schema)
    assert not again.client.has_collection(copy)
    wider = opened(schema=Schema(text={"title": 1, "text": 1, "actors": 1}))
    steps = wider._collection.index_fields()
    request = next(steps)
    while not store.client.has_collection(copy):  # killed at its first steps
        request = steps.send(wider.connection.perform(request))
    assert wider.index_fields() == 1
    store.client.create_collection(copy, 2)
    wider.clear()
    assert (opened().count(), found(wider)) == (0, [])


MODEL = FakeEmbedding()


@pytest.fixture(scope="module", params=in_turn("file", "server"))
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MilvusStore]:
    """A store in process, or on a server, over gRPC."""
    folder = tmp_path_factory.mktemp("lite")
    with place(request.param, request, folder) as url, open_milvus(url) as store:
        store.add(sample_nodes(MODEL))
        yield store


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: MilvusStore) -> MilvusStore:
        return filled


class TestHybridRetriever(IsolationContract):
    @pytest.fixture
    def retriever(self, filled: MilvusStore) -> Retriever:
        return HybridRetriever(filled, embed_model=MODEL)
