"""Tests of significance against closed forms and sign patterns written out."""

import numpy as np
import pytest

from llama_retrieval_ext.evaluation.significance import (
    holm,
    paired_t_test,
    randomisation_test,
    standard_error,
)


@pytest.mark.slow
def test_few_differences_are_tested_exactly() -> None:
    # Of the 2^4 sign patterns only all + and all - are as far from 0.
    assert randomisation_test([1.0, 2.0, 3.0, 4.0]) == 2 / 16


@pytest.mark.slow
def test_many_differences_are_tested_by_seeded_random_sign_patterns() -> None:
    values = np.random.default_rng(2).normal(0.05, 0.3, size=60)
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=(20_000, 60))
    as_far = np.abs(signs @ values) >= abs(values.sum())
    p_value = randomisation_test(values.tolist())
    assert p_value == randomisation_test(values.tolist()) == pytest.approx(as_far.mean(), abs=0.02)
    assert p_value != randomisation_test(values.tolist(), seed=1)
    assert p_value == pytest.approx(paired_t_test(values.tolist()), abs=0.02)
    assert randomisation_test([1.0] * 60) == pytest.approx(2 / 10_001)  # never 0


def test_no_difference_is_not_significant() -> None:
    assert randomisation_test([0.0] * 30) == paired_t_test([0.0] * 30) == 1.0
    assert randomisation_test([0.2]) == paired_t_test([0.2]) == 1.0
    assert randomisation_test([]) == paired_t_test([]) == 1.0
    assert standard_error([0.2]) == float("inf")


def test_correction_steps_down_and_never_below_the_one_before() -> None:
    assert holm([0.04, 0.001, 0.03]) == [pytest.approx(0.06), 0.003, pytest.approx(0.06)]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
