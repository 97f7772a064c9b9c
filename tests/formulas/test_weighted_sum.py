from collections.abc import Sequence

from llama_retrieval_ext.formulas.scores import sum_of_legs
from llama_retrieval_ext.formulas.weighted_sum import weighted_sum_shares


def weighted_sum(
    scores: Sequence[dict[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return sum_of_legs(weighted_sum_shares(scores, weights=weights))


def test_a_weighted_sum_without_weights_is_the_mean_over_the_legs() -> None:
    fused = weighted_sum([{"a": 0.75, "b": 0.5}, {"b": 0.25}])
    assert fused == {"a": 0.5 * 0.75, "b": 0.5 * 0.5 + 0.5 * 0.25}


def test_only_the_proportions_of_the_weights_count() -> None:
    fused = weighted_sum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2])
    assert fused == {"a": 6 / 8 * 1.0 + 2 / 8 * 0.5, "b": 2 / 8 * 1.0}


def test_an_empty_leg_keeps_its_weight() -> None:
    assert weighted_sum([{"a": 1.0}, {}], weights=[1, 3]) == {"a": 1 / 4 * 1.0}


def test_the_shares_of_the_legs_add_up_to_the_fused_score() -> None:
    first, second = weighted_sum_shares([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2])
    assert (first, second) == ({"a": 6 / 8 * 1.0}, {"a": 2 / 8 * 0.5, "b": 2 / 8 * 1.0})
    assert weighted_sum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2]) == {
        "a": first["a"] + second["a"],
        "b": second["b"],
    }
