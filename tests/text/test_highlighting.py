"""Positions of the terms of a question in a text, and excerpts around them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.highlighting import (
    Question,
    excerpt,
    highlights_by_words,
    matched_spans,
)
from llama_retrieval_ext.text.near_duplicates import first_of_alike, shingles
from tests.cases import cases


@cases(
    ("text", "question", "matched"),
    [
        ("Annual leaves are paid.", "leave", ["leaves"]),
        ("parse_filters refuses", "parse_filters", ["parse_filters"]),
        ("员工每年享有年假规定", "年假规", ["年假规"]),
        ("員工每年享有年假規定", "年假规", ["年假規"]),
        ("C++ is not C.", "C++", ["C++"]),
        ("call os.path.join twice", "os.path.join", ["os.path.join"]),
        ("The retrie-\nval of well-\n known", "retrieval", ["retrie-\nval"]),
        ("The retrie\u00ad\nval", "retrieval", ["retrie\u00ad\nval"]),
        ("ห้องสมุดเปิดเวลาเช้า", "เปิด", ["เปิด"]),
        ("ดื่มน้ำเย็น", "น้ำ", ["น้ำ"]),
        ("the data\u200bbase of ٢٠٢٤", "database 2024", ["data\u200bbase", "٢٠٢٤"]),
        ("cafe\u0301 ﾃﾞｰﾀ ﬁre", "café データ fire", ["cafe\u0301", "ﾃﾞｰﾀ", "ﬁre"]),
        ("年假（一），规定１２", "年假 12", ["年假", "１２"]),  # noqa: RUF001 - full-width
        ("Nothing of it.", "zeppelin", []),
        ("", "leave", []),
    ],
)
def test_forms_of_a_term_are_matched(text: str, question: str, matched: list[str]) -> None:
    assert [text[start:end] for start, end in matched_spans(text, question)] == matched


def test_spans_are_in_order_and_do_not_overlap() -> None:
    spans = matched_spans("年假 annual leave 年假制度 leave", "annual leave 年假制")
    assert spans == sorted(spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_field_in_other_characters_hides_no_words_of_another() -> None:
    fields = [("text", None, "年假，规定"), ("title", None, "ﬁre 火灾")]  # noqa: RUF001 - full-width
    spans = highlights_by_words(fields, Question("年假 火灾"))
    assert [(span.field, span.text) for span in spans] == [("text", "年假"), ("title", "火灾")]


def test_an_excerpt_holds_the_part_with_most_terms() -> None:
    text = "Welcome to us. " * 50 + "Annual leave is 25 days. " + "Lunch is free. " * 50
    shown = excerpt(text, "annual leave days", length=60)
    assert "Annual leave is 25 days." in shown
    assert len(shown) <= 62
    assert (shown[0], shown[-1]) == ("…", "…")


def test_a_short_text_is_its_own_excerpt_on_one_line() -> None:
    assert excerpt("a\n  short text", "zeppelin", length=40) == "a short text"


SETS = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), max_size=12)


def test_stop_words_and_endings_count() -> None:
    assert shingles("the days") != shingles("a day")


@given(SETS, st.floats(min_value=0.01, max_value=1.0))
def test_near_duplicates_are_those_of_comparing_every_pair(
    sets: list[frozenset[str]], at_least: float
) -> None:
    kept: list[int] = []
    expected: list[int] = []
    for number, current in enumerate(sets):
        alike = (
            place
            for place in kept
            if current & sets[place]
            and len(current & sets[place]) >= at_least * len(current | sets[place])
        )
        first = next(alike, number)
        expected.append(first)
        if first == number:
            kept.append(number)
    assert list(first_of_alike(sets, at_least=at_least)) == expected
