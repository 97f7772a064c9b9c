from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.formulas.scores import ranked
from tests.quick import examples


def test_the_best_score_comes_first() -> None:
    assert ranked({"a": 0.1, "b": 0.9, "c": -2.0}) == [("b", 0.9), ("a", 0.1), ("c", -2.0)]


def test_equal_scores_come_by_id() -> None:
    assert ranked({"c": 1.0, "a": 1.0, "b": 1.0}) == [("a", 1.0), ("b", 1.0), ("c", 1.0)]


def test_zero_and_minus_zero_are_equal() -> None:
    assert [node_id for node_id, _ in ranked({"b": 0.0, "a": -0.0})] == ["a", "b"]


def test_nothing_gives_nothing() -> None:
    assert ranked({}) == []


@examples(50)
@given(st.dictionaries(st.text(max_size=2), st.floats(-3, 3), max_size=8))
def test_the_order_is_that_of_score_then_id(scores: dict[str, float]) -> None:
    assert ranked(scores) == sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
