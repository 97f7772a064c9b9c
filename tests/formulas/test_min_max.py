import pytest

from llama_retrieval_ext.formulas.normalisation import min_max


def test_the_lowest_is_zero_and_the_highest_one() -> None:
    assert min_max({"a": 7.5, "b": 4.0, "c": 2.5}) == {
        "a": 1.0,
        "b": (4.0 - 2.5) / (7.5 - 2.5),
        "c": 0.0,
    }


def test_negative_scores_are_scores() -> None:
    assert min_max({"a": -1.0, "b": -2.0, "c": -5.0}) == {
        "a": 1.0,
        "b": (-2.0 - -5.0) / (-1.0 - -5.0),
        "c": 0.0,
    }


@pytest.mark.parametrize(("score", "expected"), [(0.3, 1.0), (0.0, 0.0), (-0.2, 0.0)])
def test_equal_scores_are_1_if_above_0_and_else_0(score: float, expected: float) -> None:
    assert min_max({"a": score}) == {"a": expected}
    assert min_max({"a": score, "b": score}) == {"a": expected, "b": expected}
