"""Every normalisation against values worked out by hand, and laws on any finite scores."""

import math
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.formulas.normalisation import (
    deviations,
    distribution_based,
    min_max,
    theoretical_min_max,
    z_score,
)
from tests.cases import cases
from tests.quick import examples

Scores = dict[str, float]
Normalise = Callable[[Scores], Scores]

laws = examples(40)
finite = st.floats(-1e100, 1e100) | st.floats(-1, 1) | st.integers(-3, 3).map(float)
any_scores = st.dictionaries(st.sampled_from("abcdefghijklmnopqrst"), finite)
low = partial(partial, theoretical_min_max)
in_unit_range = [min_max, low(low=0.0), low(low=-1.0, high=1.0)]
every = pytest.mark.parametrize("normalise", [*in_unit_range, distribution_based, z_score])

MEAN = (9 + 5 + 1) / 3
SAMPLE_DEVIATION = math.sqrt(((9 - MEAN) ** 2 + (5 - MEAN) ** 2 + (1 - MEAN) ** 2) / (3 - 1))
POPULATION_DEVIATION = math.sqrt(((9 - MEAN) ** 2 + (5 - MEAN) ** 2 + (1 - MEAN) ** 2) / 3)
as_llama_index = partial(distribution_based, as_llama_index=True)


@cases(
    ("normalise", "scores", "expected"),
    [
        (min_max, [7.5, 4.0, 2.5], [1.0, (4.0 - 2.5) / (7.5 - 2.5), 0.0]),
        # Equal scores are 1 if above 0, else 0.
        (min_max, [0.3, 0.3], [1.0, 1.0]),
        (min_max, [0.0, 0.0], [0.0, 0.0]),
        (min_max, [-0.2], [0.0]),
        (z_score, [9, 5, 1], [4 / POPULATION_DEVIATION, 0.0, -4 / POPULATION_DEVIATION]),
        (z_score, [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]),
        # Within three deviations of a sample below and above the mean.
        (
            distribution_based,
            [9, 5, 1],
            [0.5 + 4 / (6 * SAMPLE_DEVIATION), 0.5, 0.5 - 4 / (6 * SAMPLE_DEVIATION)],
        ),
        (distribution_based, [0.1, 0.1, 0.1], [0.5, 0.5, 0.5]),
        # LlamaIndex divides by n and gives equal scores 1 or 0.
        (
            as_llama_index,
            [9, 5, 1],
            [0.5 + 4 / (6 * POPULATION_DEVIATION), 0.5, 0.5 - 4 / (6 * POPULATION_DEVIATION)],
        ),
        (as_llama_index, [0.4], [1.0]),
        # From the least possible score to the highest possible or at hand.
        (low(low=0), [8.0, 3.0], [1.0, 3.0 / 8.0]),
        (low(low=-1, high=1), [0.8, -0.5], [(0.8 - -1) / (1 - -1), (-0.5 - -1) / (1 - -1)]),
        (low(low=0), [0.0, 0.0], [0.0, 0.0]),
        (low(low=-1, high=1), [1.0000001, 0.0, -1.0000001], [1.0, 0.5, 0.0]),
        (deviations, [0.5, 0.25, 0.0], [0.25, 0.0, -0.25]),
        # The plain mean of three 0.1 is not 0.1.
        (deviations, [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]),
        (
            deviations,
            [1000.0 + math.ulp(1000.0), 1000.0],
            [math.ulp(1000.0) / 2, -math.ulp(1000.0) / 2],
        ),
    ],
)
def test_a_normalisation_gives_the_values_worked_out_by_hand(
    normalise: Normalise, scores: list[float], expected: list[float]
) -> None:
    named = dict(zip("abcd", scores, strict=False))
    result = normalise(named)
    assert list(result) == list(named)
    assert list(result.values()) == pytest.approx(expected, rel=1e-12, abs=0)


def test_scores_beyond_three_deviations_are_not_clipped() -> None:
    scores = {f"n{i}": 0.0 for i in range(30)} | {"n30": 1.0}
    assert distribution_based(scores)["n30"] > 1.0


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


@pytest.mark.parametrize("normalise", [min_max, z_score, distribution_based])
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


@cases("normalise", [*in_unit_range, distribution_based, z_score, deviations])
def test_normalising_no_scores_gives_none(normalise: Normalise) -> None:
    assert normalise({}) == {}


@cases("normalise", [min_max, z_score, distribution_based, deviations])
@cases("wrong", [None, math.nan, -math.inf])
def test_a_score_that_is_not_finite_is_refused(normalise: Normalise, wrong: float) -> None:
    with pytest.raises(ScoreError, match=f"the score of 'b' is {wrong}"):
        normalise({"a": 0.5, "b": wrong})


@every
def test_the_smallest_differences_do_not_break_the_arithmetic(normalise: Normalise) -> None:
    result = normalise({f"n{i}": 0.0 for i in range(20)} | {"top": 5e-324})
    assert all(math.isfinite(value) for value in result.values())
    assert result["top"] >= result["n0"]
