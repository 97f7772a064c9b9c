"""Hybrid search of one store."""

from dataclasses import replace

import pytest

from llama_retrieval_ext.basic.hybrid import HybridRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend
from llama_retrieval_ext.testing.fake_embedding import FakeEmbedding


@pytest.mark.parametrize("one_round_trip", [True, False])
def test_who_has_no_embedding_model_is_named(*, one_round_trip: bool) -> None:
    capabilities = replace(EVERYTHING, one_round_trip=one_round_trip)
    backend = FakeBackend(sample_nodes(FakeEmbedding()), capabilities=capabilities)
    with pytest.raises(ConfigurationError, match="HybridRetriever has no embedding model"):
        HybridRetriever(backend).retrieve("leave")
    assert HybridRetriever(backend, alpha=0.0).retrieve("leave")
