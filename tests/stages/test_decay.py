"""Recency, the weight of an age, and ScoreDecay, which applies it to scores."""

import asyncio
import datetime
import math
from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError, ScoreError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.stages.decay import Recency, ScoreDecay
from llama_retrieval_ext.testing.fakes import FakeRetriever, Row
from tests.cases import cases

SINCE_MARCH = Recency("date", half_life=30, origin="2026-03-01")


@cases(
    "date",
    [
        "2026-01-30",
        " 2026-01-30T01:00:00+01:00 ",
        "20260130",
        "20260130T000000Z",
        "2026-W05-5",
        datetime.date(2026, 1, 30),
        datetime.datetime(2026, 1, 30, tzinfo=datetime.UTC),
        datetime.datetime(2026, 1, 30),  # noqa: DTZ001 - without a zone on purpose
    ],
)
def test_dates_in_any_iso_form_are_read(date: object) -> None:
    assert SINCE_MARCH.factor({"date": date}) == pytest.approx(0.5)


@cases(("date", "first_day"), [("2024", "2024-01-01"), ("2024-05", "2024-05-01")])
def test_a_year_or_month_is_its_first_day(date: str, first_day: str) -> None:
    assert SINCE_MARCH.factor({"date": date}) == SINCE_MARCH.factor({"date": first_day})


def test_a_date_in_the_future_has_the_factor_one() -> None:
    assert SINCE_MARCH.factor({"date": "2027-01-01"}) == 1.0


@cases("value", ["soon", "2026-13-01", 20260130, ["2026-01-30"]])
def test_a_value_that_is_not_a_date_has_no_factor(value: object) -> None:
    assert SINCE_MARCH.factor({"date": value}) is None


@cases("metadata", [{}, {"date": None}, {"date": ""}])
def test_missing_dates_have_the_factor_for_the_unknown(metadata: dict[str, object]) -> None:
    assert SINCE_MARCH.factor(metadata) == 1.0
    assert Recency("date", half_life=30, unknown=0.25).factor(metadata) == 0.25


@cases(("value", "factor"), [(2026, 1.0), (2023, 0.5), ("2020", 0.25), (2023.0, 0.5)])
def test_numbers_are_ages_counted_from_a_numeric_origin(value: object, factor: float) -> None:
    assert Recency("year", half_life=3, origin=2026).factor({"year": value}) == factor


def test_without_an_origin_age_counts_from_now() -> None:
    today = datetime.datetime.now(datetime.UTC)
    month_ago = (today - datetime.timedelta(days=30)).isoformat()
    assert Recency("date", half_life=30).factor({"date": month_ago}) == pytest.approx(0.5, abs=1e-4)


@cases("kind", [Recency, ScoreDecay])
@cases(
    "wrong",
    [
        *({"half_life": 0}, {"half_life": math.inf}, {"half_life": "30"}),
        *({"origin": "today"}, {"origin": math.nan}, {"origin": datetime.date(2026, 1, 1)}),
        *({"unknown": 1.5}, {"unknown": "1"}),
    ],
)
def test_an_age_refuses_arguments_out_of_range(kind: type[Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        kind("date", **{"half_life": 30, **wrong})


BY_YEAR = ScoreDecay("year", half_life=3, origin=2026)


def searched(*rows: Row, stage: ScoreDecay = BY_YEAR) -> SearchResult:
    pipeline = FakeRetriever(rows) >> stage
    result = pipeline.search("q")
    assert asyncio.run(pipeline.asearch("q")).hits == result.hits
    return result


def test_a_score_is_multiplied_by_the_factor_of_its_age() -> None:
    found = searched(("old", 0.8, "", {"year": 2023}), ("new", 0.5, "", {"year": 2026})).hits
    assert [(hit.node_id, hit.score) for hit in found] == [("new", 0.5), ("old", 0.4)]


def test_a_hit_without_an_age_keeps_its_score_by_default() -> None:
    result = searched(("a", 0.8))
    assert (result.hits[0].score, result.degraded) == (0.8, ())
    stage = ScoreDecay("year", half_life=3, origin=2026, unknown=0.5)
    assert searched(("a", 0.8), stage=stage).hits[0].score == 0.4


def test_an_unreadable_age_degrades_the_answer() -> None:
    result = searched(("a", 0.8, "", {"year": "last"}), ("b", 0.7, "", {"year": 2026}))
    assert node_ids(result.hits) == ["a", "b"]
    (degraded,) = result.degraded
    assert degraded.where == "ScoreDecay"
    assert degraded.reason.startswith("1 of 2 hits have no readable age under 'year'")


def test_the_contribution_holds_the_factor_and_the_share_of_the_decay() -> None:
    (hit,) = searched(("a", 0.8, "", {"year": 2023})).hits
    before, decay = hit.contributions
    assert (before.leg, before.share) == ("FakeRetriever", 0.8)
    assert (decay.leg, decay.score, decay.share) == ("ScoreDecay", 0.5, -0.4)


def test_score_decay_refuses_a_hit_without_a_score() -> None:
    with pytest.raises(ScoreError):
        searched(("a", None))
