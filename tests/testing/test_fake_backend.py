"""`FakeBackend` keeps the contract of backends, with and without each kind of search."""

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.testing.backend_contract import BackendContract
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend


class TestFullBackend(BackendContract):
    @pytest.fixture
    def backend(self, embed_model: BaseEmbedding) -> Backend:
        return FakeBackend(sample_nodes(embed_model))


class TestBackendWithoutKeywords(BackendContract):
    @pytest.fixture
    def backend(self, embed_model: BaseEmbedding) -> Backend:
        return FakeBackend(
            sample_nodes(embed_model), features=EngineFeatures(dense=EVERYTHING.dense)
        )


class TestBackendWithoutVectors(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return FakeBackend(
            sample_nodes(), features=EngineFeatures(keyword=ScoreRange("bm25", low=0.0))
        )
