"""Each format of a user's files."""

import sys
import time
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from tests.cases import cases
from tests.knowledge_base.readers.sample_files import write_pdf
from tests.knowledge_base.readers.test_files import read, texts

HTML = """<!doctype html><html><head><meta charset="{charset}"><title>Fire
 drill</title><style>p {{ color: red }}</style></head><body><script>var hidden = 1;</script>
<!-- not text --><h1>疏散</h1><p>Leave by the <b>near</b>est
door.</p><table><tr><td>floor</td><td>2</td></tr>
</table></body></html>"""


@pytest.mark.parametrize(("suffix", "charset"), [(".html", "utf-8"), (".htm", "gb18030")])
def test_html_is_read_in_its_encoding_without_scripts(
    tmp_path: Path, suffix: str, charset: str
) -> None:
    page = tmp_path / f"page{suffix}"
    page.write_text(HTML.format(charset=charset), encoding=charset)
    assert texts(page) == ["Fire drill\n疏散\nLeave by the nearest door.\nfloor 2"]
    assert read([page]).documents[0].metadata["title"] == "Fire drill"


def test_pdf_is_a_document_for_each_page(tmp_path: Path) -> None:
    write_pdf(tmp_path / "law.pdf", "Exits must be marked.", "Drills are held twice a year.")
    reading = read([tmp_path / "law.pdf"])
    assert [(document.text, document.metadata["page"]) for document in reading.documents] == [
        ("Exits must be marked.", 1),
        ("Drills are held twice a year.", 2),
    ]
    assert len({document.doc_id for document in reading.documents}) == 2


def test_pdf_is_read_without_llama_index_readers_which_configure_the_root_logger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "law.pdf", "Exits must be marked.")
    monkeypatch.setitem(sys.modules, "llama_index.readers.file", None)
    assert texts(tmp_path / "law.pdf") == ["Exits must be marked."]


def test_csv_is_a_document_for_each_row_with_the_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "staff.csv").write_text("name,role\n李雷,welder\nAnn,\n", encoding="utf-8")
    assert texts(tmp_path / "staff.csv") == ["name: 李雷\nrole: welder", "name: Ann\nrole: "]


@cases(
    ("table", "first"),
    [
        ("Ann,30,Paris\nBob,41,Rome\nEve,22,Bonn", "column 1: Ann\ncolumn 2: 30\ncolumn 3: Paris"),
        ("Country,2019,2020\nFrance,5,6\nSpain,7,8", "Country: France\n2019: 5\n2020: 6"),
        ("产品,1月,2月\n甲,3,4\n乙,5,6", "产品: 甲\n1月: 3\n2月: 4"),
        ("Room,1,2\na,5,5\nb,6,7", "Room: a\n1: 5\n2: 5"),
    ],
)
def test_first_row_that_is_data_names_no_columns_but_years_and_counts_do(
    tmp_path: Path, table: str, first: str
) -> None:
    (tmp_path / "a.csv").write_text(table, encoding="utf-8")
    assert texts(tmp_path / "a.csv")[0] == first


@pytest.mark.parametrize(
    ("suffix", "package"),
    [
        (".pdf", "pypdfium2"),
        (".html", "lxml"),
        (".docx", "office_oxide"),
        (".xlsx", "python_calamine"),
        (".pptx", "office_oxide"),
    ],
)
def test_file_whose_reader_is_missing_is_left_out_and_the_reason_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, package: str
) -> None:
    empty_zip = b"PK\x05\x06" + bytes(18)
    (tmp_path / f"file{suffix}").write_bytes(b"<p>" if suffix == ".html" else empty_zip)
    (tmp_path / "a.txt").write_text("found")
    monkeypatch.setitem(sys.modules, package, None)
    documents = read_documents(tmp_path)
    assert [document.text for document in documents] == ["found"]
    (message,) = documents.left_out.values()
    assert message.startswith(f"reading {suffix} files needs the extra 'quickstart'")


@pytest.mark.slow
def test_spreadsheet_is_a_document_for_each_row_of_each_sheet(tmp_path: Path) -> None:
    import openpyxl  # noqa: PLC0415 - slow to import

    workbook = openpyxl.Workbook()
    workbook.active.title = "staff"
    for row in (["name", "role"], ["李雷", "welder"], [None, None], ["Ann", None]):
        workbook.active.append(row)
    workbook.create_sheet("empty")
    workbook.create_sheet("rooms").append(["floor", 2])
    workbook["rooms"].append([3, "canteen"])
    workbook.save(tmp_path / "book.xlsx")
    documents = read_documents(tmp_path / "book.xlsx")
    assert [(document.text, document.metadata["sheet_name"]) for document in documents] == [
        ("name: 李雷\nrole: welder", "staff"),
        ("name: Ann", "staff"),
        ("floor: 3\n2: canteen", "rooms"),
    ]


