import math
import statistics

import pytest

from llama_retrieval_ext.formulas.normalisation import z_score


def test_scores_are_counted_in_standard_deviations() -> None:
    mean = (9.0 + 5.0 + 1.0) / 3
    sigma = math.sqrt(((9.0 - mean) ** 2 + (5.0 - mean) ** 2 + (1.0 - mean) ** 2) / 3)
    assert z_score({"a": 9.0, "b": 5.0, "c": 1.0}) == pytest.approx(
        {"a": (9.0 - mean) / sigma, "b": 0.0, "c": (1.0 - mean) / sigma}
    )


def test_the_deviation_is_that_of_the_population() -> None:
    scores = [0.9, 0.7, 0.65, -0.2]
    mean, sigma = statistics.fmean(scores), statistics.pstdev(scores)
    result = z_score(dict(zip("abcd", scores, strict=True)))
    assert list(result.values()) == pytest.approx([(score - mean) / sigma for score in scores])


def test_equal_scores_are_all_average() -> None:
    assert z_score(dict.fromkeys("abc", 0.1)) == {"a": 0.0, "b": 0.0, "c": 0.0}


def test_a_single_score_is_average() -> None:
    assert z_score({"a": -7.0}) == {"a": 0.0}


def test_scores_one_digit_apart_are_told_apart() -> None:
    assert z_score({"a": 1000.0 + math.ulp(1000.0), "b": 1000.0}) == pytest.approx(
        {"a": 1.0, "b": -1.0}
    )


def test_nothing_gives_nothing() -> None:
    assert z_score({}) == {}
