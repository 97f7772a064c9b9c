"""What is quoted of a passage."""

import pytest
from rich.cells import cell_len

from llama_retrieval_ext.cli.output import quote
from llama_retrieval_ext.text.highlighting import matched_spans
from tests.cases import each_case


@each_case(
    ("text", "question", "quoted"),
    [
        ("Lunch is free. Leave is 25 days.", "days of leave", ["Leave is 25 days."]),
        ("第一条 总则。第二条 有效期为3年。", "有效期是多久", ["第二条 有效期为3年。"]),
        ("Heading\n\nThe answer is here", "where is the answer", ["The answer is here"]),
        ("Leave. Leave.", "leave", ["Leave. Leave."]),
        ("Nothing of it. At all.", "zeppelin", ["Nothing of it. At all."]),
        ("", "zeppelin", []),
        ("No end", "", ["No end"]),
    ],
)
def test_quote_begins_with_the_sentence_that_answers(
    text: str, question: str, quoted: list[str]
) -> None:
    assert quote(text, question, width=50, lines=3) == quoted


@each_case("lines", [1, 2, 3])
@each_case("text", ["word " * 90, "安全生产 " * 90, "Donaudampfschifffahrt" * 20])
def test_quote_fills_its_lines_and_ends_with_a_word(text: str, lines: int) -> None:
    quoted = quote(text, "", width=30, lines=lines)
    assert len(quoted) == lines
    assert all(20 < cell_len(line) <= 30 for line in quoted)
    assert quoted[-1].rstrip("… ").split()[-1] in {"word", "安全生产"} or " " not in text


CODE = """The call binds its arguments. For example:

    def bind(first, second):
        return first + second

Defaults are evaluated once."""


@pytest.mark.parametrize("lines", [1, 2])
def test_quote_does_not_end_within_code(lines: int) -> None:
    assert quote(CODE, "call", width=60, lines=lines) == [
        "The call binds its arguments. For example: …"
    ]


def test_quote_holds_code_that_fits_in_its_own_lines() -> None:
    assert quote(CODE, "call", width=60, lines=3) == [
        "The call binds its arguments. For example:",
        "def bind(first, second):",
        "    return first + second …",
    ]


def test_quote_does_not_begin_within_code() -> None:
    assert quote(CODE, "bind first second", width=60, lines=2)[0] == "def bind(first, second):"


def test_fenced_code_is_code_to_its_end() -> None:
    fenced = "Do this.\n\n```\na = 1\n\nb = 2\n```\n\nThen that."
    assert quote(fenced, "do this", width=60, lines=4) == ["Do this. …"]
    assert quote(fenced, "do this", width=60, lines=9)[-1] == "Then that."


def test_prose_that_is_indented_is_no_code() -> None:
    text = "str.split(sep=None)\n\n   Return a list of the words in the string."
    assert quote(text, "str.split", width=40, lines=1) == ["str.split(sep=None) Return a list of…"]


@each_case(
    ("text", "question", "matched"),
    [
        ("Leaves are paid.", "leave", ["Leaves"]),
        ("C++ is not C.", "C++", ["C++"]),
        ("call os.path.join twice", "os.path.join", ["os.path.join"]),
        ("安全生产许可证", "生产许可", ["生产许可"]),
        ("年假 is leave", "leave 年假", ["年假", "leave"]),
        ("Nothing here.", "zeppelin", []),
    ],
)
def test_terms_of_the_question_are_found_in_the_text(
    text: str, question: str, matched: list[str]
) -> None:
    assert [text[start:end] for start, end in matched_spans(text, question)] == matched
