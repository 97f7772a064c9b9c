"""Hybrid search of one store."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from llama_retrieval_ext.basic.hybrid import HybridRetriever
from llama_retrieval_ext.basic.store_retriever import StoreRetriever
from llama_retrieval_ext.basic.vector import VectorRetriever
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stages.fusions.rrf import RRF
from llama_retrieval_ext.stages.refining.collapse import Collapse
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


@pytest.mark.parametrize(
    ("retriever", "told"),
    [
        (HybridRetriever, ""),
        (partial(HybridRetriever, alpha=0.5), ""),
        (partial(HybridRetriever, alpha=0.25), "weights={'vector': 0.25, 'keyword': 0.75}, "),
        (partial(HybridRetriever, fusion=RRF(k=10.0)), "fusion=RRF(k=10.0), "),
        (partial(HybridRetriever, collapse=Collapse(2)), "collapse=Collapse(size=2, by=None), "),
        (partial(VectorRetriever, collapse=Collapse(2)), "collapse=Collapse(size=2, by=None), "),
    ],
)
def test_it_tells_what_was_chosen(retriever: Callable[..., StoreRetriever], told: str) -> None:
    made = retriever(FakeBackend(sample_nodes(FakeEmbedding())))
    assert repr(made) == f"{type(made).__name__}(fake, top_k=10, {told}name={made.name!r})"
