"""Filters in words: 230 questions, and the promises of the grammar."""

import re
from collections import defaultdict
from datetime import date
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, parse_filters
from llama_retrieval_ext.interpretation import Interpretation
from llama_retrieval_ext.interpreter import Interpreter
from llama_retrieval_ext.samples.regulations import zh_safety_laws

TODAY = date(2026, 11, 28)
LISTS = {"genres", "actors", "engines", "labels", "标签"}
ROWS = [
    line.split("\t")
    for line in (
        Path(__file__).with_name("questions_with_filters.tsv").read_text("utf-8")
    ).splitlines()
    if not line.startswith("#")
]
QUESTIONS = [row for row in ROWS if row[0] != "="]


@cache
def interpreters() -> dict[str, Interpreter]:
    values: dict[str, dict[str, list[str | float]]] = defaultdict(dict)
    for _, name, field, listed in (row for row in ROWS if row[0] == "="):
        values[name][field] = [
            float(value) if re.fullmatch(r"[\d.]+", value) and field != "title" else value
            for value in listed.split("|")
        ]
    for field in ("law", "chapter", "article", "date"):
        values["rules"][field] = sorted({law.metadata[field] for law in zh_safety_laws()})
    titles = [str(title) for title in values["films"].pop("title")]
    return {
        name: Interpreter(fields, lists=LISTS, titles=titles if name == "films" else ())
        for name, fields in values.items()
    }


def parts(condition: Condition) -> set[str]:
    """Return the conditions that all must hold, in the form of the file of questions."""
    match condition:
        case AllOf(conditions):
            return {part for inner in conditions for part in parts(inner)}
        case AnyOf(conditions):
            compared = [part for inner in conditions for part in parts(inner)]
            names, values = zip(*(part.split("=") for part in compared), strict=True)
            listed = {value for value in values for value in value.split("|")}
            return {f"{'/'.join(sorted({*names}))}={'|'.join(sorted(listed))}"}
        case Not(inner):
            return {f"not {part}" for part in parts(inner)}
        case Compare(key, operator, tuple(values)):
            return {f"{key}={'|'.join(sorted({str(value).lower() for value in values}))}"}
        case Compare(key, operator, value):
            sign = operator.value.replace("==", "=")
            return {f"{key}{sign}{str(value).lower().removesuffix('.0')}"}


def written(filters: MetadataFilters | None) -> set[str]:
    return set() if filters is None else parts(parse_filters(filters))


def expected(text: str) -> set[str]:
    conditions = (part.lower().split("=", 1) for part in text.split(" & ") if part)
    return {
        "=".join([names[0], "|".join(sorted(names[1].split("|")))] if len(names) > 1 else names)
        for names in conditions
    }


@pytest.mark.slow
def test_filters_of_a_question_are_exactly_those_that_it_names() -> None:
    found = {
        text: written(interpreters()[name].interpret(text, today=TODAY).filters)
        for name, text, _ in QUESTIONS
    }
    assert found == {text: expected(filters) for _, text, filters in QUESTIONS}


WORDS = sorted({word for _, text, _ in QUESTIONS for word in text.split()})


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["films", "rules", "pages"]))
def test_filters_have_fields_and_values_that_there_are_and_their_words(
    words: list[str], name: str
) -> None:
    interpreter = interpreters()[name]
    question = " ".join(words)
    found: Interpretation = interpreter.interpret(question, today=TODAY)
    assert (found.filters is None) is (not found.sources)
    for source in found.sources:
        assert question[source.start : source.end] == source.text
    for part in written(found.filters):
        fields = re.match(r"(?:not )?([\w/]+?)(?:[<>]=?|=)(.*)", part)
        assert fields is not None
        for field in fields[1].split("/"):
            values = {str(value).lower() for value in interpreter.fields[field].values}
            is_number = re.fullmatch(r"[\d.-]+", fields[2]) is not None
            assert is_number or {*fields[2].split("|")} <= values


def test_query_is_what_is_left_of_the_question() -> None:
    for question, query in [
        ("comedies after 2010 with Tom Hanks, not animation", ""),
        ("comedies about clones after 2010, with Tom Hanks", "about clones"),
        ("2010年以后关于机器人的喜剧", "关于机器人"),
        ("how do horror movies scare people", "how do horror movies scare people"),
    ]:
        fields = {"genres": ["Comedy", "Animation", "喜剧", "horror"], "actors": ["Tom Hanks"]}
        found = Interpreter({**fields, "year": [1994, 2022]}).interpret(question, today=TODAY)
        assert found.query == query


def test_spelling_chooses_the_field_and_not_among_its_values() -> None:
    values = {"genres": ["Drama", "drama"], "brand": ["Orange"], "color": ["orange"]}
    found = Interpreter(values).interpret("orange drama films", today=TODAY)
    assert found.filters is not None
    assert [str(source.filter) for source in found.sources] == [
        "color == 'orange' and genres in ['Drama', 'drama']"
    ]


def test_blank_values_are_not_looked_for() -> None:
    authors: list[str | int] = ["Ann Lee", " ", "", "Bo Xu"]
    values: dict[str, list[str | int]] = {"author": authors, "year": [2020, 2024]}
    found = Interpreter(values).interpret("films by Ann Lee since 2021", today=TODAY)
    assert written(found.filters) == {"author=ann lee", "year>=2021"}


def test_time_that_may_be_of_several_fields_is_refused_with_them() -> None:
    dates = {"created": ["2020-01-01"], "updated": ["2024-01-01"]}
    found = Interpreter(dates).interpret("pages after 2021")
    assert found.filters is None
    assert found.refused == ("'after 2021' may be of created, updated; write which",)
    assert written(Interpreter(dates).interpret("pages updated after 2021").filters) == {
        "updated>=2022-01-01"
    }


def asked_at_a_time(interpreter: Interpreter, question: str) -> Interpretation:
    held = interpreter.held_at(question, TODAY)
    return interpreter.interpret(question, today=TODAY, held=held)


def test_questions_ask_for_what_held_at_a_time_where_documents_hold_for_one() -> None:
    genres: dict[str, list[str | int]] = {"genres": ["comedy", "drama"]}
    dated, undated = Interpreter(genres), Interpreter({**genres, "year": [1994, 2022]})
    for question, query, day in [
        ("which rules were in force on 1 May 2024", "which rules were", date(2024, 5, 1)),
        ("overtime valid before 1 May 2024", "overtime", date(2024, 4, 30)),
        ("the handbook as it was in 2022", "the handbook", date(2022, 12, 31)),
        ("leave valid this year", "leave", TODAY),
        ("2021年9月时有效的安全规定", "安全规定", date(2021, 9, 30)),
        ("截至2023年底有效的规定", "规定", date(2023, 12, 31)),
    ]:
        for interpreter in (dated, undated):
            found = asked_at_a_time(interpreter, question)
            assert (found.query, found.as_of) == (query, day)
            assert interpreter.interpret(question, today=TODAY).as_of is None
    asked = "comedy films in 2010"
    found = asked_at_a_time(dated, asked)
    assert found.as_of == date(2010, 12, 31)
    assert [asked[source.start : source.end] for source in found.sources] == [
        "comedy films",
        "in 2010",
    ]
    assert asked_at_a_time(undated, asked).as_of is None
    assert dated.held_at(f"{'x ' * 300}in 2010", TODAY) is None  # no question


def test_long_text_is_no_question() -> None:
    found = interpreters()["films"].interpret("comedies after 2010 " * 100)
    assert (found.filters, len(found.refused)) == (None, 1)
