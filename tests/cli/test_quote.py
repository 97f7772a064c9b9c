"""What is quoted of a passage."""

import pytest

from llama_retrieval_ext.cli.quote import quote


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
