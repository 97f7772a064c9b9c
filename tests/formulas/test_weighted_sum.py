from collections.abc import Sequence

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.scores import sum_of_legs
from llama_retrieval_ext.formulas.weighted_sum import proportions, weighted_sum_shares


def weighted_sum(
    scores: Sequence[dict[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return sum_of_legs(weighted_sum_shares(scores, weights=weights))


def test_a_weighted_sum_without_weights_is_the_mean_over_the_legs() -> None:
    fused = weighted_sum([{"a": 0.75, "b": 0.5}, {"b": 0.25}])
    assert fused == {"a": 0.5 * 0.75, "b": 0.5 * 0.5 + 0.5 * 0.25}


def test_only_the_proportions_of_the_weights_count() -> None:
    fused = weighted_sum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2])
    assert fused == {"a": 6 / 8 * 1.0 + 2 / 8 * 0.5, "b": 2 / 8 * 1.0}


def test_three_legs_with_weights() -> None:
    fused = weighted_sum([{"a": 1.0}, {"a": 2.0}, {"a": 4.0}], weights=[1, 2, 5])
    assert fused["a"] == pytest.approx((1 * 1.0 + 2 * 2.0 + 5 * 4.0) / (1 + 2 + 5))


def test_negative_scores_are_added_as_they_are() -> None:
    assert weighted_sum([{"a": -0.5}, {"a": 0.25}]) == {"a": 0.5 * -0.5 + 0.5 * 0.25}


def test_a_leg_of_weight_zero_is_left_out_with_what_only_it_found() -> None:
    assert weighted_sum([{"a": 0.9}, {"a": 0.1, "b": 0.8}], weights=[5, 0]) == {"a": 0.9}


def test_an_empty_leg_keeps_its_weight() -> None:
    assert weighted_sum([{"a": 1.0}, {}], weights=[1, 3]) == {"a": 1 / 4 * 1.0}


def test_weights_as_small_as_floats_go_still_work() -> None:
    assert weighted_sum([{"a": 1.0}, {"a": 0.5}], weights=[5e-324, 5e-324]) == {"a": 0.75}


def test_the_shares_of_the_legs_add_up_to_the_fused_score() -> None:
    first, second = weighted_sum_shares([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2])
    assert (first, second) == ({"a": 6 / 8 * 1.0}, {"a": 2 / 8 * 0.5, "b": 2 / 8 * 1.0})
    assert weighted_sum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2]) == {
        "a": first["a"] + second["a"],
        "b": second["b"],
    }


def test_fusing_no_scores_gives_no_scores() -> None:
    assert weighted_sum([]) == {}
    assert weighted_sum([{}, {}]) == {}


def test_weights_that_are_not_one_for_each_leg_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="got 1 weights for 2 rankings"):
        weighted_sum([{"a": 1.0}, {"a": 1.0}], weights=[1.0])


def test_proportions_add_up_to_one() -> None:
    assert proportions([6, 2]) == [6 / 8, 2 / 8]
    assert proportions([5e-324, 5e-324]) == [0.5, 0.5]
    assert proportions([]) == []
