"""The grammar of filters in words."""

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter

from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.filter_syntax import parse_filter_texts
from llama_retrieval_ext.filters import matches, parse_filters
from tests.cases import cases


def parsed(option: str) -> MetadataFilter:
    filters = parse_filter_texts([option])
    assert filters is not None
    (one,) = filters.filters
    assert isinstance(one, MetadataFilter)
    return one


def test_option_stands_for_a_filter(subtests: pytest.Subtests) -> None:
    for option, key, operator, value in [
        ("lang=zh", "lang", FilterOperator.EQ, "zh"),
        ("lang!=zh", "lang", FilterOperator.NE, "zh"),
        ("year>=2020", "year", FilterOperator.GTE, 2020),
        ("score<-0.5", "score", FilterOperator.LT, -0.5),
        ("law~安全", "law", FilterOperator.TEXT_MATCH_INSENSITIVE, "安全"),
        ("law~2024", "law", FilterOperator.TEXT_MATCH_INSENSITIVE, "2024"),
        ('article="3"', "article", FilterOperator.EQ, "3"),
        ("article='第三条'", "article", FilterOperator.EQ, "第三条"),
        ("a.b/c key = two words ", "a.b/c key", FilterOperator.EQ, "two words"),
        ("formula=a>=b=c", "formula", FilterOperator.EQ, "a>=b=c"),
        ("n=1e3", "n", FilterOperator.EQ, 1000.0),
        (f"n={'9' * 400}", "n", FilterOperator.EQ, "9" * 400),  # beyond every float
        ("n=nan", "n", FilterOperator.EQ, "nan"),
        ("n=1_000", "n", FilterOperator.EQ, "1_000"),
        ('quote="it\'s"', "quote", FilterOperator.EQ, "it's"),
        ('inch="3"" pipe"', "inch", FilterOperator.EQ, '3" pipe'),
        ("name=a(b)", "name", FilterOperator.EQ, "a(b)"),
        ("year IN (2020,2021)", "year", FilterOperator.IN, [2020, 2021]),
        ("article in (\"3\", '4, 5')", "article", FilterOperator.IN, ["3", "4, 5"]),
        ("lang not in (zh)", "lang", FilterOperator.NIN, ["zh"]),
    ]:
        with subtests.test(option=option):
            one = parsed(option)
            assert (one.key, one.operator, one.value) == (key, operator, value)
            assert type(one.value) is type(value)


ROWS = [(year, lang) for year in (2020, 2021) for lang in ("en", "zh", "de")]


@cases(
    ("option", "holds"),
    [
        ("year=2020 and lang=zh", lambda year, lang: year == 2020 and lang == "zh"),
        ("lang=zh or lang=en", lambda _, lang: lang in {"zh", "en"}),
        # "and" binds tighter than "or", "not" tighter than both, as in Python and SQL.
        (
            "lang=zh or lang=en and year=2020",
            lambda year, lang: lang == "zh" or (lang == "en" and year == 2020),
        ),
        (
            "(lang=zh or lang=en) and year=2020",
            lambda year, lang: lang in {"zh", "en"} and year == 2020,
        ),
        ("not (lang=zh or year=2021)", lambda year, lang: lang != "zh" and year != 2021),
        ("NOT not lang=zh", lambda _, lang: lang == "zh"),
        ("lang in (zh, en) OR year<2021", lambda year, lang: lang in {"zh", "en"} or year < 2021),
        ("((lang not in (zh)))", lambda _, lang: lang != "zh"),
    ],
)
def test_conditions_are_combined(option: str, holds: Callable[[int, str], bool]) -> None:
    for options, also in (([option], 0), ([option, "year>2020"], 2021)):  # all must hold
        filters = parse_filter_texts(options)
        assert filters is not None
        condition = parse_filters(filters)
        for year, lang in ROWS:
            expected = holds(year, lang) and year >= also
            assert matches(condition, {"year": year, "lang": lang}) == expected


@cases(
    ("option", "message"),
    [
        *((option, "KEY=VALUE") for option in ("", "year", "=2024", "year=", "~part")),
        *((option, "two operators in a row") for option in ("year==2024", "year=>2024", "a~=b")),
        *((option, "quote") for option in ('a="', "a=\"b'")),
        *((option, "KEY=VALUE") for option in ("title=war and peace", "a=1 or", "or a=1")),
        *((option, "KEY=VALUE") for option in ("not", "(a=1", "(a=1) b=2", "()", "(a=f(x))")),
        *((option, "KEY=VALUE") for option in ("lang in zh", "lang in (zh", "lang in ()")),
        *((option, "KEY=VALUE") for option in ("lang in (zh,)", "in (zh)", 'a="b" c')),
        ('lang in (3, "4")', "a list of numbers and strings"),
        ("year>=recent", "finite number"),
        ("(" * 5000 + "a=1" + ")" * 5000, "nested"),
        ("not " * 5000 + "a=1", "nested"),
    ],
)
def test_what_is_no_filter_is_refused_with_what_to_write(option: str, message: str) -> None:
    with pytest.raises(InvalidFilterError, match=message):
        parse_filter_texts([option])


@given(
    st.text(string.ascii_letters, min_size=1),
    st.text(st.characters(exclude_characters="\r\n"), min_size=1),
)
def test_quoted_value_comes_back_as_it_is(key: str, value: str) -> None:
    assert parsed(f'{key}x="{value.replace(chr(34), chr(34) * 2)}"').value == value


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_number_comes_back_as_it_is(number: float) -> None:
    assert parsed(f"n={number}").value == number
