"""OpenDocument texts and slides, and EPUB, as LibreOffice and pandoc write them."""

from pathlib import Path
from zipfile import ZipFile

from llama_retrieval_ext import read_documents

NAMESPACES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "presentation": "presentation",
        "style": "style",
    }.items()
)
TEXT = """<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
<text:p text:style-name="Title">Handbook</text:p>
<text:h text:outline-level="1">Leave</text:h>
<text:p>Every<text:s text:c="3"/>employee<text:note><text:note-citation>1</text:note-citation>
<text:note-body><text:p>in part</text:p></text:note-body></text:note> has 25 days.</text:p>
<text:list><text:list-item><text:p>年假</text:p></text:list-item></text:list>
<table:table><table:table-row><table:table-cell><text:p>Kind</text:p></table:table-cell>
<table:table-cell><text:p>Days</text:p><text:p>a year</text:p></table:table-cell></table:table-row>
<table:table-row><table:table-cell><text:p>sick</text:p></table:table-cell>
<table:table-cell><text:p>10</text:p></table:table-cell></table:table-row></table:table>"""
FOOTER = (
    "<style:footer><text:p>internal <text:page-number>1</text:page-number></text:p></style:footer>"
)
SLIDES = """<draw:page><draw:frame presentation:class="title"><draw:text-box><text:p>Leave</text:p>
</draw:text-box></draw:frame><presentation:notes><text:p>say hello</text:p></presentation:notes>
</draw:page><draw:page/><draw:page><text:p>no title</text:p></draw:page>"""


def write(file: Path, **parts: str) -> None:
    with ZipFile(file, "w") as archive:
        for name, body in parts.items():
            document = f"<office:document {NAMESPACES}><office:body>{body}</office:body>"
            archive.writestr(f"{name}.xml", f"{document}</office:document>")


def test_texts_have_headings_notes_tables_and_footers(tmp_path: Path) -> None:
    write(tmp_path / "a.odt", content=TEXT, styles=FOOTER)
    (document,) = read_documents(tmp_path)
    lines = ["Handbook", "Leave", "Every employee [Note: in part] has 25 days.", "年假"]
    assert document.text.split("\n") == [*lines, "Kind Days a year", "sick 10", "internal"]
    assert document.metadata["title"] == "Handbook"
    outline = document.outline  # type: ignore[attr-defined]
    assert [(heading.level, heading.text) for heading in outline.headings] == [
        (1, "Handbook"),
        (2, "Leave"),
    ]
    assert [block.header for block in outline.blocks] == ["Kind Days a year"]


MATH = """<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mi>E</mi><mo>=</mo><mi>m</mi>
<annotation encoding="StarMath 5.0">E = m c^2</annotation></semantics></math>"""
CHART = f"""<office:document-content {NAMESPACES}><office:automatic-styles><style:style><text>/
</text></style:style></office:automatic-styles><office:body><office:chart><title>
<text:p>Days of leave</text:p></title><table:table><table:table-row><table:table-cell>
<text:p>2021</text:p></table:table-cell><table:table-cell><text:p>25</text:p></table:table-cell>
</table:table-row></table:table></office:chart></office:body></office:document-content>"""


def test_formulas_and_charts_are_read_where_they_are_shown(tmp_path: Path) -> None:
    shown = (
        '<draw:frame><draw:object xlink:href="./{}" xmlns:xlink="x"><text:p>no chart</text:p>'
        "</draw:object></draw:frame>"
    ).format
    body = f"<text:p>As {shown('Object 1')} says.</text:p>{shown('Object 2')}"
    write(tmp_path / "a.odt", content=f"{body}<text:p>The end.</text:p>")
    write(tmp_path / "b.odp", content=f"<draw:page>{shown('Object 2')}</draw:page>")
    for name in ("a.odt", "b.odp"):
        with ZipFile(tmp_path / name, "a") as archive:
            archive.writestr("Object 1/content.xml", MATH)
            archive.writestr("Object 2/content.xml", CHART)
    text, slide = (document.text.split("\n") for document in read_documents(tmp_path))
    assert text == ["As E = m c^2 says.", "Days of leave", "2021 25", "The end."]
    assert slide == ["Days of leave", "2021 25"]


