import math
import re

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.scores import weighted_legs


def test_without_weights_every_leg_counts_as_one() -> None:
    assert weighted_legs(["x", "y"], weights=None) == [("x", 1.0), ("y", 1.0)]


def test_legs_of_weight_zero_are_left_out() -> None:
    assert weighted_legs(["x", "y", "z"], weights=[2, 0, 0.5]) == [("x", 2.0), ("z", 0.5)]


def test_the_largest_weight_still_counts() -> None:
    assert weighted_legs(["x"], weights=[1e100]) == [("x", 1e100)]


def test_no_legs_need_no_weights() -> None:
    assert weighted_legs([], weights=[]) == []
    assert weighted_legs([], weights=None) == []


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, 1.0, 1.0]])
def test_the_number_of_weights_must_be_that_of_the_legs(weights: list[float]) -> None:
    with pytest.raises(ConfigurationError, match=f"got {len(weights)} weights for 2 rankings"):
        weighted_legs(["x", "y"], weights=weights)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf, 1e200])
def test_a_weight_that_cannot_work_is_named_with_its_place(weight: float) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"weight 1 is {weight}; pass")):
        weighted_legs(["x", "y"], weights=[1.0, weight])


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="pass at least one above 0"):
        weighted_legs(["x", "y"], weights=[0.0, 0.0])
