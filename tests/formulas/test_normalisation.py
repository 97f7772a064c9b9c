import math

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.normalisation import theoretical_min_max


def test_scores_lie_between_the_least_possible_and_the_highest_at_hand() -> None:
    assert theoretical_min_max({"a": 8.0, "b": 3.0}, low=0) == {"a": 1.0, "b": 3.0 / 8.0}


def test_scores_lie_between_the_least_and_the_highest_possible() -> None:
    assert theoretical_min_max({"a": 0.8, "b": -0.5}, low=-1, high=1) == {
        "a": (0.8 - -1) / (1 - -1),
        "b": (-0.5 - -1) / (1 - -1),
    }


def test_f10_close_scores_stay_close() -> None:
    result = theoretical_min_max({"a": 0.91, "b": 0.90}, low=-1)
    assert result == {"a": 1.0, "b": (0.90 + 1) / (0.91 + 1)}


def test_a_single_score_lies_where_the_scale_puts_it() -> None:
    assert theoretical_min_max({"a": 0.5}, low=0, high=2) == {"a": 0.5 / 2}
    assert theoretical_min_max({"a": 0.5}, low=0) == {"a": 1.0}


def test_equal_scores_lie_where_the_scale_puts_them() -> None:
    assert theoretical_min_max({"a": 3.0, "b": 3.0}, low=0) == {"a": 1.0, "b": 1.0}
    assert theoretical_min_max({"a": 3.0, "b": 3.0}, low=0, high=4) == {"a": 0.75, "b": 0.75}


def test_scores_at_the_least_are_worth_nothing_also_when_all_are() -> None:
    assert theoretical_min_max({"a": 0.0, "b": 0.0}, low=0) == {"a": 0.0, "b": 0.0}


def test_a_score_outside_the_scale_is_cut_to_it() -> None:
    scores = {"a": 1.0000001, "b": 0.0, "c": -1.0000001}
    assert theoretical_min_max(scores, low=-1, high=1) == {"a": 1.0, "b": 0.5, "c": 0.0}


def test_the_widest_scale_still_works() -> None:
    assert theoretical_min_max({"a": 0.0}, low=-1e100, high=1e100) == {"a": 0.5}
    assert theoretical_min_max({"a": 1e100}, low=1e100) == {"a": 0.0}


def test_nothing_gives_nothing() -> None:
    assert theoretical_min_max({}, low=0) == {}
    assert theoretical_min_max({}, low=-1, high=1) == {}


@pytest.mark.parametrize("low", [math.nan, math.inf, -math.inf])
def test_a_least_score_that_is_not_finite_is_refused(low: float) -> None:
    with pytest.raises(ConfigurationError, match="use min_max for scores without a known least"):
        theoretical_min_max({"a": 1.0}, low=low)


@pytest.mark.parametrize("high", [0.0, -1.0, math.nan, math.inf])
def test_a_highest_score_not_above_the_least_is_refused(high: float) -> None:
    with pytest.raises(ConfigurationError, match="high must be a finite number above low = 0"):
        theoretical_min_max({"a": 1.0}, low=0, high=high)
