"""The sum of legs, the weights of legs, the check of scores, and their order."""

import math
import re
import sys
from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.formulas.fusion import (
    keyword_trust,
    ranked,
    reciprocal_rank_shares,
    sum_of_legs,
    weighted_legs,
    weighted_sum_shares,
)
from llama_retrieval_ext.formulas.normalisation import check_scores
from tests.cases import cases
from tests.quick import examples


@cases("weights", [[], [1.0], [1.0, 1.0, 1.0]])
def test_the_number_of_weights_must_be_that_of_the_legs(weights: list[float]) -> None:
    with pytest.raises(ConfigurationError, match=f"got {len(weights)} weights for 2 rankings"):
        weighted_legs(["x", "y"], weights=weights)


@cases("weight", [-0.1, math.nan, math.inf, 1e200])
def test_an_invalid_weight_is_refused_with_its_position(weight: float) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"weight 1 is {weight}; pass")):
        weighted_legs(["x", "y"], weights=[1.0, weight])


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="pass at least one above 0"):
        weighted_legs(["x", "y"], weights=[0.0, 0.0])


@cases("score", [None, math.nan, math.inf, -math.inf, sys.float_info.max, -sys.float_info.max])
def test_a_missing_or_infinite_score_is_refused_with_its_id(score: float | None) -> None:
    with pytest.raises(ScoreError, match="the score of 'n2' is"):
        check_scores({"n1": 0.5, "n2": score})


@examples(50)
@given(st.dictionaries(st.text(max_size=2), st.floats(-3, 3) | st.sampled_from([0.0, 1.0])))
def test_ranked_orders_by_score_then_id(scores: dict[str, float]) -> None:
    assert ranked(scores) == sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


@examples(50)
@given(st.dictionaries(st.text(max_size=2), st.sampled_from([0.0, 0.5, 1.0])), st.integers(1, 5))
def test_the_best_of_ranked_come_with_all_ties_of_the_last(
    scores: dict[str, float], top_k: int
) -> None:
    every = ranked(scores)
    expected = [each for each in every if each[1] >= every[:top_k][-1][1]]
    assert ranked(scores, top_k=top_k) == expected


def test_ids_missing_from_a_leg_get_nothing_from_it() -> None:
    assert sum_of_legs([{"a": 0.25, "b": 0.5}, {"b": 0.125, "c": 1.0}]) == {
        "a": 0.25,
        "b": 0.5 + 0.125,
        "c": 1.0,
    }


def test_the_sum_does_not_depend_on_the_order_of_the_legs() -> None:
    legs = [{"a": 0.1}, {"a": 0.2}, {"a": 0.3}, {"a": -0.6}]
    plain = {reduce(add, order) for order in permutations([0.1, 0.2, 0.3, -0.6])}
    assert len(plain) > 1  # as they do
    assert len({sum_of_legs(order)["a"] for order in permutations(legs)}) == 1


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: float = 60, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return sum_of_legs(reciprocal_rank_shares(rankings, k=k, weights=weights))


def test_a_repeated_id_counts_once_and_the_rest_moves_up() -> None:
    assert reciprocal_rank_fusion([["a", "a", "b"]]) == {"a": 1 / 61, "b": 1 / 62}


@cases("k", [-1.0, math.nan, math.inf])
def test_a_k_below_zero_or_not_finite_is_refused(k: float) -> None:
    with pytest.raises(ConfigurationError, match="k must be a finite number of 0 or more"):
        reciprocal_rank_fusion([["a"]], k=k)


def weighted_sum(
    scores: Sequence[dict[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return sum_of_legs(weighted_sum_shares(scores, weights=weights))


def test_an_empty_leg_keeps_its_weight() -> None:
    assert weighted_sum([{"a": 1.0}, {}], weights=[1, 3]) == {"a": 1 / 4 * 1.0}


def test_the_shares_of_the_legs_add_up_to_the_fused_score() -> None:
    first, second = weighted_sum_shares([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2])
    assert (first, second) == ({"a": 6 / 8 * 1.0}, {"a": 2 / 8 * 0.5, "b": 2 / 8 * 1.0})
    assert weighted_sum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2]) == {
        "a": first["a"] + second["a"],
        "b": second["b"],
    }


def test_keywords_are_trusted_by_how_far_the_best_score_is_ahead_of_rank_20() -> None:
    def trust(last: float, count: int = 20) -> float:
        return keyword_trust([8.0, *(count - 2) * [7.0], last])

    assert [*map(trust, (0.0, 2.0, 4.0, 6.0, 8.0))] == [4.0, 2.25, 1.0, 0.25, 0.1]
    assert trust(2.0, count=19) == keyword_trust([]) == keyword_trust(20 * [0.0]) == 1.0
