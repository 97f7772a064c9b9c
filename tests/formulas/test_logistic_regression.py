"""Logistic regression fits what it is defined to fit."""

import numpy as np
import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.logistic_regression import logistic, logistic_regression


def test_the_gradient_of_the_penalised_likelihood_is_zero_at_the_fit() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(80, 3)) * [1.0, 20.0, 0.1] + [0.0, 5.0, -1.0]
    labels = rows @ [1.0, 0.05, 3.0] + rng.normal(size=80) > -3
    weights, intercept = logistic_regression(rows.tolist(), labels.tolist(), l2=2.0)
    missing = labels - np.array([logistic(x) for x in rows @ weights + intercept])
    deviation = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / deviation
    assert missing.sum() == pytest.approx(0.0, abs=1e-6)
    assert scaled.T @ missing == pytest.approx(2.0 * np.array(weights) * deviation, abs=1e-6)


def test_a_column_that_never_varies_has_the_weight_zero() -> None:
    weights, _ = logistic_regression([[7.0, 0.0], [7.0, 1.0]], [False, True])
    assert weights[0] == 0.0
    assert weights[1] > 0.0


@pytest.mark.parametrize("number", [-1e9, 1e9])
def test_a_probability_is_never_exactly_zero_or_one(number: float) -> None:
    assert 0.0 < logistic(number) < 1.0


@pytest.mark.parametrize("labels", [[True, True], [True], []])
def test_labels_without_both_outcomes_for_each_row_are_refused(labels: list[bool]) -> None:
    with pytest.raises(ConfigurationError, match="expected one label a row, and both outcomes"):
        logistic_regression([[1.0], [2.0]], labels)
