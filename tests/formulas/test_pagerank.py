"""Personalised PageRank agrees with its closed form and with a dense solution."""

import numpy as np
import pytest

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.formulas.pagerank import personalised_pagerank, transition_matrix
from tests.cases import cases


def test_two_nodes_have_the_closed_form() -> None:
    walk = transition_matrix([0, 1], [1, 0], size=2)
    scores = personalised_pagerank(walk, [1, 0], damping=0.5, steps=40)
    assert scores == pytest.approx([1 / 1.5, 0.5 / 1.5], abs=1e-6)


def test_scores_solve_the_equation_with_weights_and_dangling_nodes() -> None:
    rng = np.random.default_rng(3)
    size, damping = 30, 0.7
    sources, targets = rng.integers(0, size - 3, 90), rng.integers(0, size, 90)
    walk = transition_matrix(sources, targets, rng.random(90) + 0.1, size=size)
    restart = rng.random(size)
    dense = walk.toarray().astype(float)
    dense[:, dense.sum(axis=0) == 0] = (restart / restart.sum())[:, None]
    left = np.eye(size) - damping * dense
    expected = np.linalg.solve(left, (1 - damping) * restart / restart.sum())
    scores = personalised_pagerank(walk, restart, damping=damping, steps=80)
    assert scores == pytest.approx(expected, abs=1e-5)


def test_without_restart_nodes_every_score_is_zero() -> None:
    assert personalised_pagerank(transition_matrix([0], [1], size=2), [0, 0]).tolist() == [0, 0]


@cases(
    ("options", "error"),
    [
        ({"damping": 1.0}, ConfigurationError),
        ({"steps": 0}, ConfigurationError),
        ({"restart": [1]}, ConfigurationError),
        ({"restart": [1, -1]}, ScoreError),
        ({"restart": [1, float("nan")]}, ScoreError),
    ],
)
def test_arguments_of_pagerank_out_of_range_are_refused(
    options: dict[str, float], error: type[Exception]
) -> None:
    walk = transition_matrix([0], [1], size=2)
    with pytest.raises(error):
        personalised_pagerank(walk, **{"restart": [1, 0], **options})  # type: ignore[arg-type]


@cases(("edges", "weights"), [(([0], [2]), None), (([0], [1, 1]), None), (([0], [1]), [0.0])])
def test_edges_outside_the_matrix_or_without_weight_are_refused(
    edges: tuple[list[int], list[int]], weights: list[float] | None
) -> None:
    with pytest.raises(ConfigurationError):
        transition_matrix(*edges, weights, size=2)
