"""Milvus keeps what every backend and every retriever promises: in process, and as a server."""

import uuid
from collections.abc import Iterator

import pytest

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.milvus.store import MilvusStore, open_milvus
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from tests.servers.given import collection_url

pytestmark = pytest.mark.slow

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusStore]:
    with open_milvus(f"milvus:{tmp_path_factory.mktemp('lite')}/kb.db") as store:
        store.add(sample_nodes(MODEL))
        yield store


class TestInProcess(BackendContract):
    @pytest.fixture
    def backend(self, in_process: MilvusStore) -> MilvusStore:
        return in_process


@pytest.fixture(scope="module")
def on_server(milvus_url: str) -> Iterator[MilvusStore]:
    with open_milvus(collection_url(milvus_url, f"t{uuid.uuid4().hex}")) as store:
        store.add(sample_nodes(MODEL))
        yield store
        store.clear()


class TestServer(BackendContract):
    @pytest.fixture
    def backend(self, on_server: MilvusStore) -> MilvusStore:
        return on_server


class TestHybridRetriever(IsolationContract):
    @pytest.fixture
    def retriever(self, in_process: MilvusStore) -> Retriever:
        return HybridRetriever(in_process, embed_model=MODEL)
