"""Word, slides and workbooks: what their readers must not lose."""

from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from tests.cases import cases
from tests.knowledge_base.readers.sample_files import write_styled_docx
from tests.knowledge_base.readers.test_files import texts

STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
CHOICE = "http://schemas.openxmlformats.org/markup-compatibility/2006"
NUMBERS = """<w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="7"/>
<w:numFmt w:val="decimal"/><w:lvlText w:val="Section %1."/></w:lvl>
<w:lvl w:ilvl="1"><w:numFmt w:val="lowerRoman"/><w:lvlText w:val="(%2)"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:lvl w:ilvl="0">
<w:numFmt w:val="upperLetter"/><w:lvlText w:val="%1)"/></w:lvl></w:lvlOverride></w:num>"""


def paragraph(words: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{words}</w:t></w:r></w:p>"


def numbered(words: str, level: int, style: str = "", name: int = 1) -> str:
    number = f"<w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='{name}'/></w:numPr>"
    return paragraph(words, f"<w:pStyle w:val='{style}'/>{number}" if style else number)


def formula(inside: str) -> str:
    return f"<w:p><m:oMath xmlns:m='{MATH}'>{inside}</m:oMath></w:p>"


@cases(
    ("body", "shown"),
    [
        (
            numbered("Term", 0, "h1") + numbered("a", 1) + numbered("b", 1) + numbered("End", 0)
            + numbered("changed", 0, name=2) + numbered("again", 0, name=2),
            "Section 7. Term (i) a (ii) b Section 8. End A) changed B) again",
        ),
        (
            formula("<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2x</m:t></m:r>"
                    "</m:den></m:f><m:r><m:t>=y</m:t></m:r>"),
            "1/(2x)=y",
        ),
        (
            ("<w:p><w:moveFrom w:id='1'><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
             "<w:p><w:moveTo w:id='2'><w:r><w:t>moved</w:t></w:r></w:moveTo></w:p>"),
            "moved",
        ),
        (
            "<w:p><w:r><w:t>Fees apply</w:t></w:r><w:r><w:footnoteReference w:id='2'/></w:r></w:p>"
            + paragraph("Next"),
            "Fees apply [Note: Except for batteries] Next",
        ),
        (
            paragraph("D", "<w:framePr w:dropCap='drop'/>") + paragraph("rop it"),
            "Drop it",
        ),
        (
            ("<w:p><w:r><w:t>5 </w:t><w:sym w:font='Symbol' w:char='F06D'/><w:t>m</w:t></w:r>"
             "<w:r><w:rPr><w:rFonts w:ascii='Symbol'/></w:rPr><w:t>\uf0b1</w:t></w:r>"
             "<w:r><w:sym w:font='Wingdings' w:char='F0FC'/></w:r>"
             "<w:r><w:sym w:font='Webdings' w:char='F04C'/></w:r></w:p>"),
            "5 μm±✓",
        ),
        (
            ("<w:p><w:r><w:ruby><w:rt><w:r><w:t>とう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東</w:t>"
             "</w:r></w:rubyBase></w:ruby></w:r><w:hyperlink><w:hyperlink><w:r><w:t>京</w:t></w:r>"
             "</w:hyperlink></w:hyperlink></w:p>"),
            "東京",
        ),
        (
            (f"<m:AlternateContent xmlns:m='{CHOICE}'><m:Choice Requires='x'>{paragraph('new')}"
             f"</m:Choice><m:Fallback>{paragraph('old')}</m:Fallback></m:AlternateContent>"),
            "new",
        ),
    ],
)  # fmt: skip
def test_word_shows_what_is_no_text_in_the_file(tmp_path: Path, body: str, shown: str) -> None:
    note = f"<w:footnote w:id='2'>{paragraph('Except for batteries')}</w:footnote>"
    parts = {"numbering": NUMBERS, "footnotes": note if "footnoteReference" in body else ""}
    write_styled_docx(tmp_path / "a.docx", body, {"h1": "heading 1"}, **parts)
    (text,) = texts(tmp_path / "a.docx")
    assert " ".join(text.split()) == f"Confidential {shown}"


@pytest.mark.parametrize("options", [{"main": "document2"}, {"namespace": STRICT}])
def test_word_is_read_by_its_relations_and_in_the_strict_format(
    tmp_path: Path, options: dict[str, str]
) -> None:
    write_styled_docx(tmp_path / "a.docx", paragraph("The fee is 40 euro."), {}, **options)
    assert "The fee is 40 euro." in texts(tmp_path / "a.docx")[0]


@pytest.mark.slow
def test_slides_have_their_charts_titles_and_alternative_texts(tmp_path: Path) -> None:
    import pptx  # noqa: PLC0415 - slow to import
    from pptx.chart.data import CategoryChartData  # noqa: PLC0415
    from pptx.enum.chart import XL_CHART_TYPE  # noqa: PLC0415

    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[5])
    slide.shapes.title.text = "Leave rules"
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["Bavaria", "Saxony"]
    data.add_series("Days", (25, 24))
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, *(pptx.util.Inches(1),) * 4, data)
    slides.save(str(tmp_path / "talk.pptx"))
    (document,) = read_documents(tmp_path)
    assert document.metadata["title"] == "Leave rules"
    assert {"Bavaria", "Saxony", "Days"} <= set(
        document.text.replace(",", "").replace(":", "").split()
    )


