import math

import pytest

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.formulas.normalisation import deviations


def test_a_deviation_is_the_score_less_the_mean() -> None:
    mean = (0.5 + 0.25 + 0.0) / 3
    assert deviations({"a": 0.5, "b": 0.25, "c": 0.0}) == {
        "a": 0.5 - mean,
        "b": 0.25 - mean,
        "c": 0.0 - mean,
    }


def test_equal_scores_deviate_by_exactly_nothing() -> None:
    # The plain mean of three 0.1 is not 0.1.
    assert deviations(dict.fromkeys("abc", 0.1)) == {"a": 0.0, "b": 0.0, "c": 0.0}


def test_scores_one_digit_apart_keep_their_digits() -> None:
    step = math.ulp(1000.0)
    assert deviations({"a": 1000.0 + step, "b": 1000.0}) == {"a": step / 2, "b": -step / 2}


def test_nothing_gives_nothing() -> None:
    assert deviations({}) == {}


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ScoreError, match="'b' is nan"):
        deviations({"a": 1.0, "b": math.nan})
