# ruff: noqa: RUF001 - Chinese punctuation
"""Relative dates of questions are resolved against the day on which they are asked."""

from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.quantities import quantities, values
from llama_retrieval_ext.text.relative_dates import dates_in

# ruff: noqa: RUF001 - Chinese punctuation
from llama_retrieval_ext.text.validity import validity_in
from tests.cases import cases

LEAP = date(2024, 3, 1)  # a Friday
JANUARY = date(2024, 1, 2)  # a Tuesday


@cases(
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


@cases(
    ("text", "start", "end"),
    [
        ("第九十条 本法自2021年9月1日起施行。", "2021-09-01", None),
        ("本条例自二〇〇四年二月一日起施行", "2004-02-01", None),
        ("2002年11月1日起施行的办法同时废止，本办法自 2021 年 9 月 1 日起施行", "2021-09-01", None),
        ("有效期：2024年1月1日至2024年12月31日", "2024-01-01", "2025-01-01"),
        ("许可证有效期至2025年12月31日。", None, "2026-01-01"),
        ("本办法于2020年3月5日废止", None, "2020-03-05"),
        ("Effective date: May 1, 2026. Until further notice.", "2026-05-01", None),
        ("This Act comes into force on 1 July 2024.", "2024-07-01", None),
        ("Prices apply from 1st of March 2025 to 30 June 2025.", "2025-03-01", "2025-07-01"),
        ("It took effect on 2020-01-02 and was repealed on 2022-01-01", "2020-01-02", "2022-01-01"),
        (
            "The 2019 edition expired on 1 May 2020; this one is effective 2 May 2020",
            "2020-05-02",
            None,
        ),
        ("本法自2023年2月30日起施行；企业应当在30日内整改", None, None),
        ("The meeting on 1 May 2026 was effective.", None, None),
        ("本办法自2021年9月1日起施行，有效期五年。", "2021-09-01", "2026-09-01"),
        ("This permit is valid for two years from 1 May 2024.", "2024-05-01", "2026-05-01"),
        ("本标准2020年1月1日起实施，2025年12月31日废止。", "2020-01-01", "2025-12-31"),
        ("该办法自2019年1月1日起至2020年12月31日止执行", "2019-01-01", "2021-01-01"),
        ("The price list is valid from May 2026 to July 2026.", "2026-05-01", "2026-08-01"),
        ("Valid until 31 December 9999.", None, "9999-12-31"),
        ("自2021年12月起施行", "2021-12-01", None),
        ("(valid: 01.05.2024 - 31.12.2025)", "2024-05-01", "2026-01-01"),
        ("2021年9月1日起施行的《数据安全法》规定了责任", None, None),
    ],
)
def test_validity_is_what_the_text_says_of_itself(
    text: str, start: str | None, end: str | None
) -> None:
    read = validity_in(text)
    assert (read and read.start, read and read.end) == (start, end)
    assert read is None or read.words.split("; ")[0] in text


SIGNS = "0123456789一二十百千万亿零点第分之,. '%/天个kMay one hundredtwenty-"


@given(st.text(st.sampled_from(SIGNS)) | st.text())
def test_every_text_has_values_that_include_those_it_states(text: str) -> None:
    known = values(text)
    assert all(quantity.is_among(known) for quantity in quantities(text) if quantity.readings)


@given(st.integers(0, 10**12 - 1))
def test_a_chinese_numeral_has_the_value_of_its_digits(number: int) -> None:
    assert values(f"{_chinese(number)}元") >= {Fraction(number)}


@pytest.mark.parametrize(
    "unit", ["1", "一", "百", "1,", "1.", "three ", "1/", "二百分之", "5万", "May 1 "]
)
@pytest.mark.slow
def test_hostile_texts_take_linear_time(unit: str) -> None:
    assert len(quantities(unit * (20_000 // len(unit)))) <= 20_000


def _chinese(number: int) -> str:
    """The number in Chinese, with every unit and every zero written out."""
    if number < 10_000:
        digits = [int(digit) for digit in f"{number:04}"]
        written = "".join(
            f"{'零一二三四五六七八九'[digit]}{unit}" if digit else "零"
            for digit, unit in zip(digits, ("千", "百", "十", ""), strict=True)
        )
        return written.strip("零") or "零"
    unit = 10**8 if number >= 10**8 else 10**4
    below = number % unit
    tail = f"零{_chinese(below)}" if below else ""
    return f"{_chinese(number // unit)}{'亿' if unit == 10**8 else '万'}{tail}"
