"""The promises of every backend and every retriever hold over a real server."""

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.elasticsearch.store import ElasticsearchVectorStore
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RetrieverContract
from tests.stores.elasticsearch.msearch import Opener

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filled(open_store: Opener) -> ElasticsearchVectorStore:
    store = open_store()
    store.add(sample_nodes(FakeEmbedding()))
    return store


@pytest.fixture(scope="module")
def spread(open_store: Opener) -> ElasticsearchVectorStore:
    """Three shards, tenants on one each."""
    store = open_store(store_params={"number_of_shards": 3, "routing": True})
    store.add(sample_nodes(FakeEmbedding()))
    return store


class TestBackend(BackendContract):
    @pytest.fixture
    def backend(self, filled: ElasticsearchVectorStore) -> ElasticsearchVectorStore:
        return filled


class TestBackendOfManyTenants(BackendContract):
    @pytest.fixture
    def backend(self, spread: ElasticsearchVectorStore) -> ElasticsearchVectorStore:
        return spread


class TestHybridRetriever(RetrieverContract):
    @pytest.fixture
    def retriever(self, filled: ElasticsearchVectorStore, embed_model: BaseEmbedding) -> Retriever:
        return HybridRetriever(filled, embed_model=embed_model, top_k=5)


class TestHybridRetrieverOfManyTenants(IsolationContract):
    @pytest.fixture
    def retriever(self, spread: ElasticsearchVectorStore, embed_model: BaseEmbedding) -> Retriever:
        return HybridRetriever(spread, embed_model=embed_model, top_k=5)
