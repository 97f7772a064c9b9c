"""The outline of a text: title, headings, tables and blocks of code."""

import time

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.readers.outline import (
    Outline,
    markdown_outline,
    outline_of,
    outlined,
    rst_outline,
)
from llama_retrieval_ext.knowledge_base.readers.outline import TextLine as Line


def words(outline: Outline) -> list[tuple[int, str]]:
    return [(heading.level, heading.text) for heading in outline.headings]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("# Leave\ntext\n### Sick #\n", [(1, "Leave"), (3, "Sick")]),
        ("Leave\n=====\n\nSick\n---\n", [(1, "Leave"), (2, "Sick")]),
        ("#hashtag\n\n    # code\n\n####### seven\n", []),
        ("```sh\n# comment\n```\n# Leave\n", [(1, "Leave")]),
        ("~~~\n# comment\n```\n# also\n~~~\n# Leave", [(1, "Leave")]),
        ("---\ntitle: Rules\n# comment\n---\n# Leave\n", [(1, "Leave")]),
        ("a list\n- item\n---\n", []),
        ("# Leave in C#\n## F# ##\n## issue #\n", [(1, "Leave in C#"), (2, "F#"), (2, "issue")]),
        ("<!--\n# no\n-->\n# Leave\n", [(1, "Leave")]),
    ],
)
def test_headings_of_markdown(text: str, headings: list[tuple[int, str]]) -> None:
    outline = markdown_outline(text)
    assert words(outline) == headings
    assert all(
        text[heading.start :].lstrip("# ").startswith(heading.text) for heading in outline.headings
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.adoc", "= Rules\n\ntext\n\n== Leave\n\nsix = seven\n"),
        ("a.org", "* Rules\ntext *bold*\n** Leave\n- item\n"),
        ("a.mediawiki", "= Rules =\na = b\n== Leave ==\n"),
        ("a.tex", "\\chapter{Rules}\n\\section*{Leave}\n% text\n\\sections{no}"),
        ("a.1", '.TH A 1\n.SH Rules\n.SS "Leave"\n.SHx\n'),
    ],
)
def test_headings_of_other_notations(name: str, text: str) -> None:
    outline = outline_of(Document(text=text, metadata={"file_name": name}))
    (rules, above), (leave, below) = ((found.text, found.level) for found in outline.headings)
    assert (rules, leave, outline.title) == ("Rules", "Leave", "Rules")
    assert above < below


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Leave\n## Sick\n", "Leave"),
        ("# Leave\n# Sick\n", ""),
        ("---\ntitle: 'Rules'\n---\n# Leave\n", "Rules"),
        ("no heading", ""),
    ],
)
def test_the_title_is_the_heading_above_all_others(text: str, title: str) -> None:
    assert markdown_outline(text).title == title


def test_tables_have_their_header_and_caption() -> None:
    text = "Days:\n\na | b\n--- | :-:\n1 | 2\n\n|x|\n|-|\n|1|\nend | no table\n"
    first, second = markdown_outline(text).blocks
    assert (text[first.start : first.end], first.header) == (
        "a | b\n--- | :-:\n1 | 2",
        "Days:\na | b\n--- | :-:",
    )
    assert second.header == "|x|\n|-|"


def test_levels_of_rst_are_in_the_order_of_their_underlines() -> None:
    text = "Rules\n*****\n\nLeave\n=====\n\nSick\n----\n\nPay\n=====\n\nlong line\n--\n"
    assert words(rst_outline(text)) == [(1, "Rules"), (2, "Leave"), (3, "Sick"), (2, "Pay")]


@pytest.mark.parametrize("name", ["a.md", "A.MARKDOWN", "a.rst", "/docs/a.mdx"])
def test_files_with_structure_have_an_outline(name: str) -> None:
    text = "Leave\n=====\n\ntext\n"
    by_name = Document(text=text, metadata={"file_name": name})
    by_path = Document(text=text, metadata={"file_path": f"/x/{name}"})
    assert words(outline_of(by_name)) == words(outline_of(by_path)) == [(1, "Leave")]


@pytest.mark.parametrize("metadata", [{}, {"file_name": "a.txt"}, {"file_name": 3}])
def test_other_documents_have_none(metadata: dict[str, object]) -> None:
    assert outline_of(Document(text="# Leave", metadata=metadata)) == Outline()


def test_lines_of_a_reader_have_their_positions_in_the_text() -> None:
    lines = [
        *(Line("Rules", level=1), Line("Days a year", is_caption=True), Line("a | b", table=1)),
        *(Line("1 | 2", table=1), Line("x | y", table=2), Line("", level=2), Line("end")),
    ]
    text, outline = outlined(lines)
    assert outline.title == "Rules"
    assert words(outline) == [(1, "Rules")]
    found = [(text[block.start : block.end], block.header) for block in outline.blocks]
    assert found == [("a | b\n1 | 2", "Days a year\na | b"), ("x | y", "x | y")]


@pytest.mark.parametrize(
    "part", ["# ", "#\t", "```\n", "| ", "|-", "a|b\n-|-\n", "\n\n", "~~~", "---\n", "=\n", " " * 3]
)
@pytest.mark.parametrize("outline", [markdown_outline, rst_outline])
def test_time_is_linear_in_the_length_of_a_text(part: str, outline: object) -> None:
    assert callable(outline)
    started = time.process_time()
    outline("a" + part * 20_000 + "b")
    outline(part * 20_000)
    assert time.process_time() - started < 1
