import math
import statistics

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


def test_equal_scores_lie_in_the_middle() -> None:
    assert distribution_based(dict.fromkeys("abc", 0.1)) == {"a": 0.5, "b": 0.5, "c": 0.5}


def test_a_single_score_lies_in_the_middle() -> None:
    assert distribution_based({"a": -7.0}) == {"a": 0.5}


def test_nothing_gives_nothing() -> None:
    assert distribution_based({}) == {}


def test_scores_beyond_three_deviations_are_not_clipped() -> None:
    scores = [0.0] * 30 + [1.0]
    mean, sigma = statistics.fmean(scores), statistics.stdev(scores)
    result = distribution_based({f"n{i}": score for i, score in enumerate(scores)})
    assert result["n30"] == pytest.approx((1.0 - (mean - 3 * sigma)) / (6 * sigma))
    assert result["n30"] > 1.0


def test_llama_indexs_form_divides_by_n_and_gives_equal_scores_1_or_0() -> None:
    scores = [0.9, 0.7, 0.65, -0.2]
    mean, sigma = statistics.fmean(scores), statistics.pstdev(scores)
    result = distribution_based(dict(zip("abcd", scores, strict=True)), as_llama_index=True)
    expected = [(score - (mean - 3 * sigma)) / (6 * sigma) for score in scores]
    assert list(result.values()) == pytest.approx(expected)
    assert distribution_based({"a": 0.4}, as_llama_index=True) == {"a": 1.0}
    assert distribution_based({"a": 0.0}, as_llama_index=True) == {"a": 0.0}
