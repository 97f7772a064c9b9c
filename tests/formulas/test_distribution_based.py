import math
import statistics
from collections.abc import Iterable

import pytest

from llama_retrieval_ext.formulas.normalisation import distribution_based


def test_scores_lie_between_three_deviations_below_and_above_the_mean() -> None:
    mean = (9.0 + 5.0 + 1.0) / 3
    sigma = math.sqrt(((9.0 - mean) ** 2 + (5.0 - mean) ** 2 + (1.0 - mean) ** 2) / (3 - 1))
    assert distribution_based({"a": 9.0, "b": 5.0, "c": 1.0}) == pytest.approx(
        {
            "a": (9.0 - (mean - 3 * sigma)) / (6 * sigma),
            "b": 0.5,
            "c": (1.0 - (mean - 3 * sigma)) / (6 * sigma),
        }
    )


def test_the_deviation_is_that_of_a_sample() -> None:
    scores = [0.9, 0.7, 0.65, -0.2]
    mean, sigma = statistics.fmean(scores), statistics.stdev(scores)
    low, high = mean - 3 * sigma, mean + 3 * sigma
    result = distribution_based(dict(zip("abcd", scores, strict=True)))
    assert list(result.values()) == pytest.approx([(s - low) / (high - low) for s in scores])


def test_scores_beyond_three_deviations_are_cut() -> None:
    crowd = {f"n{i}": 0.0 for i in range(30)}
    assert distribution_based({**crowd, "high": 1.0})["high"] == 1.0
    assert distribution_based({**crowd, "low": -1.0})["low"] == 0.0


def test_equal_scores_lie_in_the_middle() -> None:
    assert distribution_based(dict.fromkeys("abc", 0.1)) == {"a": 0.5, "b": 0.5, "c": 0.5}


def test_a_single_score_lies_in_the_middle() -> None:
    assert distribution_based({"a": -7.0}) == {"a": 0.5}


def test_nothing_gives_nothing() -> None:
    assert distribution_based({}) == {}


def test_uncut_scores_lie_beyond_the_ends_and_the_others_where_they_were() -> None:
    crowd = {**{f"n{i}": 0.0 for i in range(30)}, "high": 1.0}
    cut, uncut = distribution_based(crowd), distribution_based(crowd, cut=False)
    low, high = _ends(crowd.values())
    assert uncut["high"] == pytest.approx((1.0 - low) / (high - low))
    assert uncut["high"] > cut["high"] == 1.0
    assert {**uncut, "high": 1.0} == cut


def _ends(scores: Iterable[float]) -> tuple[float, float]:
    values = list(scores)
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return mean - 3 * deviation, mean + 3 * deviation
