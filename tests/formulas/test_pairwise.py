"""Weights learned from pairs, and the adapter of queries."""

import numpy as np
import pytest
from scipy.optimize import minimize

from llama_retrieval_ext.formulas.pairwise import pairwise_weights
from llama_retrieval_ext.formulas.query_adapter import adapted, query_adapter


@pytest.mark.slow
def test_it_is_the_minimum_of_its_formula() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        pairs, features = random.integers(1, 40), random.integers(1, 6)
        x, s = random.normal(0, 3, (pairs, features)), random.random(pairs)
        prior, strength = random.random(features), random.random(features) + 0.1
        least = np.where(random.random(features) < 0.5, 0.0, -1.0)

        def loss(
            w: np.ndarray,
            x: np.ndarray = x,
            s: np.ndarray = s,
            prior: np.ndarray = prior,
            strength: np.ndarray = strength,
        ) -> float:
            return float(sum(s * np.log(1 + np.exp(-x @ w))) + sum(strength * (w - prior) ** 2))

        bounds = [(low, None) for low in least]
        expected = minimize(loss, prior, method="L-BFGS-B", bounds=bounds).fun
        found = pairwise_weights(x, s, prior, strength=strength, least=least)
        assert (found >= least).all()
        assert loss(found) <= expected + 1e-6


def test_without_pairs_it_is_the_prior() -> None:
    found = pairwise_weights(np.zeros((0, 2)), [], [1, 0.5], strength=[1, 1], least=[0, 0])
    assert found.tolist() == pytest.approx([1, 0.5])


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
