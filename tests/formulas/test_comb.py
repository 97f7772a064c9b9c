from collections.abc import Sequence

from llama_retrieval_ext.formulas.comb import best_of_legs, comb_max_shares


def comb_max(
    scores: Sequence[dict[str, float]], *, weights: Sequence[float] | None = None
) -> dict[str, float]:
    return best_of_legs(comb_max_shares(scores, weights=weights))


def test_an_id_missing_from_a_leg_does_not_count_as_zero() -> None:
    assert comb_max([{"a": -0.5}, {"b": 1.0}]) == {"a": -0.5, "b": 1.0}


def test_the_best_weighted_score_wins() -> None:
    fused = comb_max([{"a": 0.5, "b": 0.5}, {"a": 0.25}, {"c": 1.0}], weights=[1, 4, 0])
    assert fused == {"a": 4 * 0.25, "b": 1 * 0.5}
