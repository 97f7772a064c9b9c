"""Agreement with ranx, an independent implementation, on fifty random queries at once.

Left out, because we differ on purpose: equal scores under min-max (ranx gives 0.0, we give 1.0 if
they are above 0) and under rank normalisation (ranx ranks them by place, with us they share the
best rank).
"""

import os
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from llama_retrieval_ext.formulas.fusion import (
    best_of_legs,
    comb_max_shares,
    ranked,
    reciprocal_rank_shares,
    sum_of_legs,
    weighted_sum_shares,
)
from llama_retrieval_ext.formulas.normalisation import min_max, z_score

pytestmark = [
    pytest.mark.slow,
    pytest.mark.reference,
    # Those of ranx and numba are not ours.
    pytest.mark.filterwarnings("ignore"),
]

Scores = dict[str, float]
Run = dict[str, Scores]
N_LEGS = 3


@cache
def ranx() -> Any:  # Any: it is not typed
    """Import ranx, which takes seconds, where it is used."""
    # Interpreted: compiling itself takes ranx a minute, and what it fuses here a moment.
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    pytest.importorskip("numba", reason="numba comes with ranx").config.reload_config()
    return pytest.importorskip("ranx", reason="ranx is the oracle; the extra 'test' installs it")


@pytest.fixture(scope="module")
def legs() -> list[Run]:
    """Three legs of fifty queries; they overlap in part, and their scores are on other scales."""
    rng = random.Random(20261121)
    ids = [f"n{number:02d}" for number in range(40)]

    def leg(scale: float) -> Run:
        return {
            f"q{number:02d}": {
                node_id: scale * rng.random() for node_id in rng.sample(ids, rng.randint(2, 25))
            }
            for number in range(50)
        }

    return [leg(1.0), leg(30.0), leg(0.01)]


def weighted_sum(scores: list[Scores], weights: list[float] | None = None) -> Scores:
    return sum_of_legs(weighted_sum_shares(scores, weights=weights))


def by_query(legs: list[Run], fuse: Callable[[list[Scores]], Scores]) -> Run:
    return {query: fuse([leg[query] for leg in legs]) for query in legs[0]}


def by_rank(fuse: Callable[[list[list[str]]], Scores]) -> Callable[[list[Scores]], Scores]:
    """The same fusion, given the rankings that scores stand for."""
    return lambda scores: fuse([[node_id for node_id, _ in ranked(leg)] for leg in scores])


def ranx_fuse(legs: list[Run], method: str, **params: Any) -> Run:  # Any: what ranx takes
    runs = [ranx().Run(leg) for leg in legs]
    return as_dict(ranx().fuse(runs, norm=None, method=method, params=params or None))


def as_dict(run: Any) -> Run:  # Any: ranx is not typed
    return {query: dict(scores) for query, scores in run.run.items()}


def assert_agree(ours: Run, theirs: Run) -> None:
    assert ours.keys() == theirs.keys()
    for query, scores in ours.items():
        assert scores == pytest.approx(theirs[query], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("k", [0, 1, 60])
def test_reciprocal_rank_fusion_agrees(legs: list[Run], k: int) -> None:
    ours = by_query(
        legs, by_rank(lambda rankings: sum_of_legs(reciprocal_rank_shares(rankings, k=k)))
    )
    assert_agree(ours, ranx_fuse(legs, "rrf", k=k))


def test_the_weighted_sum_agrees(legs: list[Run]) -> None:
    weights = [0.5, 0.3, 0.2]
    ours = by_query(legs, lambda scores: weighted_sum(scores, weights=weights))
    assert_agree(ours, ranx_fuse(legs, "wsum", weights=weights))


def test_the_unweighted_sum_is_the_mean_of_the_sum_of_ranx(legs: list[Run]) -> None:
    ours = by_query(legs, lambda scores: {i: N_LEGS * s for i, s in weighted_sum(scores).items()})
    assert_agree(ours, ranx_fuse(legs, "sum"))


def test_comb_max_agrees(legs: list[Run]) -> None:
    assert_agree(
        by_query(legs, lambda scores: best_of_legs(comb_max_shares(scores))), ranx_fuse(legs, "max")
    )


@pytest.mark.parametrize(
    ("normalise", "theirs"), [(min_max, "min_max_norm"), (z_score, "zmuv_norm")]
)
def test_normalisations_agree(
    legs: list[Run], normalise: Callable[[Scores], Scores], theirs: str
) -> None:
    for leg in legs:
        ours = {query: normalise(scores) for query, scores in leg.items()}
        assert_agree(ours, as_dict(getattr(ranx().normalization, theirs)(ranx().Run(leg))))


def test_normalised_fusion_ranks_as_ranx_does(legs: list[Run]) -> None:
    runs = [ranx().Run(leg) for leg in legs]
    theirs = as_dict(ranx().fuse(runs, norm="min-max", method="sum"))
    ours = by_query(legs, lambda scores: sum_of_legs([min_max(leg) for leg in scores]))
    assert_agree(ours, theirs)
    for query, scores in ours.items():
        best = sorted(theirs[query].values(), reverse=True)
        assert [score for _, score in ranked(scores)] == pytest.approx(best)
