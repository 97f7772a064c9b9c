import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from tests.cases import cases
from tests.quick import examples

Array = npt.NDArray[np.floating[Any]]


def angles(*degrees: float) -> Array:
    """Unit vectors in the plane; the cosine of two is that of the angle between them."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def plain_mmr(similarity: Array, rows: Array, top_k: int, lambda_mult: float) -> list[int]:
    """The definition, pair by pair; the first pick is the most similar."""

    def cosine(i: int, j: int) -> float:
        lengths = math.sqrt(math.fsum(rows[i] ** 2)) * math.sqrt(math.fsum(rows[j] ** 2))
        return math.fsum(rows[i] * rows[j]) / lengths if lengths else 0.0

    def marginal(i: int) -> float:
        nearest = max(cosine(i, j) for j in picked)
        return lambda_mult * float(similarity[i]) - (1 - lambda_mult) * nearest

    picked = [int(np.argmax(similarity))]
    while len(picked) < min(top_k, len(rows)):
        picked.append(max((i for i in range(len(rows)) if i not in picked), key=marginal))
    return picked


def picks(*args: Any, **kwargs: Any) -> list[int]:  # Any: handed on as they are
    return [index for index, _ in maximal_marginal_relevance(*args, **kwargs)]


def test_the_score_is_relevance_less_the_nearest_pick() -> None:
    similarity = [0.9, 0.8, 0.7]
    result = maximal_marginal_relevance(similarity, angles(0, 60, 90), top_k=3, lambda_mult=0.7)
    assert [index for index, _ in result] == [0, 2, 1]
    assert [score for _, score in result] == pytest.approx(
        [0.7 * 0.9, 0.7 * 0.7 - 0.3 * 0.0, 0.7 * 0.8 - 0.3 * math.cos(math.radians(30))]
    )


def test_equal_candidates_come_by_index() -> None:
    rows = np.tile(np.random.default_rng(7).standard_normal(384), (7, 1))
    assert picks(np.full(7, 0.5), rows, top_k=7) == list(range(7))


def test_a_zero_embedding_has_no_redundancy() -> None:
    result = maximal_marginal_relevance([0.9, 0.5], [[1.0, 0.0], [0.0, 0.0]], top_k=2)
    assert result == [(0, 0.5 * 0.9), (1, 0.5 * 0.5)]


def test_no_candidates_give_no_picks() -> None:
    assert maximal_marginal_relevance([], [], top_k=3) == []
    assert maximal_marginal_relevance([], np.empty((0, 384)), top_k=3) == []


@cases("dtype", [np.float16, np.int8])
def test_every_width_of_number_gives_the_same_picks(dtype: type[np.number[Any]]) -> None:
    rows = np.array([[100, 0], [99, 1], [0, 100]], dtype=dtype)
    assert picks([0.9, 0.89, 0.5], rows, top_k=3) == [0, 2, 1]


@examples(40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    top_k=st.integers(1, 14),
    lambda_mult=st.floats(0, 1),
)
def test_the_picks_are_those_of_the_definition(
    seed: int, n: int, top_k: int, lambda_mult: float
) -> None:
    random = np.random.default_rng(seed)
    similarity, rows = random.uniform(-1, 1, n), random.standard_normal((n, 5))
    result = picks(similarity, rows, top_k=top_k, lambda_mult=lambda_mult)
    assert result == plain_mmr(similarity, rows, top_k, lambda_mult)


def test_top_k_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="top_k must be at least 1, got 0"):
        maximal_marginal_relevance([0.5], [[1.0]], top_k=0)


@cases("lambda_mult", [-0.1, 1.1, math.nan])
def test_lambda_out_of_range_is_refused(lambda_mult: float) -> None:
    with pytest.raises(ConfigurationError, match="lambda_mult must be between 0"):
        maximal_marginal_relevance([0.5], [[1.0]], top_k=1, lambda_mult=lambda_mult)


@cases(
    ("similarity", "rows"),
    [([0.5], [[1.0], [2.0]]), ([0.5], []), (0.5, [[1.0]]), ([[0.5]], [[1.0]])],
)
def test_shapes_that_do_not_fit_are_refused(similarity: npt.ArrayLike, rows: npt.ArrayLike) -> None:
    with pytest.raises(ConfigurationError, match="one row per candidate"):
        maximal_marginal_relevance(similarity, rows, top_k=1)


@cases("wrong", [math.nan, math.inf])
def test_a_similarity_that_is_not_finite_is_refused(wrong: float) -> None:
    with pytest.raises(ScoreError, match="similarity of candidate 1 is"):
        maximal_marginal_relevance([0.5, wrong], angles(0, 90), top_k=1)


@cases("wrong", [math.nan, math.inf, 1e200])
def test_an_embedding_that_is_not_finite_is_refused(wrong: float) -> None:
    with pytest.raises(ScoreError, match="embedding 1 has a value that is not finite"):
        maximal_marginal_relevance([0.5, 0.4], [[1.0, 0.0], [0.0, wrong]], top_k=1)
