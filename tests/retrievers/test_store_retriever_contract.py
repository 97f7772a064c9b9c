"""Retrievers over one store keep the contract, over the embedded engine and over any store."""

from collections.abc import Callable, Generator
from dataclasses import replace

import pytest
from llama_index.core.indices.vector_store import VectorStoreIndex

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract

MODEL = FakeEmbedding()
Make = Callable[[EmbeddedVectorStore], Retriever]
RETRIEVERS: dict[str, Make] = {
    "vector": lambda store: VectorRetriever(store, embed_model=MODEL, top_k=5),
    "keyword": lambda store: KeywordRetriever(store, top_k=5),
    "hybrid": lambda store: HybridRetriever(store, embed_model=MODEL, top_k=5),
}


@pytest.fixture(scope="module")
def nothing() -> Generator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as opened:
        yield opened


class TestOverTheEmbeddedEngine(RetrieverContract):
    @pytest.fixture(params=RETRIEVERS.values(), ids=[*RETRIEVERS])
    def make(self, request: pytest.FixtureRequest) -> Make:
        made: Make = request.param
        return made

    @pytest.fixture
    def retriever(self, make: Make, store: EmbeddedVectorStore) -> Retriever:
        return make(store)

    @pytest.fixture
    def empty_retriever(self, make: Make, nothing: EmbeddedVectorStore) -> Retriever:
        return make(nothing)


class TestHybridRetrieverWithPushdown(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, store: EmbeddedVectorStore) -> Retriever:
        return HybridRetriever(store, embed_model=MODEL, top_k=5, fusion=RRF(), pushdown=True)

    @pytest.fixture
    def empty_retriever(self, nothing: EmbeddedVectorStore) -> Retriever:
        return HybridRetriever(nothing, embed_model=MODEL, fusion=RRF(), pushdown=True)


@pytest.mark.slow
class TestHybridRetrieverInTwoRequests(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> Retriever:
        features = replace(EVERYTHING, one_round_trip=False)
        backend = FakeBackend(sample_nodes(MODEL), features=features)
        return HybridRetriever(backend, embed_model=MODEL, top_k=5, alpha=0.6)


class TestVectorRetrieverOverAnyStore(RankingContract, IsolationContract):
    @pytest.fixture(scope="class")
    @staticmethod
    def index() -> VectorStoreIndex:
        return VectorStoreIndex(sample_nodes(MODEL), embed_model=MODEL)

    @pytest.fixture
    def retriever(self, index: VectorStoreIndex) -> Retriever:
        return VectorRetriever(index, top_k=5)

    @pytest.fixture
    def empty_retriever(self) -> Retriever:
        return VectorRetriever(VectorStoreIndex([], embed_model=MODEL))
