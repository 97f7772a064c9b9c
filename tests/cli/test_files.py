"""Reading a user's files: every format, every way a file can be bad."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.cli.files import read_files
from llama_retrieval_ext.errors import MissingDependencyError

HTML = """<!doctype html><html><head><meta charset="{charset}"><title>Fire
 drill</title><style>p {{ color: red }}</style></head><body><script>var hidden = 1;</script>
<!-- not text --><h1>疏散</h1><p>Leave by the <b>near</b>est
door.</p><table><tr><td>floor</td><td>2</td></tr>
</table></body></html>"""

_CONTENT_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/'
    'content-types"><Default Extension="xml" ContentType="application/xml"/></Types>'
)
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def write_docx(path: Path, *paragraphs: str) -> None:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", _CONTENT_TYPES)
        archive.writestr("word/document.xml", document)


def write_pdf(path: Path, *pages: str) -> None:
    """A PDF of one line a page; readers rebuild the table of offsets that it lacks."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    frame = "/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R {frame} /Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    written, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n"
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n"
    path.write_bytes(written + f"{head}{table}{trailer}%%EOF\n".encode())


def read(paths: list[Path], **options: Any) -> Any:
    """All documents, read."""
    reading = read_files(paths, **options)
    reading.documents = list(reading.documents)
    return reading


def texts(path: Path) -> list[str]:
    reading = read([path])
    assert reading.failures == {}
    return [document.text for document in reading.documents]


def reason(path: Path) -> str:
    reading = read([path])
    assert reading.documents == []
    told: str = reading.failures[path]
    return told


@pytest.mark.parametrize("name", ["note.txt", "note.md", "note.rst", "note", "NOTE.TXT"])
def test_text_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("# 安全\n\nUse `List<int>`.\n", encoding="utf-8")
    assert texts(tmp_path / name) == ["# 安全\n\nUse `List<int>`.\n"]


def test_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("安全", encoding="utf-8-sig")
    assert texts(tmp_path / "note.txt") == ["安全"]


@pytest.mark.parametrize("charset", ["utf-8", "gb18030"])
@pytest.mark.parametrize("suffix", [".html", ".htm"])
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
    assert [(each.text, each.metadata["page_label"]) for each in reading.documents] == [
        ("Exits must be marked.", "1"),
        ("Drills are held twice a year.", "2"),
    ]
    assert len({document.doc_id for document in reading.documents}) == 2


def test_docx_is_read(tmp_path: Path) -> None:
    write_docx(tmp_path / "plan.docx", "专项施工方案", "Approved in May.")
    assert texts(tmp_path / "plan.docx") == ["专项施工方案\n\nApproved in May."]


def test_csv_is_a_document_for_each_row_with_the_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "staff.csv").write_text("name,role\n李雷,welder\nAnn,\n", encoding="utf-8")
    assert texts(tmp_path / "staff.csv") == ["name: 李雷\nrole: welder", "name: Ann\nrole: "]


def test_folder_is_read_with_its_folders_but_not_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/b/c.md", ".git/config", "a/.hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert texts(tmp_path) == ["a/b/c.md", "b.txt"]


def test_folder_inside_a_hidden_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "docs").mkdir(parents=True)
    (tmp_path / ".cache" / "docs" / "a.txt").write_text("found")
    assert texts(tmp_path / ".cache" / "docs") == ["found"]


def test_hidden_file_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / ".note.txt").write_text("found")
    assert texts(tmp_path / ".note.txt") == ["found"]


def test_folder_of_the_knowledge_base_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "manifest.json").write_text("{}")
    (tmp_path / "a.txt").write_text("found")
    reading = read([tmp_path], leave_out=tmp_path / "kb")
    assert [document.text for document in reading.documents] == ["found"]


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("found")
    assert len(read([tmp_path, tmp_path / "a.txt"]).documents) == 1


def test_ids_do_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("found")
    (absolute,) = read([tmp_path / "a.txt"]).documents
    monkeypatch.chdir(tmp_path)
    (relative,) = read([Path("a.txt")]).documents
    assert (absolute.doc_id, absolute.hash) == (relative.doc_id, relative.hash)


def test_touched_file_is_the_same_document(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("found")
    (before,) = read([file]).documents
    file.unlink()
    file.write_text("found")
    (after,) = read([file]).documents
    assert before.hash == after.hash


def test_unreadable_files_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "latin.txt").write_bytes("Übung".encode("latin-1"))
    (tmp_path / "broken.docx").write_bytes(b"not a zip")
    (tmp_path / "broken.pdf").write_bytes(b"not a pdf")
    reading = read([tmp_path, tmp_path / "missing.txt"])
    assert [document.text for document in reading.documents] == ["good"]
    assert {path.name for path in reading.failures} == {
        *("latin.txt", "broken.docx", "broken.pdf", "missing.txt")
    }


def test_reason_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    assert reason(tmp_path / "picture.png") == "it is not text in UTF-8"
    assert reason(tmp_path / "missing.txt") == "it does not exist"


@pytest.mark.parametrize(
    ("suffix", "package"),
    [(".pdf", "llama_index.readers.file"), (".html", "bs4"), (".docx", "docx2txt")],
)
def test_missing_reader_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, package: str
) -> None:
    write_docx(tmp_path / f"file{suffix}", "text")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "llama_retrieval_ext.cli.html", raising=False)
    with pytest.raises(MissingDependencyError, match=f"reading {suffix} files") as caught:
        read([tmp_path])
    assert caught.value.extra == "quickstart"


def test_text_needs_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("found")
    monkeypatch.setitem(sys.modules, "llama_index.readers.file", None)
    assert texts(tmp_path / "a.txt") == ["found"]


def test_part_that_a_file_no_longer_has_is_outdated(tmp_path: Path) -> None:
    staff, other = tmp_path / "staff.csv", tmp_path / "other.csv"
    staff.write_text("name\nAnn\nBob\n")
    before = [document.doc_id for document in read([staff]).documents]
    staff.write_text("name\nAnn\n")
    reading = read([staff])
    assert reading.outdated([*before, f"{other}_part_0", str(staff)]) == before[1:]


def test_files_are_read_one_by_one_as_they_are_needed(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    watched: list[str] = []

    def watch(files: list[Path]) -> Iterator[Path]:
        for file in files:
            watched.append(file.name)
            yield file

    reading = read_files([tmp_path], watched=watch)
    assert watched == []
    assert reading.finds_any()
    assert watched == ["a.txt"]
    assert [document.text for document in reading.documents] == ["a", "b", "c"]
    assert not read_files([tmp_path / "missing"]).finds_any()
