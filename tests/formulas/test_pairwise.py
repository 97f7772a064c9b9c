"""Tests of `pairwise_weights`."""

import numpy as np
import pytest
from scipy.optimize import minimize

from llama_retrieval_ext.formulas.pairwise import pairwise_weights


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