@pytest.mark.slow
def test_slides_are_documents_with_their_tables_and_notes(tmp_path: Path) -> None:
    import pptx  # noqa: PLC0415 - slow to import

    slides = pptx.Presentation()
    first, second = (slides.slides.add_slide(slides.slide_layouts[5]) for _ in range(2))
    first.shapes.title.text = "Fire drill\nTwice a year"
    first.notes_slide.notes_text_frame.text = "ask the wardens"
    box = (pptx.util.Inches(1),) * 4
    table = second.shapes.add_table(1, 2, *box).table
    table.cell(0, 0).text, table.cell(0, 1).text = "floor", "2"
    slides.save(str(tmp_path / "talk.pptx"))
    documents = read_documents([tmp_path / "talk.pptx"])
    assert [(document.text, document.metadata["page"]) for document in documents] == [
        ("Fire drill Twice a year\nask the wardens", 1),
        ("floor | 2", 2),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "gb18030"])
@pytest.mark.parametrize("name", ["note.txt", "note.csv"])
def test_text_and_tables_are_read_in_the_encodings_of_windows(
    tmp_path: Path, name: str, encoding: str
) -> None:
    row = "第九条 安全 Müller 李雷 图书馆的门是在早上九点开的。"
    (tmp_path / name).write_bytes(f"name\r\n{row}\r\n".encode(encoding))
    (text,) = texts(tmp_path / name)
    assert row in text


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "gb18030"])
def test_long_text_is_read_to_its_end(tmp_path: Path, encoding: str) -> None:
    text = "第九条的 the 😀 end\n" * 9_000
    (tmp_path / "note.txt").write_bytes(text.encode(encoding))
    assert texts(tmp_path / "note.txt") == [text]


def test_csv_with_a_huge_field_is_left_out_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "huge.csv").write_text("name,text\na,b\nc," + "x" * 200_000)
    (tmp_path / "small.csv").write_text("name\nAnn")
    documents = read_documents(tmp_path)
    assert [document.text for document in documents] == ["name: Ann"]
    (reason,) = documents.left_out.values()
    assert "line 3" in reason
    assert "field_size_limit" in reason


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_text_in_a_named_encoding_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("title\nÜber die Größe".encode("latin-1"))
    (tmp_path / "utf-8.txt").write_text("Über", encoding="utf-8")
    documents = read_documents(tmp_path, encoding="latin-1")
    assert "Über die Größe" in documents[0].text
    assert documents[1].text == "Über"
    assert documents.left_out == {}


@pytest.mark.slow
def test_spreadsheet_that_claims_too_many_cells_is_read_by_what_it_has(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["name", "city"])
    book.active.append(["Ann", "York"])
    book.save(tmp_path / "small.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "small.xlsx") as source,
        zipfile.ZipFile(tmp_path / "claims.xlsx", "w") as target,
    ):
        for name in source.namelist():
            text = source.read(name).decode()
            text = text.replace('ref="A1:B2"', 'ref="A1:XFD32000"')
            target.writestr(name, text)
    start = time.process_time()
    documents = read_documents(tmp_path / "claims.xlsx")
    assert [document.text for document in documents] == ["name: Ann\ncity: York"]
    assert time.process_time() - start < 3


@pytest.mark.slow
def test_spreadsheet_with_a_far_cell_is_read_at_once(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["name", "city"])
    book.active.append(["Ann", "York"])
    book.active["XFD3"] = "far"
    book.save(tmp_path / "far.xlsx")
    start = time.process_time()
    documents = read_documents(tmp_path / "far.xlsx")
    assert documents[0].text == "name: Ann\ncity: York"
    assert "far" in documents[-1].text
    assert len(documents) == 2
    assert time.process_time() - start < 8


@cases("name", ["a.xlsx", "a.pptx", "a.docx", "a.odt"])
def test_office_file_with_a_part_larger_than_it_states_is_left_out(
    tmp_path: Path, name: str
) -> None:
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("content.xml", b" " * 3_000_000)
    data = (tmp_path / name).read_bytes()
    stated, smaller = ((size).to_bytes(4, "little") for size in (3_000_000, 3_000))
    (tmp_path / name).write_bytes(data.replace(stated, smaller))
    reason = read_documents(tmp_path).left_out[tmp_path / name]
    assert reason == "it is damaged: its part 'content.xml' is not what was packed"


@pytest.mark.slow
def test_office_file_that_unpacks_to_too_much_is_left_out_unopened(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("word/document.xml", b" " * 10_000_000)
        bomb.filelist *= 31  # it is there once, and listed as often
    mail = EmailMessage()
    mail.set_content("See the plan.")
    data = (tmp_path / "bomb.docx").read_bytes()
    mail.add_attachment(data, maintype="application", subtype="zip", filename="bomb.docx")
    (tmp_path / "bomb.eml").write_bytes(mail.as_bytes())
    documents = read_documents(tmp_path)
    assert len(documents.left_out) == 2
    for reason in documents.left_out.values():
        assert "unpacks to 310,000,000 bytes" in reason


def test_unknown_encoding_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="encoding"):
        read_documents(tmp_path, encoding="latin-99")
