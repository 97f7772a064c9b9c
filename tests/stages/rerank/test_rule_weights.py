"""Weights and boosts of `RuleRerank`: data."""

import math

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stages.rerank.rules import Boost, RuleWeights
from tests.cases import each_case


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_are_finite_and_not_negative(weight: float) -> None:
    with pytest.raises(ConfigurationError, match="'title'"):
        RuleWeights(title=weight)
    with pytest.raises(ConfigurationError, match="'kind'"):
        Boost("kind", "law", weight)


def test_something_must_count() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        RuleWeights(place=0, terms=0, phrase=0, title=0, recency=0)
    with pytest.raises(ConfigurationError, match="above 0"):
        Boost("kind", "law", 0)


@each_case(
    ("boost", "given"),
    [
        (Boost("kind", "law"), True),
        (Boost("kind", ("rule", "law")), True),
        (Boost("kind", "rule"), False),
        (Boost("tags", "hr"), True),
        (Boost("tags", "leave"), False),
        (Boost("year", 2024), True),
        (Boost("missing", "law"), False),
    ],
)
def test_a_boost_is_given_for_the_value_or_an_item_of_a_list(boost: Boost, *, given: bool) -> None:
    metadata = {"kind": "law", "tags": ["hr", "paid leave"], "year": 2024}
    assert boost.holds_for(metadata) is given
