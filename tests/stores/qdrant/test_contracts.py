"""The contracts of every backend and every retriever, on Qdrant."""

from collections.abc import Iterator

import pytest

from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.keyword import KeywordRetriever
from llama_retrieval_ext.retrievers.vector import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stores.qdrant.store import QdrantBackend, QdrantStore
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract
from tests.stores.qdrant.places import PLACES, place

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def filled(kept: QdrantStore) -> QdrantStore:
    kept.add(sample_nodes(MODEL))
    return kept


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: QdrantStore) -> QdrantBackend:
        return QdrantBackend(filled)


# Each leg alone, as a request of its own; in files they are legs of the hybrid search below.
@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QdrantStore]:
    with place(PLACES[-1], tmp_path_factory.mktemp("remote")) as url, QdrantStore(url) as store:
        store.add(sample_nodes(MODEL))
        yield store


class TestVectorRetriever(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, remote: QdrantStore) -> VectorRetriever:
        return VectorRetriever(QdrantBackend(remote), embed_model=MODEL, top_k=5)

    @pytest.fixture
    def empty_retriever(self) -> Iterator[VectorRetriever]:
        with QdrantStore("qdrant::memory:") as store:
            yield VectorRetriever(QdrantBackend(store), embed_model=MODEL, top_k=5)


class TestKeywordRetriever(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, remote: QdrantStore) -> KeywordRetriever:
        return KeywordRetriever(QdrantBackend(remote), top_k=5)


class TestHybridRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> HybridRetriever:
        return HybridRetriever(QdrantBackend(filled), embed_model=MODEL, top_k=5)


class TestHybridRetrieverWithPushdown(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> HybridRetriever:
        backend = QdrantBackend(filled)
        return HybridRetriever(backend, embed_model=MODEL, fusion=RRF(), pushdown=True)
