"""Tests of significance against closed forms and scipy."""

import numpy as np
import pytest
from scipy.stats import permutation_test

from llama_retrieval_ext.evaluation.significance import (
    holm,
    paired_t_test,
    randomisation_test,
    standard_error,
)


def test_few_differences_are_tested_exactly() -> None:
    # Of the 2^4 sign patterns only all + and all - are as far from 0.
    assert randomisation_test([1.0, 2.0, 3.0, 4.0]) == 2 / 16


@pytest.mark.reference
def test_randomisation_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.3, size=12)
    exact = permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert randomisation_test(values.tolist()) == pytest.approx(exact.pvalue, abs=1e-9)
    many = np.random.default_rng(2).normal(0.05, 0.3, size=60)
    assert randomisation_test(many.tolist()) == pytest.approx(
        paired_t_test(many.tolist()), abs=0.02
    )


def test_no_difference_is_not_significant() -> None:
    assert randomisation_test([0.0] * 30) == paired_t_test([0.0] * 30) == 1.0
    assert paired_t_test([0.2]) == 1.0
    assert standard_error([0.2]) == float("inf")


def test_correction_steps_down_and_never_below_the_one_before() -> None:
    assert holm([0.04, 0.001, 0.03]) == [pytest.approx(0.06), 0.003, pytest.approx(0.06)]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
