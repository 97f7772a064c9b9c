"""The outline of a text: title, headings, tables and blocks of code."""

from pathlib import Path

import pytest
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.knowledge_base.readers.outline import (
    Outline,
    OutlinedDocument,
    markdown_outline,
    outline_of,
    outlined,
    rst_outline,
)
from llama_retrieval_ext.knowledge_base.readers.outline import TextLine as Line
from tests.cases import cases
from tests.knowledge_base.readers.sample_files import word_paragraph, word_table, write_styled_docx


def words(outline: Outline) -> list[tuple[int, str]]:
    return [(heading.level, heading.text) for heading in outline.headings]


@cases(
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


@cases(
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


@cases(
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


@cases("name", ["a.md", "A.MARKDOWN", "a.rst", "/docs/a.mdx"])
def test_files_with_structure_have_an_outline(name: str) -> None:
    text = "Leave\n=====\n\ntext\n"
    by_name = Document(text=text, metadata={"file_name": name})
    by_path = Document(text=text, metadata={"file_path": f"/x/{name}"})
    assert words(outline_of(by_name)) == words(outline_of(by_path)) == [(1, "Leave")]


@cases("metadata", [{}, {"file_name": "a.txt"}, {"file_name": 3}])
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


LONG = "Every employee has twenty-five days of annual leave, which are granted on request. " * 6
PAGE = f"""<title>Rules</title><nav>home</nav><h1>Rules</h1><p>{LONG}</p>
<h2><span>Annual</span> leave</h2><p>{LONG}</p><h3></h3><p>not a heading</p>
<table><caption>Days a year</caption><tr><th>who</th><th>days</th></tr>
<tr><td><p>welder</p></td><td>25</td></tr><tr><td>clerk</td><td>24</td></tr></table>
<table><tr><td>layout</td></tr></table><h2>Sick<br>leave</h2><p>{LONG}</p>"""
STYLES = {"T": "Title", "H1": "heading 1", "H2": "heading 2", "C": "caption"}
BODY = (
    word_paragraph("Handbook", "T")
    + word_paragraph(LONG)
    + word_paragraph("Leave", "H1")
    + word_paragraph(LONG)
    + f"<w:sdt><w:sdtContent>{word_paragraph('Sick leave', 'H2')}</w:sdtContent></w:sdt>"
    + word_paragraph("Table 1: days", "C")
    + word_table(("who", "days"), ("welder", "25"), ("clerk", "24"))
    + word_paragraph(LONG)
)


def read_outlined(path: Path) -> list[OutlinedDocument]:
    documents = read_documents(path)
    assert documents.left_out == {}
    return [document for document in documents if isinstance(document, OutlinedDocument)]


def headings(document: OutlinedDocument) -> list[tuple[int, str]]:
    found = document.outline.headings
    assert all(document.text[at:].startswith(text.split()[0]) for at, _, text in found)
    return [(level, text) for _, level, text in found]


def tables(document: OutlinedDocument) -> list[tuple[str, str]]:
    return [(document.text[start:end], header) for start, end, header in document.outline.blocks]


def test_html_has_its_headings_and_tables(tmp_path: Path) -> None:
    (tmp_path / "rules.html").write_text(PAGE, encoding="utf-8")
    (document,) = read_outlined(tmp_path / "rules.html")
    assert headings(document) == [(1, "Rules"), (2, "Annual leave"), (2, "Sick leave")]
    assert tables(document) == [("who days\nwelder\n25\nclerk 24", "Days a year\nwho days")]
    assert document.text.count("not a heading") == 1
    assert "layout\nSick leave" in document.text


def test_docx_has_its_headings_tables_and_header_lines(tmp_path: Path) -> None:
    write_styled_docx(tmp_path / "handbook.docx", BODY, STYLES)
    (document,) = read_outlined(tmp_path / "handbook.docx")
    assert document.text.startswith("Confidential\n\nHandbook\n\nEvery employee")
    assert headings(document) == [(1, "Handbook"), (2, "Leave"), (3, "Sick leave")]
    assert tables(document) == [
        ("who | days\nwelder | 25\nclerk | 24", "Table 1: days\nwho | days")
    ]
    assert document.outline.title == "Handbook"


def test_text_of_a_table_in_a_table_of_docx_is_read_once(tmp_path: Path) -> None:
    inner = word_table(("inner",))
    cell = f"<w:tc>{word_paragraph('outer')}{inner}</w:tc>"
    write_styled_docx(tmp_path / "a.docx", f"<w:tbl><w:tr>{cell}</w:tr></w:tbl>", {})
    (document,) = read_outlined(tmp_path / "a.docx")
    assert document.text == "Confidential\n\nouter\ninner"


@pytest.mark.parametrize("name", ["rules.html", "handbook.docx"])
def test_passages_of_a_file_stand_under_its_headings(tmp_path: Path, name: str) -> None:
    (tmp_path / "rules.html").write_text(PAGE, encoding="utf-8")
    write_styled_docx(tmp_path / "handbook.docx", BODY, STYLES)
    (document,) = read_outlined(tmp_path / name)
    nodes = PassageParser(chunk_size=200, chunk_overlap=0)([document])
    paths = [node.metadata.get("heading_path") for node in nodes]
    last = {"rules.html": "Sick leave", "handbook.docx": "Leave > Sick leave"}[name]
    assert paths[-1] == last
    for node in nodes:
        assert isinstance(node, TextNode)
        assert document.text[node.start_char_idx : node.end_char_idx] == node.text
