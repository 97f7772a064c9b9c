import math

import pytest

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.formulas.comb import comb_max, comb_mnz


def test_the_best_score_of_any_leg_wins() -> None:
    assert comb_max([{"a": 0.2, "b": 0.7}, {"a": 0.9, "b": 0.1}, {"c": 0.3}]) == {
        "a": 0.9,
        "b": 0.7,
        "c": 0.3,
    }


def test_missing_from_a_leg_is_not_zero_in_it() -> None:
    assert comb_max([{"a": -0.5}, {"b": 1.0}]) == {"a": -0.5, "b": 1.0}


def test_the_best_weighted_score_wins() -> None:
    fused = comb_max([{"a": 0.5, "b": 0.5}, {"a": 0.25}, {"c": 1.0}], weights=[1, 4, 0])
    assert fused == {"a": 4 * 0.25, "b": 1 * 0.5}


def test_nothing_gives_nothing() -> None:
    assert comb_max([]) == {}
    assert comb_max([{}]) == {}


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ScoreError, match="'a' is inf"):
        comb_max([{"a": 1.0}, {"a": math.inf}])


def test_the_sum_is_multiplied_by_the_number_of_legs_that_agree() -> None:
    fused = comb_mnz([{"a": 0.5, "b": 0.25}, {"b": 0.75, "c": 1.0}, {"b": 0.5}])
    assert fused == {"a": 1 * 0.5, "b": 3 * (0.25 + 0.75 + 0.5), "c": 1 * 1.0}


def test_weights_enter_the_sum_but_not_the_count() -> None:
    fused = comb_mnz([{"a": 0.5, "b": 0.5}, {"b": 0.25}], weights=[2, 4])
    assert fused == {"a": 1 * (2 * 0.5), "b": 2 * (2 * 0.5 + 4 * 0.25)}


def test_a_leg_that_found_the_id_with_score_zero_counts() -> None:
    assert comb_mnz([{"a": 0.5}, {"a": 0.0}]) == {"a": 2 * (0.5 + 0.0)}


def test_a_leg_of_weight_zero_is_left_out_also_from_the_count() -> None:
    assert comb_mnz([{"a": 0.5}, {"a": 0.5, "b": 1.0}], weights=[1, 0]) == {"a": 1 * 0.5}


def test_no_legs_give_nothing() -> None:
    assert comb_mnz([]) == {}
    assert comb_mnz([{}, {}]) == {}


def test_negative_scores_are_refused_with_what_to_do() -> None:
    with pytest.raises(ScoreError, match=r"'b' is -0\.1; .*normalise them first"):
        comb_mnz([{"a": 0.5, "b": -0.1}])


def test_a_score_that_is_none_is_refused() -> None:
    with pytest.raises(ScoreError, match="'a' is None"):
        comb_mnz([{"a": None}])  # type: ignore[dict-item]


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="all 1 weights are 0"):
        comb_mnz([{"a": 1.0}], weights=[0])
