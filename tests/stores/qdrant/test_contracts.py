"""The contracts of every backend and every retriever, on Qdrant."""

import pytest

from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def filled(kept: QdrantStore) -> QdrantStore:
    kept.add(sample_nodes(MODEL))
    return kept


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: QdrantStore) -> QdrantStore:
        return filled


class TestHybridRetriever(IsolationContract):
    @pytest.fixture
    def retriever(self, filled: QdrantStore) -> HybridRetriever:
        return HybridRetriever(filled, embed_model=MODEL, top_k=5)
