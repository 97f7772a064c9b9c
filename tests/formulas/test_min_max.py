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


def test_equal_scores_are_not_thrown_to_the_bottom() -> None:
    assert min_max({"a": 0.3, "b": 0.3}) == {"a": 1.0, "b": 1.0}


def test_f10_a_single_score_keeps_its_weight_even_if_negative() -> None:
    assert min_max({"a": -0.2}) == {"a": 1.0}
