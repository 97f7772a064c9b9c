"""`BM25Retriever` keeps the contract of every retriever, however it was made."""

from pathlib import Path

import pytest
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.retriever_contract import RankingContract, RetrieverContract


class TestOverNodes(RetrieverContract):
    @pytest.fixture
    def retriever(self) -> BM25Retriever:
        return BM25Retriever(sample_nodes(), top_k=5)

    @pytest.fixture
    def empty_retriever(self) -> BM25Retriever:
        return BM25Retriever()


class TestOverDocstore(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> BM25Retriever:
        docstore = SimpleDocumentStore()
        docstore.add_documents(sample_nodes())
        return BM25Retriever.from_docstore(docstore, top_k=5, cache_ttl_s=0)


class TestLoaded(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self, tmp_path: Path) -> BM25Retriever:
        BM25Retriever(sample_nodes(), top_k=5).persist(tmp_path)
        return BM25Retriever.load(tmp_path)


class TestChanged(RankingContract, IsolationContract):
    @pytest.fixture
    def retriever(self) -> BM25Retriever:
        nodes = sample_nodes()
        retriever = BM25Retriever(nodes[6:], top_k=5)
        retriever.delete([nodes[8].node_id])
        retriever.add(nodes[:9])
        return retriever


class TestNormalised(RankingContract, IsolationContract):
    prefix_stable = False  # the lowest of the answer is 0, whichever that is

    @pytest.fixture
    def retriever(self) -> BM25Retriever:
        return BM25Retriever(sample_nodes(), top_k=5, normalise=True)
