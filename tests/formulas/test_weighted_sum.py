from collections.abc import Sequence

from llama_retrieval_ext.formulas.scores import sum_of_legs
from llama_retrieval_ext.formulas.weighted_sum import weighted_sum_shares


def weighted_sum(
    scores: Sequence[dict[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return sum_of_legs(weighted_sum_shares(scores, weights=weights))


def test_an_empty_leg_keeps_its_weight() -> None:
    assert weighted_sum([{"a": 1.0}, {}], weights=[1, 3]) == {"a": 1 / 4 * 1.0}


def test_the_shares_of_the_legs_add_up_to_the_fused_score() -> None:
    first, second = weighted_sum_shares([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2])
    assert (first, second) == ({"a": 6 / 8 * 1.0}, {"a": 2 / 8 * 0.5, "b": 2 / 8 * 1.0})
    assert weighted_sum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[6, 2]) == {
        "a": first["a"] + second["a"],
        "b": second["b"],
    }
