from llama_retrieval_ext.formulas.normalisation import rank_normalise


def test_scores_become_evenly_spaced() -> None:
    assert rank_normalise({"c": -4.0, "a": 100.0, "b": 0.5, "d": -4.5}) == {
        "a": (4 - 1 + 1) / 4,
        "b": (4 - 2 + 1) / 4,
        "c": (4 - 3 + 1) / 4,
        "d": (4 - 4 + 1) / 4,
    }


def test_equal_scores_share_the_best_of_their_ranks() -> None:
    assert rank_normalise({"a": 2.0, "b": 1.0, "c": 1.0, "d": 0.0}) == {
        "a": (4 - 1 + 1) / 4,
        "b": (4 - 2 + 1) / 4,
        "c": (4 - 2 + 1) / 4,
        "d": (4 - 4 + 1) / 4,
    }


def test_equal_scores_alone_are_all_best() -> None:
    assert rank_normalise({"a": -1.0, "b": -1.0}) == {"a": 1.0, "b": 1.0}


def test_a_single_score_is_best() -> None:
    assert rank_normalise({"a": 0.0}) == {"a": 1.0}
