"""`Threshold`: a floor under the scores."""

import math

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, node_ids
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import Threshold
from llama_retrieval_ext.testing.fakes import FakeRetriever


def test_a_score_on_the_floor_stays() -> None:
    source = FakeRetriever([("a", 0.9), ("b", 0.5), ("c", 0.4999), ("d", -1.0)])
    assert node_ids((source >> Threshold(0.5)).retrieve("q")) == ["a", "b"]


def test_a_hit_without_a_score_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(ScoreError, match="'b' has the score None"):
        (FakeRetriever([("a", 0.9), ("b", None)]) >> Threshold(0.0)).retrieve("q")


@pytest.mark.parametrize("floor", [math.nan, math.inf])
def test_a_floor_that_is_no_number_is_refused(floor: float) -> None:
    with pytest.raises(ConfigurationError, match="min_score"):
        Threshold(floor)


def test_its_representation_is_its_expression() -> None:
    assert eval(repr(Threshold(0.5))) == Threshold(0.5)


@pytest.mark.parametrize(
    ("confidence", "found"), [(0.7, ["a"]), (0.5, ["a"]), (0.4, []), (None, ["a"])]
)
def test_a_ranking_is_kept_if_the_querys_confidence_is_high_enough_or_unknown(
    confidence: float | None, found: list[str]
) -> None:
    hits = [Hit(node=TextNode(id_="a"), score=0.9)]
    query = Query("q", confidence=confidence)
    assert node_ids(Threshold(confidence=0.5).refine(query, hits)) == found


def test_a_pipeline_without_an_estimate_is_refused() -> None:
    source = FakeRetriever([("a", 0.9)])
    with pytest.raises(ConfigurationError, match=r"kb\.calibrate\(\)"):
        (source >> Threshold(confidence=0.5)).retrieve("q")
    with pytest.raises(ConfigurationError, match=r"kb\.calibrate\(\)"):
        RerankRetriever(source, Threshold(confidence=0.5)).retrieve("q")


def test_a_failed_search_leaves_the_confidence_unknown() -> None:
    legs = branches(a=FakeRetriever([("a", 0.9)]), b=FakeRetriever(error=OSError("gone")))
    result = (legs >> RRF() >> Threshold(confidence=0.5)).search("q")
    assert node_ids(result.hits) == ["a"]
    assert [each.where for each in result.degraded] == ["b"]


@pytest.mark.parametrize("arguments", [{}, {"confidence": 1.5}, {"confidence": True}])
def test_threshold_needs_a_floor_in_range(arguments: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="confidence"):
        Threshold(**arguments)
