"""Backends keep the contract: the embedded engine's, and the generic one over any store."""

from collections.abc import Generator

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store import VectorStoreIndex

from llama_retrieval_ext.stores import EmbeddedVectorStore, GenericBackend
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.open import source_of
from llama_retrieval_ext.testing import BackendContract, FakeEmbedding, sample_nodes

MODEL = FakeEmbedding()


@pytest.fixture(scope="module")
def store() -> Generator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as opened:
        opened.add(sample_nodes(MODEL))
        yield opened


@pytest.fixture(scope="module", params=[pytest.param("float16", marks=pytest.mark.slow), "hnsw"])
def unusual_store(request: pytest.FixtureRequest) -> Generator[EmbeddedVectorStore]:
    """One with coarser embeddings, and one that is indexed, with a node that came later."""
    nodes = sample_nodes(MODEL)
    if request.param == "float16":
        with EmbeddedVectorStore(":memory:", vectors="float16") as opened:
            opened.add(nodes)
            yield opened
        return
    with EmbeddedVectorStore(":memory:", index="hnsw") as opened:
        opened.add(nodes[:-1])
        assert opened.build_index()
        opened.add(nodes[-1:])
        assert opened.index_info().indexed == len(nodes) - 1
        yield opened


class TestEmbeddedStore(BackendContract):
    @pytest.fixture
    def backend(self, store: EmbeddedVectorStore) -> Backend:
        return store


@pytest.mark.slow
class TestEmbeddedStoreWithOtherVectorsAndIndexes(BackendContract):
    @pytest.fixture
    def backend(self, unusual_store: EmbeddedVectorStore) -> Backend:
        return unusual_store


class TestGenericBackendOverAStoreOfEmbeddingsAlone(BackendContract):
    @pytest.fixture
    def backend(self, embed_model: BaseEmbedding) -> Backend:
        return source_of(VectorStoreIndex(sample_nodes(embed_model), embed_model=MODEL)).backend


@pytest.mark.slow
class TestGenericBackendOverAStoreOfNodes(BackendContract):
    @pytest.fixture
    def backend(self, store: EmbeddedVectorStore) -> Backend:
        return GenericBackend(store)
