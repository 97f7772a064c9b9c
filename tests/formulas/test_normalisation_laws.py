"""Laws that hold for every normalisation, on any finite scores."""

import math
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.formulas.normalisation import (
    distribution_based,
    min_max,
    rank_normalise,
    theoretical_min_max,
    z_score,
)
from tests.cases import each_case
from tests.quick import examples

Scores = dict[str, float]
Normalise = Callable[[Scores], Scores]

laws = examples(40)
finite = st.floats(-1e100, 1e100) | st.floats(-1, 1) | st.integers(-3, 3).map(float)
any_scores = st.dictionaries(st.sampled_from("abcdefghijklmnopqrst"), finite)
in_unit_range = [
    min_max,
    partial(theoretical_min_max, low=0.0),
    partial(theoretical_min_max, low=-1.0, high=1.0),
    rank_normalise,
]
every = pytest.mark.parametrize("normalise", [*in_unit_range, distribution_based, z_score])


@pytest.mark.parametrize("normalise", in_unit_range)
@laws
@given(scores=any_scores)
def test_normalised_scores_lie_in_the_unit_range(normalise: Normalise, scores: Scores) -> None:
    assert all(0.0 <= value <= 1.0 for value in normalise(scores).values())


@laws
@given(scores=any_scores)
def test_z_scores_are_finite_and_bounded(scores: Scores) -> None:
    assert all(abs(value) <= math.sqrt(len(scores)) for value in z_score(scores).values())


@every
@laws
@given(scores=any_scores)
def test_a_better_score_is_never_normalised_to_a_worse(
    normalise: Normalise, scores: Scores
) -> None:
    result = normalise(scores)
    order = sorted(scores, key=lambda node_id: (scores[node_id], result[node_id]))
    assert [result[node_id] for node_id in order] == sorted(result.values())


@every
@laws
@given(scores=any_scores)
def test_equal_scores_are_normalised_alike(normalise: Normalise, scores: Scores) -> None:
    result = normalise({**scores, "one": 0.5, "other": 0.5})
    assert result["one"] == result["other"]


@every
@laws
@given(scores=any_scores)
def test_every_id_comes_out_and_the_input_stays(normalise: Normalise, scores: Scores) -> None:
    before = dict(scores)
    assert list(normalise(scores)) == list(before)
    assert scores == before


@pytest.mark.parametrize("normalise", [min_max, z_score, distribution_based, rank_normalise])
@laws
@given(
    ranks=st.dictionaries(st.text(max_size=3), st.integers(-50, 50).map(float), max_size=20),
    factor=st.sampled_from([0.125, 0.5, 2.0, 1024.0]),
    shift=st.integers(-100, 100),
)
def test_the_scale_of_the_retriever_does_not_matter(
    normalise: Normalise, ranks: Scores, factor: float, shift: int
) -> None:
    assume(len({*ranks.values()}) != 1)  # min-max gives equal scores 1 or 0, by their sign
    rescaled = {node_id: factor * score + shift for node_id, score in ranks.items()}
    assert normalise(rescaled) == pytest.approx(normalise(ranks))


@every
def test_nothing_gives_nothing(normalise: Normalise) -> None:
    assert normalise({}) == {}


@every
@each_case("wrong", [None, math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(normalise: Normalise, wrong: float) -> None:
    with pytest.raises(ScoreError, match=f"the score of 'b' is {wrong}"):
        normalise({"a": 0.5, "b": wrong})


@every
def test_the_smallest_differences_do_not_break_the_arithmetic(normalise: Normalise) -> None:
    result = normalise({f"n{i}": 0.0 for i in range(20)} | {"top": 5e-324})
    assert all(math.isfinite(value) for value in result.values())
    assert result["top"] >= result["n0"]
