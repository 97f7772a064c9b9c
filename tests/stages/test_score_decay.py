"""`ScoreDecay`: older hits count less."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.results import SearchResult, node_ids
from llama_retrieval_ext.stages.decay import ScoreDecay
from llama_retrieval_ext.testing.fakes import FakeRetriever, Row

BY_YEAR = ScoreDecay("year", half_life=3, origin=2026)


def searched(*rows: Row, stage: ScoreDecay = BY_YEAR) -> SearchResult:
    pipeline = FakeRetriever(rows) >> stage
    result = pipeline.search("q")
    assert asyncio.run(pipeline.asearch("q")).hits == result.hits
    return result


def test_a_score_is_multiplied_by_the_factor_of_its_age() -> None:
    found = searched(("old", 0.8, "", {"year": 2023}), ("new", 0.5, "", {"year": 2026})).hits
    assert [(hit.node_id, hit.score) for hit in found] == [("new", 0.5), ("old", 0.4)]


def test_a_negative_score_falls_as_far_as_a_positive_one_would() -> None:
    found = searched(("old", -0.8, "", {"year": 2023}), ("new", -1.0, "", {"year": 2026})).hits
    assert [(hit.node_id, hit.score) for hit in found] == [
        ("new", -1.0),
        ("old", pytest.approx(-1.2)),
    ]


@given(
    st.floats(min_value=-1e6, max_value=1e6),
    st.integers(min_value=1900, max_value=2030),
    st.integers(min_value=1900, max_value=2030),
)
def test_older_is_never_better(score: float, year: int, other: int) -> None:
    older, newer = sorted((year, other))
    result = (
        FakeRetriever([("o", score, "", {"year": older}), ("n", score, "", {"year": newer})])
        >> BY_YEAR
    ).retrieve("q")
    scores = {hit.node_id: hit.score or 0.0 for hit in result}
    assert scores["o"] <= scores["n"] <= score


def test_a_hit_that_tells_no_age_keeps_its_score_unless_told_otherwise() -> None:
    assert searched(("a", 0.8)).hits[0].score == 0.8
    stage = ScoreDecay("year", half_life=3, origin=2026, unknown=0.5)
    assert searched(("a", 0.8), stage=stage).hits[0].score == 0.4


def test_an_age_that_cannot_be_read_degrades_the_answer() -> None:
    result = searched(("a", 0.8, "", {"year": "last"}), ("b", 0.7, "", {"year": 2026}))
    assert node_ids(result.hits) == ["a", "b"]
    (degraded,) = result.degraded
    assert degraded.where == "ScoreDecay"
    assert degraded.reason.startswith("1 of 2 hits have no readable age under 'year'")


def test_a_missing_age_does_not_degrade_the_answer() -> None:
    assert searched(("a", 0.8)).degraded == ()


def test_the_factor_and_what_it_took_are_told() -> None:
    (hit,) = searched(("a", 0.8, "", {"year": 2023})).hits
    before, decay = hit.contributions
    assert (before.leg, before.share) == ("FakeRetriever", 0.8)
    assert (decay.leg, decay.score, decay.share) == ("ScoreDecay", 0.5, -0.4)


def test_a_hit_without_a_score_is_an_error() -> None:
    with pytest.raises(ScoreError):
        searched(("a", None))


@pytest.mark.parametrize("wrong", [{"half_life": -1}, {"origin": "yesterday"}, {"unknown": -0.1}])
def test_bad_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ScoreDecay("date", **{"half_life": 30, **wrong})


def test_its_representation_is_its_expression() -> None:
    stage = ScoreDecay("date", half_life=30, curve="linear", origin="2026-01-01")
    assert eval(repr(stage)) == stage
