"""The grammar of ``--filter``."""

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter

from llama_retrieval_ext.cli.filter_syntax import parse_filter_options
from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.filters import matches, parse_filters


def parsed(option: str) -> MetadataFilter:
    filters = parse_filter_options([option])
    assert filters is not None
    (one,) = filters.filters
    assert isinstance(one, MetadataFilter)
    return one


def test_option_stands_for_a_filter(subtests: pytest.Subtests) -> None:
    for option, key, operator, value in [
        ("lang=zh", "lang", FilterOperator.EQ, "zh"),
        ("lang!=zh", "lang", FilterOperator.NE, "zh"),
        ("year=2024", "year", FilterOperator.EQ, 2024),
        ("year>=2020", "year", FilterOperator.GTE, 2020),
        ("year>2020", "year", FilterOperator.GT, 2020),
        ("year<=2020", "year", FilterOperator.LTE, 2020),
        ("score<-0.5", "score", FilterOperator.LT, -0.5),
        ("law~安全", "law", FilterOperator.TEXT_MATCH_INSENSITIVE, "安全"),
        ("law~2024", "law", FilterOperator.TEXT_MATCH_INSENSITIVE, "2024"),
        ('article="3"', "article", FilterOperator.EQ, "3"),
        ("article='第三条'", "article", FilterOperator.EQ, "第三条"),
        ("a.b/c key = two words ", "a.b/c key", FilterOperator.EQ, "two words"),
        ("formula=a>=b=c", "formula", FilterOperator.EQ, "a>=b=c"),
        ("n=1e3", "n", FilterOperator.EQ, 1000.0),
        ("n=nan", "n", FilterOperator.EQ, "nan"),
        ("n=1_000", "n", FilterOperator.EQ, "1_000"),
        ('quote="it\'s"', "quote", FilterOperator.EQ, "it's"),
        ('title="war and peace"', "title", FilterOperator.EQ, "war and peace"),
        ('inch="3"" pipe"', "inch", FilterOperator.EQ, '3" pipe'),
        ("order=nor", "order", FilterOperator.EQ, "nor"),
        ("name=a(b)", "name", FilterOperator.EQ, "a(b)"),
        ("lang in (zh, en)", "lang", FilterOperator.IN, ["zh", "en"]),
        ("year IN (2020,2021)", "year", FilterOperator.IN, [2020, 2021]),
        ("article in (\"3\", '4, 5')", "article", FilterOperator.IN, ["3", "4, 5"]),
        ("lang not in (zh)", "lang", FilterOperator.NIN, ["zh"]),
    ]:
        with subtests.test(option=option):
            one = parsed(option)
            assert (one.key, one.operator, one.value) == (key, operator, value)
            assert type(one.value) is type(value)


def test_no_option_is_no_filter() -> None:
    assert parse_filter_options([]) is None


def test_all_options_must_hold() -> None:
    filters = parse_filter_options(["year>=2020", "year<2022"])
    assert filters is not None
    condition = parse_filters(filters)
    assert [year for year in range(2018, 2026) if matches(condition, {"year": year})] == [
        2020,
        2021,
    ]


ROWS = [(year, lang) for year in (2020, 2021) for lang in ("en", "zh", "de")]


@pytest.mark.parametrize(
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
        ("not lang=zh and year>2020", lambda year, lang: lang != "zh" and year > 2020),
        ("not (lang=zh or year=2021)", lambda year, lang: lang != "zh" and year != 2021),
        ("NOT not lang=zh", lambda _, lang: lang == "zh"),
        ("lang in (zh, en) OR year<2021", lambda year, lang: lang in {"zh", "en"} or year < 2021),
        ("((lang not in (zh)))", lambda _, lang: lang != "zh"),
    ],
)
def test_conditions_are_combined(option: str, holds: Callable[[int, str], bool]) -> None:
    filters = parse_filter_options([option])
    assert filters is not None
    condition = parse_filters(filters)
    for year, lang in ROWS:
        assert matches(condition, {"year": year, "lang": lang}) == holds(year, lang)


def test_expression_that_does_not_parse_is_refused_with_the_grammar(
    subtests: pytest.Subtests,
) -> None:
    for option in [
        "title=war and peace",
        "a=1 or",
        "or a=1",
        "a=1 and and b=2",
        "a or b=1",
        "not",
        "(a=1",
        "a=1 or (b=2",
        "(a=1) b=2",
        "()",
        "(a=f(x))",
        "lang in zh",
        "lang in (zh",
        "lang in ()",
        'lang in (3, "4")',
        "lang in (zh,)",
        "in (zh)",
        'a="b" c',
    ]:
        with subtests.test(option=option), pytest.raises(InvalidFilterError, match="KEY=VALUE"):
            parse_filter_options([option])


@pytest.mark.parametrize("option", ["(" * 5000 + "a=1" + ")" * 5000, "not " * 5000 + "a=1"])
def test_expression_nested_too_deeply_is_refused(option: str) -> None:
    with pytest.raises(InvalidFilterError, match="nested"):
        parse_filter_options([option])


def test_number_beyond_every_float_is_text() -> None:
    assert parsed(f"n={'9' * 400}").value == "9" * 400


@pytest.mark.parametrize("option", ["", "year", "=2024", "year=", ' ="x"', "~part"])
def test_an_option_that_is_no_filter_is_refused_with_the_grammar(option: str) -> None:
    with pytest.raises(InvalidFilterError, match="KEY=VALUE"):
        parse_filter_options([option])


@pytest.mark.parametrize("option", ["year==2024", "year=>2024", "year=<2024", "year=>", "a~=b"])
def test_twisted_operator_is_refused_and_does_not_just_find_nothing(option: str) -> None:
    with pytest.raises(InvalidFilterError, match="two operators in a row"):
        parse_filter_options([option])


@pytest.mark.parametrize("option", ['a="', "a='", 'a="b', "a=\"b'"])
def test_quote_that_does_not_end_is_refused(option: str) -> None:
    with pytest.raises(InvalidFilterError, match="quote"):
        parse_filter_options([option])


def test_word_does_not_compare_by_size() -> None:
    with pytest.raises(InvalidFilterError, match="finite number"):
        parse_filter_options(["year>=recent"])


@given(
    st.text(string.ascii_letters, min_size=1),
    st.text(st.characters(exclude_characters="\r\n"), min_size=1),
)
def test_quoted_value_comes_back_as_it_is(key: str, value: str) -> None:
    assert parsed(f'{key}x="{value.replace(chr(34), chr(34) * 2)}"').value == value


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_number_comes_back_as_it_is(number: float) -> None:
    assert parsed(f"n={number}").value == number
