"""Hybrid search of one store."""

from dataclasses import replace
from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stages.fusion import RRF, WeightedSum
from llama_retrieval_ext.testing.corpus import sample_nodes
from llama_retrieval_ext.testing.fake_backend import EVERYTHING, FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding


@pytest.fixture(params=[True, False], ids=["one round trip", "two requests"])
def backend(request: pytest.FixtureRequest) -> FakeBackend:
    features = replace(EVERYTHING, one_round_trip=request.param)
    return FakeBackend(sample_nodes(FakeEmbedding()), features=features)


def test_a_missing_embedding_model_is_an_error_that_names_the_retriever(
    backend: FakeBackend,
) -> None:
    with pytest.raises(ConfigurationError, match="HybridRetriever has no embedding model"):
        HybridRetriever(backend).retrieve("leave")
    assert HybridRetriever(backend, alpha=0.0).retrieve("leave")


def scored(backend: FakeBackend, query: Query, fusion: Fusion | None = None) -> dict[str, float]:
    retriever = HybridRetriever(
        backend, embed_model=FakeEmbedding(), candidates=query.top_k or 1, fusion=fusion
    )
    return {hit.node_id: hit.get_score() for hit in retriever.retrieve(query)}


def test_scores_are_summed_from_the_last_candidate_to_the_first(backend: FakeBackend) -> None:
    query = Query("annual leave", top_k=2)  # which more than two nodes share words with
    assert scored(backend, query) == scored(backend, query, WeightedSum())


def test_keyword_scores_are_scaled_from_zero_if_all_matches_are_candidates(
    backend: FakeBackend,
) -> None:
    query = Query("annual leave", top_k=100)
    scales = {"vector": Normalisation.MIN_MAX, "keyword": Normalisation.FROM_ZERO}
    assert scored(backend, query) == scored(backend, query, WeightedSum(normalise=scales))
    assert scored(backend, query) != scored(backend, query, WeightedSum())


def test_a_fusion_that_defines_only_fuse_gets_the_hits_of_both(backend: FakeBackend) -> None:
    class OneAfterTheOther(Fusion):
        def fuse(self, rankings: Any, **_: Any) -> Any:
            return [*rankings["keyword"], *rankings["vector"]]

    retriever = HybridRetriever(
        backend, embed_model=FakeEmbedding(), fusion=OneAfterTheOther(), top_k=12
    )
    assert len(retriever.retrieve("canteen lunch")) == len(sample_nodes())


def test_min_success_makes_the_failure_of_a_search_an_error(backend: FakeBackend) -> None:
    model = FakeEmbedding(fail=ConnectionError("no model"))
    assert HybridRetriever(backend, embed_model=model).search("annual leave").degraded
    for both in (
        HybridRetriever(backend, embed_model=model, min_success=2),
        HybridRetriever(backend, embed_model=model, fusion=RRF(min_success=2)),
    ):
        with pytest.raises(TooFewLegsError, match="no model"):
            both.retrieve("annual leave")
    with pytest.raises(ConfigurationError, match="the number of legs, 1, got 2"):
        HybridRetriever(backend, embed_model=model, min_success=2, alpha=1.0)
