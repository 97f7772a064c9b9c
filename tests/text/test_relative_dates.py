# ruff: noqa: RUF001 - Chinese punctuation
"""Relative dates of questions are resolved against the day on which they are asked."""

from datetime import date

import pytest

from llama_retrieval_ext.text.relative_dates import dates_in

LEAP = date(2024, 3, 1)  # a Friday
JANUARY = date(2024, 1, 2)  # a Tuesday


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("What did Ann do yesterday?", LEAP, "29 February 2024"),
        ("the day before yesterday", LEAP, "28 February 2024"),
        ("Where were we last night", JANUARY, "1 January 2024"),
        ("three days ago", JANUARY, "30 December 2023"),
        ("Did it rain two months ago?", JANUARY, "November 2023"),
        ("last month", JANUARY, "December 2023"),
        ("a year ago", LEAP, "2023"),
        ("What happened last May?", LEAP, "May 2023"),
        ("last February", LEAP, "February 2024"),
        ("in May of last year", JANUARY, "May 2023"),
        ("May this year", JANUARY, "May 2024"),
        ("last Friday", LEAP, "23 February 2024"),
        ("two weeks ago", LEAP, "February 2024"),
        ("last week", JANUARY, "December 2023"),
        ("昨天小安说了什么？", LEAP, "29 February 2024"),
        ("前天和昨晚", JANUARY, "31 December 2023, 1 January 2024"),
        ("三天前", JANUARY, "30 December 2023"),
        ("两个月前去了哪里", JANUARY, "November 2023"),
        ("12个月以前", JANUARY, "January 2023"),
        ("上个月的马拉松怎么样？", JANUARY, "December 2023"),
        ("去年五月", LEAP, "May 2023"),
        ("前年十二月", LEAP, "December 2022"),
        ("今年2月", LEAP, "February 2024"),
        ("上周五", LEAP, "23 February 2024"),
        ("这周一", LEAP, "26 February 2024"),
        ("上个星期", JANUARY, "December 2023"),
        ("两周前", LEAP, "February 2024"),
        ("What did Ann say last May and yesterday?", LEAP, "May 2023, 29 February 2024"),
        ("It may last for an hour, on 8 May 2023", LEAP, ""),
        ("Show the last weekend's yesterdays", LEAP, ""),
        ("十一月的会议", LEAP, ""),
        ("1500 days ago, 1.5 years ago, 1,500 weeks ago, twenty-one days ago", LEAP, ""),
        ("2023年以前的事，二十五天前，5月前交", LEAP, ""),
        ("两个星期前和3个礼拜前", LEAP, "February 2024, February 2024"),
        ("去年13月，去年0月", LEAP, "2023, 2023"),
        ("这周天气怎么样", LEAP, "February 2024"),
        ("laſt week, sıx days ago", LEAP, ""),
        ("三天前天气怎么样？", JANUARY, "30 December 2023"),
        ("上周天气怎么样？", LEAP, "February 2024"),
        ("本周日程", JANUARY, "January 2024"),
        ("上周日下午", LEAP, "25 February 2024"),
        ("十年前", LEAP, "2014"),
        ("half a year ago and 半年之前", LEAP, "September 2023, September 2023"),
        ("a year and a half ago, 大半年前, half a month ago", LEAP, ""),
        ("三天之前", LEAP, "27 February 2024"),
        ("以前天气如何，目前天气，之前天冷", LEAP, ""),
        ("上上个月和上上周五", LEAP, "January 2024, 16 February 2024"),
        ("上上上个月，马上周五了，提前天数", LEAP, ""),
        ("前天气温多少", LEAP, "28 February 2024"),
        ("基本上周末都在家，原则上周五休息，根本周末不上班，原本周五交", LEAP, ""),
        ("过去年代，以前年度", LEAP, ""),
        ("公司上周五开会，规定上周发布", LEAP, "23 February 2024, February 2024"),
        ("版本上周发布，这本月报，一本周刊", LEAP, "February 2024"),
        ("日本周刊，成本月报，版本周期，这周围，上月球", LEAP, ""),
    ],
)
def test_a_relative_date_is_that_of_a_calendar(text: str, asked: date, expected: str) -> None:
    assert ", ".join(each.partition(", ")[0] for each in dates_in(text, asked)) == expected


def test_a_date_is_named_in_both_languages() -> None:
    assert dates_in("yesterday", LEAP) == ["29 February 2024, 2024年2月29日"]
    assert dates_in("去年五月", LEAP) == ["May 2023, 2023年5月"]
    assert dates_in("两周前", date(2024, 5, 15)) == ["April 2024, 2024年4月, May 2024, 2024年5月"]
