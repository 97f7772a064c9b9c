"""`Recency`: what a hit still counts at its age."""

import datetime
import math
from typing import Any, get_args

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stages.decay import Curve, Recency
from tests.cases import each_case

SINCE_MARCH = Recency("date", half_life=30, origin="2026-03-01")


@each_case(
    "date",
    [
        "2026-01-30",
        " 2026-01-30T00:00:00Z ",
        "2026-01-30T01:00:00+01:00",
        "20260130",
        datetime.date(2026, 1, 30),
        datetime.datetime(2026, 1, 30, tzinfo=datetime.UTC),
        datetime.datetime(2026, 1, 30),  # noqa: DTZ001 - without a zone on purpose
    ],
)
def test_dates_are_read_as_they_are_written(date: object) -> None:
    assert SINCE_MARCH.factor({"date": date}) == pytest.approx(0.5)


@pytest.mark.parametrize(("date", "first_day"), [("2024", "2024-01-01"), ("2024-05", "2024-05-01")])
def test_a_year_or_month_is_its_first_day(date: str, first_day: str) -> None:
    assert SINCE_MARCH.factor({"date": date}) == SINCE_MARCH.factor({"date": first_day})


def test_the_future_is_as_good_as_now() -> None:
    assert SINCE_MARCH.factor({"date": "2027-01-01"}) == 1.0


@each_case("value", ["soon", "2026-13-01", 20260130, True, ["2026-01-30"]])
def test_what_is_no_date_is_not_guessed(value: object) -> None:
    assert SINCE_MARCH.factor({"date": value}) is None


@pytest.mark.parametrize("metadata", [{}, {"date": None}, {"date": ""}])
def test_an_age_that_is_not_told_has_the_factor_for_that(metadata: dict[str, object]) -> None:
    assert SINCE_MARCH.factor(metadata) == 1.0
    assert Recency("date", half_life=30, unknown=0.25).factor(metadata) == 0.25


@pytest.mark.parametrize(
    ("value", "factor"), [(2026, 1.0), (2023, 0.5), ("2020", 0.25), (2023.0, 0.5)]
)
def test_numbers_count_from_a_number(value: object, factor: float) -> None:
    assert Recency("year", half_life=3, origin=2026).factor({"year": value}) == factor


@pytest.mark.parametrize("value", ["2024-05-01", math.nan, "nan", True])
def test_what_is_no_number_is_not_guessed(value: object) -> None:
    assert Recency("year", half_life=3, origin=2026).factor({"year": value}) is None


def test_without_an_origin_age_counts_from_now() -> None:
    today = datetime.datetime.now(datetime.UTC)
    month_ago = (today - datetime.timedelta(days=30)).isoformat()
    assert Recency("date", half_life=30).factor({"date": month_ago}) == pytest.approx(0.5, abs=1e-4)


def test_each_curve_is_one_half_at_the_half_life() -> None:
    for curve in get_args(Curve):
        age = Recency("age", half_life=10, curve=curve, origin=0)
        assert age.factor({"age": -10}) == 0.5
    late = [Recency("age", half_life=10, curve=curve, origin=0) for curve in get_args(Curve)]
    assert [age.factor({"age": -20}) for age in late] == [0.25, 0.0625, 0.0]


@pytest.mark.parametrize(
    "wrong", [{"half_life": 0}, {"half_life": math.inf}, {"origin": "today"}, {"unknown": 1.5}]
)
def test_bad_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Recency("date", **{"half_life": 30, **wrong})
