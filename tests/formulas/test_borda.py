import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.borda import borda_count, borda_shares


def test_points_fall_by_one_from_the_number_of_candidates() -> None:
    assert borda_count([["a", "b", "c"], ["c", "a", "b"]]) == {"a": 3 + 2, "b": 2 + 1, "c": 1 + 3}


def test_unranked_candidates_share_the_points_that_are_left() -> None:
    # Four candidates: the second leg gives d 4 points; 3 + 2 + 1 are left for a, b and c.
    left = (3 + 2 + 1) / 3
    fused = borda_count([["a", "b", "c", "d"], ["d"]])
    assert fused == {"a": 4 + left, "b": 3 + left, "c": 2 + left, "d": 1 + 4}


def test_a_leg_that_found_nothing_prefers_nobody() -> None:
    assert borda_count([["a", "b"], []]) == {"a": 2 + (2 + 1) / 2, "b": 1 + (2 + 1) / 2}


def test_each_leg_counts_with_its_weight() -> None:
    fused = borda_count([["a", "b"], ["b"]], weights=[0.5, 3])
    assert fused == {"a": 0.5 * 2 + 3 * 1, "b": 0.5 * 1 + 3 * 2}


def test_a_leg_of_weight_zero_is_left_out_also_from_the_candidates() -> None:
    assert borda_count([["a", "b"], ["c", "d", "b"]], weights=[1, 0]) == {"a": 2, "b": 1}


def test_a_repeated_id_counts_once_and_the_rest_moves_up() -> None:
    assert borda_count([["a", "a", "b"]]) == {"a": 2, "b": 1}


def test_the_points_of_the_legs_are_the_fused_score() -> None:
    first, second = borda_shares([["a", "b", "c"], ["c"]], weights=[0.5, 3])
    assert second == {"a": 3 * (2 + 1) / 2, "b": 3 * (2 + 1) / 2, "c": 3 * 3}
    assert borda_count([["a", "b", "c"], ["c"]], weights=[0.5, 3]) == {
        node_id: first[node_id] + second[node_id] for node_id in "abc"
    }


def test_nothing_gives_nothing() -> None:
    assert borda_count([]) == {}
    assert borda_count([[], []]) == {}


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="got 2 weights for 1 rankings"):
        borda_count([["a"]], weights=[1, 1])
