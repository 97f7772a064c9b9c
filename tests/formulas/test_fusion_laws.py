"""Laws of every fusion formula (rrf, comb, weighted_sum), on any input."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.formulas.fusion import (
    best_of_legs,
    comb_max_shares,
    ranked,
    reciprocal_rank_shares,
    sum_of_legs,
    weighted_sum_shares,
)
from tests.quick import examples

Ranking = list[str]
Scores = dict[str, float]
Fusion = Callable[..., Scores]


def fused_by(shares: Callable[..., list[Scores]], combine: Callable[..., Scores]) -> Fusion:
    return lambda legs, **options: combine(shares(legs, **options))


reciprocal_rank_fusion = fused_by(reciprocal_rank_shares, sum_of_legs)
weighted_sum = fused_by(weighted_sum_shares, sum_of_legs)
comb_max = fused_by(comb_max_shares, best_of_legs)

laws = examples(40)
rankings = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)
scores = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1)), max_size=4)
weights = st.floats(0.01, 100)
BY_RANK: list[Fusion] = [reciprocal_rank_fusion]
BY_SCORE: list[Fusion] = [weighted_sum, comb_max]
by_rank = pytest.mark.parametrize("fusion", BY_RANK)
by_score = pytest.mark.parametrize("fusion", BY_SCORE)


def shuffled(data: st.DataObject, legs: Sequence[object]) -> list[int]:
    return data.draw(st.permutations(range(len(legs))), label="order of the legs")


@pytest.mark.parametrize("fusion", [*BY_RANK, *BY_SCORE])
@laws
@given(data=st.data())
def test_the_order_of_the_legs_does_not_matter(fusion: Fusion, data: st.DataObject) -> None:
    kind: st.SearchStrategy[list[Any]] = rankings if fusion in BY_RANK else scores
    legs = data.draw(kind)
    share = [data.draw(weights) for _ in legs]
    order = shuffled(data, legs)
    again = fusion([legs[i] for i in order], weights=[share[i] for i in order])
    assert fusion(legs, weights=share) == again


@by_rank
@laws
@given(
    ranking=st.lists(st.sampled_from("abcdefgh"), unique=True),
    times=st.integers(1, 4),
    weight=weights,
)
def test_fusing_a_ranking_with_itself_keeps_its_order(
    fusion: Fusion, ranking: Ranking, times: int, weight: float
) -> None:
    fused = fusion([ranking] * times, weights=[weight] * times)
    assert [node_id for node_id, _ in ranked(fused)] == ranking


@by_rank
@laws
@given(legs=rankings.filter(lambda legs: any(len(leg) > 1 for leg in legs)))
def test_moving_up_in_one_leg_never_costs(fusion: Fusion, legs: list[Ranking]) -> None:
    moved = [list(leg) for leg in legs]
    leg = next(leg for leg in moved if len(leg) > 1)
    riser = leg[-1]
    leg[-2:] = reversed(leg[-2:])
    assert fusion(moved)[riser] > fusion(legs)[riser]


@by_score
@laws
@given(data=st.data(), legs=scores.filter(any), more=st.floats(0, 1))
def test_a_better_score_in_one_leg_never_costs(
    fusion: Fusion, data: st.DataObject, legs: list[Scores], more: float
) -> None:
    place = next(place for place, leg in enumerate(legs) if leg)
    riser = data.draw(st.sampled_from(sorted(legs[place])))
    raised = [dict(leg) for leg in legs]
    raised[place][riser] += more
    assert fusion(raised)[riser] >= fusion(legs)[riser]


@laws
@given(data=st.data(), legs=scores)
def test_a_convex_combination_lies_between_the_legs(
    data: st.DataObject, legs: list[Scores]
) -> None:
    share = [data.draw(weights) for _ in legs]
    for node_id, fused in weighted_sum(legs, weights=share).items():
        parts = [leg.get(node_id, 0.0) for leg in legs]
        assert min(parts) - 1e-12 <= fused <= max(parts) + 1e-12
