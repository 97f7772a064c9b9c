"""The promises of every store on every Qdrant, its searches, and its threads."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from qdrant_client import QdrantClient

from llama_retrieval_ext import HybridRetriever, Scope
from llama_retrieval_ext.errors import StoreError, StoreUnavailableError
from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.qdrant.client import Version
from llama_retrieval_ext.stores.qdrant.llama_index_store import LlamaIndexQdrantBackend
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.testing import BackendContract, FakeEmbedding, IsolationContract
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from tests.stores.qdrant.llama_index_stores import llama_index_store, nodes_with_uuids
from tests.stores.store_contract import StoreContract, node

pytestmark = pytest.mark.slow


class TestStore(StoreContract[QdrantStore]):
    many = 600


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


MODEL = FakeEmbedding()
MODES = VectorStoreQueryMode
KEYWORD_MODES = [MODES.SPARSE, MODES.TEXT_SEARCH]


@pytest.fixture(scope="module")
def filled(kept: QdrantStore) -> QdrantStore:
    kept.add(sample_nodes(MODEL))
    return kept


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        store.add(sample_nodes(MODEL))
        yield store


def request(
    mode: VectorStoreQueryMode, text: str = "annual leave", **rest: Any
) -> VectorStoreQuery:
    embedding = MODEL.get_query_embedding(text)
    return VectorStoreQuery(query_embedding=embedding, query_str=text, mode=mode, **rest)


@pytest.mark.parametrize("text", SAMPLE_QUERIES[:2])
@pytest.mark.parametrize("alpha", [None, 0.3])
def test_searches_have_the_hits_and_scores_of_the_embedded_store(
    filled: QdrantStore, embedded: EmbeddedVectorStore, text: str, alpha: float | None
) -> None:
    for mode in (MODES.DEFAULT, *KEYWORD_MODES, MODES.HYBRID, MODES.MMR):
        query = request(mode, text, similarity_top_k=5)
        query.alpha = alpha if mode is MODES.HYBRID else None
        ours, theirs = filled.query(query), embedded.query(query)
        assert ours.similarities == pytest.approx(theirs.similarities, abs=1e-4)
        assert ours.ids == theirs.ids


def test_the_rarity_of_terms_is_measured_within_the_scope(store: QdrantStore) -> None:
    acme = Scope("acme")
    own = [
        TextNode(id_=f"{n}", text=text, embedding=[1.0], metadata={"tenant_id": "acme"})
        for n, text in enumerate(["rare word here", "common word here", "common thing here"])
    ]
    store.add(own)
    search = Search(5, acme.condition, acme)
    before = store.keyword("rare common", search).function()
    other = {"tenant_id": "other"}
    store.add(
        [
            TextNode(id_=f"x{n}", text="rare words", embedding=[1.0], metadata=other)
            for n in range(20)
        ]
    )
    after = store.keyword("rare common", search).function()
    assert [each.node_id for each in after] == [each.node_id for each in before]
    assert [each.score for each in after] == pytest.approx([each.score for each in before])
    everything = store.keyword("rare", Search(1, acme.condition)).function()
    assert everything[0].score < before[0].score


def test_without_a_scope_deleted_and_replaced_nodes_count_for_nothing(store: QdrantStore) -> None:
    keep = [TextNode(id_="keep", text="rare common word", embedding=[1.0])]
    store.add([*keep, TextNode(id_="two", text="common leave", embedding=[1.0])])

    def hits() -> list[tuple[str, float]]:
        found = store.keyword("rare common", Search(2)).function()
        return [(candidate.node_id, round(candidate.score, 4)) for candidate in found]

    before = hits()
    store.add([TextNode(id_=f"r{n}", text="rare thing", embedding=[1.0]) for n in range(60)])
    assert hits() != before
    store.delete_nodes([f"r{n}" for n in range(60)])
    for _ in range(3):
        store.add(keep)
    assert hits() == before


def test_an_old_server_gets_no_request_to_measure_rarity() -> None:
    with QdrantStore("qdrant::memory:") as store:
        version = store.connection.version = Version(1, 18)
        search = store.keyword_search("leave", Search(3, None, Scope("acme")))
        assert search is not None
        assert search.params is None
        assert store.describe()["exact_rarity"] is version.measures_rarity is False
        assert FilterOperator.TEXT_MATCH not in (store.features.operators or ())
        text = Compare("title", FilterOperator.TEXT_MATCH, "Lea")
        store.add(sample_nodes(MODEL))
        with pytest.raises(StoreError, match=r"needs Qdrant 1\.20, this is 1\.18"):
            store.dense(MODEL.get_query_embedding("x"), Search(3, text)).function()


READS = 25


def test_stores_that_share_a_local_client_share_its_lock() -> None:
    client = QdrantClient(":memory:")
    store = llama_index_store(client)
    store.add(nodes_with_uuids(MODEL))
    backends = [LlamaIndexQdrantBackend(llama_index_store(client)) for _ in range(4)]
    vector = MODEL.get_query_embedding("leave")

    def read(backend: LlamaIndexQdrantBackend) -> int:
        call = backend.dense(vector, Search(3))
        return sum(len(call.function()) for _ in range(READS))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, backends)) == [3 * READS] * 4
    assert len({id(backend._connection._lock) for backend in backends}) == 1
    client.close()


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: QdrantStore) -> QdrantStore:
        return filled


class TestHybridRetriever(IsolationContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> HybridRetriever:
        return HybridRetriever(filled, embed_model=MODEL, top_k=5)
