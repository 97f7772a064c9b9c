"""`Threshold`: a floor under the scores."""

import math

import pytest

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.results import node_ids
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


@pytest.mark.parametrize("arguments", [{}, {"confidence": 1.5}, {"confidence": True}])
def test_threshold_needs_a_floor_in_range(arguments: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="confidence"):
        Threshold(**arguments)
