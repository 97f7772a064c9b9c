"""Cosines of many embeddings with one."""

import math

import numpy as np
import pytest

from llama_retrieval_ext.errors import DimensionMismatchError, ScoreError
from llama_retrieval_ext.formulas.cosine import cosines, matrix
from tests.cases import cases


def test_the_cosine_is_that_of_the_angle() -> None:
    rows = matrix([[1, 0], [1, 1], [0, 2], [-3, 0]], dim=2)
    assert cosines(rows, [5, 0]) == pytest.approx([1.0, math.sqrt(0.5), 0.0, -1.0])


def test_lists_tuples_and_arrays_make_the_same_rows() -> None:
    rows = matrix([[0.1, 0.2], (0.1, 0.2), np.array([0.1, 0.2]), np.array([0.1, 0.2], "f4")], dim=2)
    assert (rows == rows[0]).all()
    assert rows.dtype == np.float32


def test_the_cosine_with_a_zero_vector_is_zero() -> None:
    assert cosines(matrix([[0, 0], [1, 1]], dim=2), [0, 0]).tolist() == [0.0, 0.0]


def test_an_embedding_of_another_dimension_is_refused() -> None:
    with pytest.raises(DimensionMismatchError, match="embedding 1 has 3 dimensions"):
        matrix([[1, 0], [1, 0, 0]], dim=2)


@cases("value", [math.nan, math.inf, 3e38, 1e300])
def test_values_that_are_not_finite_or_too_large_are_refused(value: float) -> None:
    with pytest.raises(ScoreError, match="finite"):
        cosines(matrix([[value, 3e38]], dim=2), [1, 1])


@cases("value", [None, "1", 10**400])
def test_values_that_are_not_numbers_are_refused(value: object) -> None:
    with pytest.raises(ScoreError, match="embedding 0"):
        matrix([[value, 0.0]], dim=2)  # type: ignore[list-item]
