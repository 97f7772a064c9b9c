"""Files with headings: the text and outline of HTML and DOCX."""

from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.knowledge_base.readers.outline import OutlinedDocument
from tests.knowledge_base.readers.sample_files import word_paragraph, word_table, write_styled_docx

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


def outlined(path: Path) -> list[OutlinedDocument]:
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
    (document,) = outlined(tmp_path / "rules.html")
    assert headings(document) == [(1, "Rules"), (2, "Annual leave"), (2, "Sick leave")]
    assert tables(document) == [("who days\nwelder\n25\nclerk 24", "Days a year\nwho days")]
    assert document.text.count("not a heading") == 1
    assert "layout\nSick leave" in document.text


def test_docx_has_its_headings_tables_and_header_lines(tmp_path: Path) -> None:
    write_styled_docx(tmp_path / "handbook.docx", BODY, STYLES)
    (document,) = outlined(tmp_path / "handbook.docx")
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
    (document,) = outlined(tmp_path / "a.docx")
    assert document.text == "Confidential\n\nouter\ninner"


@pytest.mark.parametrize("name", ["rules.html", "handbook.docx"])
def test_passages_of_a_file_stand_under_its_headings(tmp_path: Path, name: str) -> None:
    (tmp_path / "rules.html").write_text(PAGE, encoding="utf-8")
    write_styled_docx(tmp_path / "handbook.docx", BODY, STYLES)
    (document,) = outlined(tmp_path / name)
    nodes = PassageParser(chunk_size=200, chunk_overlap=0)([document])
    paths = [node.metadata.get("heading_path") for node in nodes]
    last = {"rules.html": "Sick leave", "handbook.docx": "Leave > Sick leave"}[name]
    assert paths[-1] == last
    for node in nodes:
        assert isinstance(node, TextNode)
        assert document.text[node.start_char_idx : node.end_char_idx] == node.text