def test_headings_and_lists_of_texts_have_the_numbers_that_are_shown(tmp_path: Path) -> None:
    """Continued, nested, interrupted, restarted; bullets and items without a text have none."""
    level = '<text:list-level-style-number text:level="{}" style:num-format="{}"{}/>'
    styles = (
        '<text:outline-style><text:outline-level-style text:level="1" style:num-format="I"/>'
        '<text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/>'
        '</text:outline-style><text:list-style style:name="numbers">'
        + level.format(1, "1", ' style:num-suffix="." text:start-value="4"')
        + level.format(2, "a", ' style:num-prefix="(" style:num-suffix=")"')
        + '</text:list-style><text:list-style style:name="bullets">'
        '<text:list-level-style-bullet text:level="1" text:bullet-char="•"/></text:list-style>'
    )
    item = "<text:list-item{1}><text:p>{0}</text:p>{2}</text:list-item>".format
    nested = f"<text:list>{item('five a', '', '')}{item('five b', '', '')}</text:list>"
    numbers = '<text:list text:style-name="numbers"{}>{}</text:list>'.format
    body = (
        '<text:h text:outline-level="1">one</text:h><text:h text:outline-level="2">sub</text:h>'
        + numbers("", item("four", "", "") + item("five", "", nested))
        + '<text:h text:outline-level="1">two</text:h>'
        + numbers(' text:continue-numbering="true"', item("six", "", ""))
        + numbers("", item("again", "", "") + item("nine", ' text:start-value="9"', ""))
        + f'<text:list text:style-name="bullets">{item("dot", "", "")}</text:list>'
        + numbers("", f"<text:list-item>{nested}</text:list-item>")
    )
    write(tmp_path / "a.odt", content=body, styles=styles)
    (document,) = read_documents(tmp_path)
    assert document.text.split("\n") == [
        *("I one", "I.1 sub", "4. four", "5. five", "(a) five a", "(b) five b", "II two"),
        *("6. six", "4. again", "9. nine", "dot", "(a) five a", "(b) five b"),
    ]


def test_slides_have_their_number_title_and_notes(tmp_path: Path) -> None:
    write(tmp_path / "a.odp", content=SLIDES)
    first, last = read_documents(tmp_path)
    assert (first.text, first.metadata["title"], first.metadata["page"]) == (
        "Leave\nsay hello",
        "Leave",
        1,
    )
    assert (last.text, last.metadata["page"], "title" in last.metadata) == ("no title", 3, False)


def test_books_have_their_chapters_in_order_and_name_what_is_encrypted(tmp_path: Path) -> None:
    items = "".join(f'<item id="{n}" href="chapter%20{n}.xhtml"/>' for n in (1, 2, 3))
    order = "".join(f'<itemref idref="{n}"/>' for n in (2, 1, 3))
    chapter = "<html><head><title>file</title></head><body><h1>{0}</h1><p>text</p></body></html>"
    with ZipFile(tmp_path / "a.epub", "w") as archive:
        place = '<container><rootfile full-path="OPS/book.opf"/></container>'
        archive.writestr("META-INF/container.xml", place)
        metadata = "<metadata><title>Rules</title></metadata>"
        archive.writestr("OPS/book.opf", f"<package>{metadata}{items}{order}</package>")
        for number in (1, 2, 3):
            archive.writestr(f"OPS/chapter {number}.xhtml", chapter.format(f"Chapter {number}"))
        locked = '<encryption><CipherReference URI="OPS/chapter%203.xhtml"/></encryption>'
        archive.writestr("META-INF/encryption.xml", locked)
    read = read_documents(tmp_path)
    assert [document.text for document in read] == ["Chapter 2\ntext", "Chapter 1\ntext"]
    assert [document.metadata["title"] for document in read] == ["Chapter 2", "Chapter 1"]
    assert {document.metadata["book"] for document in read} == {"Rules"}
    assert read.left_out[tmp_path / "a.epub"] == (
        "1 of 3 chapters are encrypted or missing: ['OPS/chapter 3.xhtml']"
    )
