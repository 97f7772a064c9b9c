import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from tests.cases import cases
from tests.quick import examples

tfs = st.integers(1, 1000)
lengths = st.integers(1, 10_000)


def test_the_weight_is_that_of_the_paper() -> None:
    weight = bm25_term_weight(3, length=120, average_length=80, k1=1.5, b=0.6)
    assert weight == pytest.approx(3 * (1.5 + 1) / (3 + 1.5 * (1 - 0.6 + 0.6 * 120 / 80)))


def test_the_defaults_are_those_of_lucene() -> None:
    weight = bm25_term_weight(2, length=30, average_length=60)
    assert weight == pytest.approx(2 * (1.2 + 1) / (2 + 1.2 * (1 - 0.75 + 0.75 * 30 / 60)))


def test_the_weight_of_an_array_is_that_of_its_numbers() -> None:
    tf, length = np.array([1, 2, 9]), np.array([10, 400, 55])
    expected = [
        bm25_term_weight(t, length=n, average_length=60)
        for t, n in zip(tf.tolist(), length.tolist(), strict=True)
    ]
    weights = bm25_term_weight(tf, length=length, average_length=60)
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights, expected, rtol=1e-14)


@examples(50)
@given(tf=tfs, length=lengths, k1=st.floats(0, 5), b=st.floats(0, 1))
def test_the_weight_is_in_range_and_grows_with_tf_and_shortness(
    tf: int, length: int, k1: float, b: float
) -> None:
    weight = bm25_term_weight(tf, length=length, average_length=100, k1=k1, b=b)
    more = bm25_term_weight(tf + 1, length=length, average_length=100, k1=k1, b=b)
    longer = bm25_term_weight(tf, length=length + 1, average_length=100, k1=k1, b=b)
    nearly = 1 + 1e-12
    assert 0 < longer <= weight * nearly
    assert weight <= more * nearly <= (k1 + 1) * nearly**2


@cases(
    "wrong",
    [
        {"average_length": 0.0},
        {"average_length": math.nan},
        {"k1": -0.1},
        {"k1": math.inf},
        {"b": -0.1},
        {"b": 1.1},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="expected an average above 0"):
        bm25_term_weight(1, length=1, **{"average_length": 1.0, **wrong})
