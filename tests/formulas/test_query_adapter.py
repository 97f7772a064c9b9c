"""Tests of `query_adapter`."""

import numpy as np
import pytest

from llama_retrieval_ext.formulas.query_adapter import adapted, query_adapter


def test_it_is_the_ridge_regression_towards_the_identity() -> None:
    random = np.random.default_rng(0)
    q, t, ridge = random.normal(size=(7, 5)), random.normal(size=(7, 5)), 2.5
    # The normal equations of the formula: W (QᵀQ + λI) = TᵀQ + λI.
    w = (t.T @ q + ridge * np.eye(5)) @ np.linalg.inv(q.T @ q + ridge * np.eye(5))
    query = random.normal(size=5)
    expected = w @ query * np.linalg.norm(query) / np.linalg.norm(w @ query)
    assert adapted(query, q, query_adapter(q, t, ridge=ridge)) == pytest.approx(expected)


def test_a_strong_ridge_is_the_identity() -> None:
    factor = query_adapter([[1, 0]], [[0, 1]], ridge=1e9)
    assert adapted([0.6, 0.8], [[1, 0]], factor) == pytest.approx([0.6, 0.8])
