"""What is quoted of a passage."""

import pytest

from llama_retrieval_ext.cli.quote import matched_spans, quote


@pytest.mark.parametrize(
    ("text", "question", "quoted"),
    [
        ("Lunch is free. Leave is 25 days.", "days of leave", "Leave is 25 days."),
        ("第一条 总则。第二条 有效期为3年。", "有效期是多久", "第二条 有效期为3年。"),
        ("Heading\n\nThe answer is here", "where is the answer", "The answer is here"),
        ("Leave. Leave.", "leave", "Leave. Leave."),
        ("Nothing of it. At all.", "zeppelin", "Nothing of it. At all."),
        ("", "zeppelin", ""),
        ("No end", "", "No end"),
    ],
)
def test_quote_begins_with_the_sentence_that_answers(text: str, question: str, quoted: str) -> None:
    assert quote(text, question, cells=50) == quoted


CODE = """The call binds its arguments. For example:

    def function(first, second):
        return first + second

Defaults are evaluated once."""


@pytest.mark.parametrize("cells", [45, 60, 80])
def test_quote_does_not_end_within_code(cells: int) -> None:
    assert quote(CODE, "call binds", cells=cells) == (
        "The call binds its arguments. For example: …"
    )


def test_quote_holds_code_that_fits() -> None:
    assert quote(CODE, "call binds", cells=113).endswith("return first + second Defaults are…")


def test_prose_that_is_indented_is_no_code() -> None:
    text = "str.split(sep=None)\n\n   Return a list of the words in the string."
    assert quote(text, "str.split", cells=40) == "str.split(sep=None) Return a list of…"


@pytest.mark.parametrize(
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