@cases("name", ["a.docx", "a.pptx", "a.xlsx"])
def test_office_file_with_a_password_says_so(tmp_path: Path, name: str) -> None:
    container = b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le")
    (tmp_path / name).write_bytes(container)
    reason = read_documents(tmp_path).left_out[tmp_path / name]
    assert reason == "it is encrypted; save it without a password"


@cases(
    ("name", "content"),
    [
        ("page.doc", b"\xef\xbb\xbf<html><body><p>Thirty days</p></body></html>"),
        ("rich.docx", rb"{\rtf1 Thirty {\b days}.}"),
        ("plain.doc", b"Thirty days"),
        ("table.xls", b"<table><tr><td>Thirty days</td></tr></table>"),
        ("lines.xls", b"leave\tunit\nThirty days\td\n"),
    ],
)
def test_office_suffix_over_other_content_is_read_as_what_it_is(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    assert "Thirty days" in read_documents(tmp_path)[0].text


@pytest.mark.parametrize("name", ["a.docx", "a.ppt", "a.xlsx", "a.xls", "a.ods", "a.odt", "a.epub"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04cut", bytes(range(256)) * 9])
def test_damaged_office_file_says_so(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    reason = read_documents(tmp_path).left_out[tmp_path / name]
    assert reason == f"it is damaged, or not a file of kind {name[2:].upper()}"


@pytest.mark.slow
def test_slides_have_the_bullets_below_bullets(tmp_path: Path) -> None:
    import pptx  # noqa: PLC0415 - slow to import

    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    frame = slide.placeholders[1].text_frame
    frame.text = "Leave"
    for level, words in enumerate(("Annual", "Carried over"), start=1):
        bullet = frame.add_paragraph()
        bullet.text, bullet.level = words, level
    slides.save(str(tmp_path / "talk.pptx"))
    assert texts(tmp_path / "talk.pptx") == ["Leave\nAnnual\nCarried over"]


@pytest.mark.slow
def test_workbook_has_titles_several_tables_formulas_and_comments(tmp_path: Path) -> None:
    import openpyxl  # noqa: PLC0415 - slow to import
    from openpyxl.comments import Comment  # noqa: PLC0415

    book = openpyxl.Workbook()
    sheet = book.active
    rows: Any = (
        *(["Ducks per year"], ["Region:", "North"], ["Year", "Fresh", "Salt"], [2022, 170, 80]),
        *(["total", "=2*85", "=2*40"], [], ["Staff"], ["Name", "Age"], ["Ann", 30]),
    )
    for row in rows:
        sheet.append(row)
    sheet["B4"].comment = Comment("counted twice", "Ann")
    book.create_sheet("one").append(["only", "row"])
    groups = book.create_sheet("groups")
    groups.append(["", "North", "", "South", ""])
    groups.append(["Year", "Q1", "Q2", "Q1", "Q2"])
    groups.append([2022, 1, 2, 3, 4])
    book.save(tmp_path / "a.xlsx")
    assert texts(tmp_path / "a.xlsx") == [
        "Ducks per year\nRegion: | North",
        "Year: 2022\nFresh: 170 [Comment: counted twice]\nSalt: 80",
        "Year: total\nFresh: =2*85\nSalt: =2*40",
        "Staff",
        "Name: Ann\nAge: 30",
        "only | row",
        "Year: 2022\nNorth Q1: 1\nNorth Q2: 2\nSouth Q1: 3\nSouth Q2: 4",
    ]


def test_workbook_whose_cells_are_too_far_apart_is_left_out(tmp_path: Path) -> None:
    import openpyxl  # noqa: PLC0415 - slow to import

    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "near", "far"
    book.save(tmp_path / "a.xlsx")
    assert "spans 17,179,869,184 cells" in next(iter(read_documents(tmp_path).left_out.values()))
