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
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def filled(kept: QdrantStore) -> QdrantStore:
    kept.add(sample_nodes(MODEL))
    return kept


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: QdrantStore) -> QdrantBackend:
        return QdrantBackend(filled)


class TestVectorRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> VectorRetriever:
        return VectorRetriever(QdrantBackend(filled), embed_model=MODEL, top_k=5)

    @pytest.fixture
    def empty_retriever(self) -> Iterator[VectorRetriever]:
        with QdrantStore("qdrant::memory:") as store:
            yield VectorRetriever(QdrantBackend(store), embed_model=MODEL, top_k=5)


class TestKeywordRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> KeywordRetriever:
        return KeywordRetriever(QdrantBackend(filled), top_k=5)


class TestHybridRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> HybridRetriever:
        return HybridRetriever(QdrantBackend(filled), embed_model=MODEL, top_k=5)


class TestHybridRetrieverWithPushdown(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> HybridRetriever:
        backend = QdrantBackend(filled)
        return HybridRetriever(backend, embed_model=MODEL, fusion=RRF(), pushdown=True)
