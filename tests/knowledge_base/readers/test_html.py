"""HTML: its text, its encodings, what its headings rule, and hostile pages."""

import time
from pathlib import Path

import pytest

from llama_retrieval_ext.knowledge_base.readers.files import read_documents
from llama_retrieval_ext.knowledge_base.readers.outline import OutlinedDocument, sections_of
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList
from tests.cases import cases

LONG = "Every employee has twenty-five days of annual leave, which are granted on request. " * 6
SPANISH = "<p>El niño y la señora Muñoz de España: año 2024.</p>"


def read(
    folder: Path, content: str | bytes, name: str = "a.html", *, encoding: str = ""
) -> DocumentList:
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(data)
    return read_documents(folder / name, encoding=encoding)


@cases(
    ("page", "text"),
    [
        ("<select><option>Red<option>Green</select>", "Red\nGreen"),
        ("<address>York</address><legend>Rooms</legend>Two", "York\nRooms\nTwo"),
        ("a<p>b <img alt='Floor plan of C'>c", "a\nb Floor plan of C c"),
        ("<ol><li>one<li>two</ol><ul><li>three</ul>", "1. one\n2. two\nthree"),
        ("<ol start=4><li>four<li value=7>seven<li>eight</ol>", "4. four\n7. seven\n8. eight"),
        ("<pre>if a:\n    b\n\nc</pre>", "if a:\n    b\nc"),
        ("<input type=hidden value=x><input value=25><input type=password value=y>", "25"),
        ("<p>near<b>est</b><script>x</script> <!-- no --> door", "nearest door"),
        ("<h2>Leave<a class=headerlink href=#x>¶</a></h2>", "Leave"),
        ("<ruby>東<rp>(</rp><rt>とう</rt><rp>)</rp>京<rt>きょう</rt></ruby>", "東京"),
        ("", ""),
        ("<!-- only -->", ""),
    ],
)
def test_text_is_what_a_browser_shows(tmp_path: Path, page: str, text: str) -> None:
    (document,) = read(tmp_path, page)
    assert document.text == text


@pytest.mark.parametrize("name", ["a.xhtml", "a.HTML5", "a.shtml", "a.htm"])
@pytest.mark.parametrize("nbsp", ["&#160;", "&nbsp;"])
def test_other_suffixes_and_xhtml_are_html(tmp_path: Path, name: str, nbsp: str) -> None:
    page = (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>Rules</title>'
        f"</head><body><h1>Leave</h1><p>25{nbsp}days</p></body></html>"
    )
    (document,) = read(tmp_path, page, name)
    assert document.text == "Rules\nLeave\n25 days"
    assert document.metadata["title"] == "Rules"


@cases(
    ("head", "codec", "encoding"),
    [
        ("<meta charset=iso-8859-1>", "cp1252", ""),
        ("<meta http-equiv=content-type content='text/html; charset=cp1250'>", "utf-8", ""),
        ("<?xml version='1.0' encoding='windows-1252'?>", "cp1252", ""),
        ("", "cp1252", "cp1252"),
        ("", "utf-8", "latin-1"),
        ("", "utf-16", ""),
    ],
)
def test_page_is_in_the_encoding_that_it_declares_or_that_is_passed(
    tmp_path: Path, head: str, codec: str, encoding: str
) -> None:
    (document,) = read(tmp_path, (head + SPANISH).encode(codec), encoding=encoding)
    assert document.text == "El niño y la señora Muñoz de España: año 2024."


def test_page_of_unknown_encoding_is_left_out(tmp_path: Path) -> None:
    documents = read(tmp_path, SPANISH.encode("cp1252"))
    assert documents == []
    assert "encoding" in documents.left_out[tmp_path / "a.html"]


def test_characters_outside_of_the_declared_encoding_are_counted(tmp_path: Path) -> None:
    page = b"<meta charset=utf-8>" + SPANISH.encode() + b"\xff"
    documents = read(tmp_path, page)
    assert documents[0].text.startswith("El niño")
    assert documents.left_out[tmp_path / "a.html"].startswith("1 of its characters")


BOXES = [
    "<div class='tip'>{}</div>",
    "<div class='docbook note'>{}</div>",
    *(f"<{tag}>{{}}</{tag}>" for tag in ("aside", "nav", "figure", "blockquote", "details")),
    "<table><tr><td>{}</td></tr></table>",
    "<ul><li>{}</ul>",
    "<aside><aside>{}</aside></aside>",
    "<aside>{}<aside><h2>In it</h2></aside></aside>",
]


@cases("box", BOXES)
def test_heading_in_a_box_rules_its_box_only(tmp_path: Path, box: str) -> None:
    inside = box.format(f"<h3>Tip</h3><p>{LONG}</p>")
    page = f"<h1>Rules</h1><h2>Leave<h3>Notice</h3><p>{LONG}</p>{inside}<p>{LONG}</p><h3>Sick</h3>x"
    (document,) = read(tmp_path, page)
    assert isinstance(document, OutlinedDocument)
    assert document.outline.title == "Rules"
    sections = sections_of(document.text, document.outline, "Rules")
    paths = {
        section.path for section in sections if LONG[:40] in document.text[slice(*section[:2])]
    }
    assert ("Leave", "Notice") in {path[:2] for path in paths}
    last = document.text.rindex(LONG[:40])
    (path,) = (section.path for section in sections if section.start <= last < section.end)
    assert "Tip" not in path
    assert any("Tip" in path for path in paths)


N = 80_000
HOSTILE = {
    **{
        part: part * (N // len(part))
        for part in ("<a ", "<a x=1 ", "<", "&a", "<!--", "<b>", "<a>")
    },
    **{part: part * (N // len(part)) for part in ("<p>text", "<table>", "<font><p>", "<ul><li>")},
    "attributes": "<a" + "".join(f" a{n}=1" for n in range(N // 6)) + ">",
    "meta": "<meta " * N,
    "xml": "<?xml " + "a" * N,
    "entities": "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY a 'aaaa'>"
    + "".join(f"<!ENTITY a{n} '&a{n - 1};&a{n - 1};'>" for n in range(1, 40))
    + "]><html><p>&a39;</p></html>",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_page_takes_linear_time(tmp_path: Path, name: str) -> None:
    started = time.process_time()
    documents = read(tmp_path, HOSTILE[name])
    assert time.process_time() - started < 2
    assert documents or documents.left_out


def test_page_that_is_nested_too_deeply_is_left_out(tmp_path: Path) -> None:
    documents = read(tmp_path, "<div>" * 8_000 + "deep")
    assert (documents, [*documents.left_out.values()]) == (
        [],
        ["its tags are nested deeper than 2,048, the limit"],
    )
