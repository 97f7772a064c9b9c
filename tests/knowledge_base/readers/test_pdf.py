"""PDF: the text of pages, their labels and headings, and what of a file is not read."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llama_retrieval_ext import KnowledgeBase, read_documents
from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.knowledge_base.readers.outline import OutlinedDocument
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList
from tests.cases import cases
from tests.knowledge_base.readers.sample_files import write_pdf

BROKEN = "The quick retrie-\nval of documents is well-\nknown since 1990-\n1995 and so\xad\nft."


def read(path: Path) -> DocumentList:
    documents = read_documents(path)
    assert documents.left_out == {}
    return documents


def test_words_that_are_broken_at_the_end_of_a_line_stay_in_the_text_as_they_are(
    tmp_path: Path,
) -> None:
    write_pdf(tmp_path / "a.pdf", BROKEN)
    (page,) = read(tmp_path / "a.pdf")
    assert page.text == BROKEN.replace("\xad", "-")


@pytest.mark.slow
@cases("question", ["retrieval", "retrie", "well-known", "known", "soft"])
def test_broken_words_are_found_joined_and_as_they_stand(
    tmp_path: Path, kb: KnowledgeBase, question: str
) -> None:
    write_pdf(tmp_path / "a.pdf", BROKEN)
    kb.add(read(tmp_path / "a.pdf"), show_progress=False)
    (hit,) = kb.search(question, "keyword")
    assert hit.text == BROKEN.replace("\xad", "-")[hit.start : hit.end]


# Distances between words without a blank, whose code is another letter of 564 units; and letters of
# a Japanese collection in a font that is not in the file.
TYPE0 = (
    "<< /Type /Font /Subtype /Type0 /BaseFont /Any /Encoding /Identity-H /DescendantFonts [101 0 R]"
    " {unicode} >>"
)
DESCENDANT = (
    "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Any /DW 600 /W [32 [564]] /CIDSystemInfo "
    "<< /Registry (Adobe) /Ordering ({collection}) /Supplement 0 >> >>"
)
UNICODE = (
    "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <0000> <ffff> "
    "endcodespacerange 1 beginbfrange <0000> <00ff> <0000> endbfrange endcmap end"
)


def test_words_of_fonts_with_two_bytes_a_letter_are_apart(tmp_path: Path) -> None:
    font = TYPE0.format(unicode="/ToUnicode 102 0 R"), DESCENDANT.format(collection="Identity")
    mapping = f"<< /Length {len(UNICODE)} >>\nstream\n{UNICODE}\nendstream"
    words = [word.encode("utf-16-be").hex() for word in ("Annual", "leave", "is", "granted")]
    shown = "> -250 <".join(words)
    write_pdf(tmp_path / "a.pdf", f"[<{shown}>]", objects=(*font, mapping))
    assert read(tmp_path / "a.pdf")[0].text.strip() == "Annual leave is granted"


def test_letters_of_a_collection_are_read_or_named_as_missing(tmp_path: Path) -> None:
    font = TYPE0.format(unicode=""), DESCENDANT.format(collection="Japan1")
    write_pdf(tmp_path / "a.pdf", "<035303540355>", objects=font)
    documents = read_documents(tmp_path / "a.pdf")
    assert documents[0].text == "おかが" or "fonts" in documents.left_out[tmp_path / "a.pdf"]


def test_ligatures_are_letters(tmp_path: Path) -> None:
    font = TYPE0.format(unicode="/ToUnicode 102 0 R"), DESCENDANT.format(collection="Identity")
    mapping = UNICODE.replace("<00ff> <0000>", "<00ff> <fb00>")
    stream = f"<< /Length {len(mapping)} >>\nstream\n{mapping}\nendstream"
    write_pdf(tmp_path / "a.pdf", "<000100020003>", objects=(*font, stream))
    assert read(tmp_path / "a.pdf")[0].text == "fiflffi"


def test_values_of_forms_and_notes_are_read(tmp_path: Path) -> None:
    field = "/Type /Annot /Subtype /Widget /Rect [0 0 9 9]"
    objects = (
        f"<< {field} /FT /Tx /T (n1) /TU (Name) /V (Ann Lister) >>",
        f"<< {field} /FT /Tx /T (City) /V () >>",
        f"<< {field} /FT /Btn /T (Agrees) /V /Yes /AS /Yes /AP << /N << /Yes 5 0 R >> >> >>",
        "<< /Type /Annot /Subtype /Text /Rect [0 0 9 9] /Contents (Ask the office) >>",
        "<< /Type /Annot /Subtype /Link /Rect [0 0 9 9] /Contents (https://a.example) >>",
    )
    widgets = "/Annots [100 0 R 101 0 R 102 0 R 103 0 R 104 0 R]"
    form = "/AcroForm << /Fields [100 0 R 101 0 R 102 0 R] >>"
    write_pdf(tmp_path / "a.pdf", f"Request%%{widgets}", catalog=form, objects=objects)
    assert read(tmp_path / "a.pdf")[0].text.splitlines() == [
        *("Request", "Name: Ann Lister", "Agrees: Yes", "Ask the office")
    ]


def bookmark(title: str, page: int, **links: int) -> str:
    more = " ".join(f"/{name} {number} 0 R" for name, number in links.items())
    return f"<< /Title ({title}) /Dest [{4 + 2 * page} 0 R /Fit] /Parent 100 0 R {more} >>"


OUTLINE = (
    "<< /Type /Outlines /First 101 0 R /Last 101 0 R >>",
    bookmark("Rules", 0, First=102, Last=103),
    bookmark("Annual leave", 0, Next=103),
    bookmark("Sick leave", 2),
)


def test_pages_have_the_bookmarks_above_them_and_their_labels(tmp_path: Path) -> None:
    pages = "Annual leave is 25 days.", "Nothing new.", "Sick  leave: call at nine."
    catalog = "/Outlines 100 0 R /PageLabels << /Nums [0 << /S /r >> 1 << /S /D /St 7 >>] >>"
    write_pdf(tmp_path / "a.pdf", *pages, title="Staff rules", catalog=catalog, objects=OUTLINE)
    nodes = PassageParser(chunk_size=512, chunk_overlap=0)(read(tmp_path / "a.pdf"))
    assert [
        (node.metadata["page"], node.metadata["title"], node.metadata["heading_path"])
        for node in nodes
    ] == [
        ("i", "Staff rules", "Rules > Annual leave"),
        (7, "Staff rules", "Rules > Annual leave"),
        (8, "Staff rules", "Rules > Sick leave"),
    ]


def test_bookmarks_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    circle = (OUTLINE[0], bookmark("Rules", 0, First=101, Next=101))
    write_pdf(tmp_path / "a.pdf", "text", catalog="/Outlines 100 0 R", objects=circle)
    (page,) = read(tmp_path / "a.pdf")
    assert isinstance(page, OutlinedDocument)
    assert {heading.text for heading in page.outline.headings} == {"Rules"}


@cases("title", ["Microsoft Word - draft", "rules.indd", "untitled"])
def test_the_title_that_a_program_wrote_is_no_title(tmp_path: Path, title: str) -> None:
    write_pdf(tmp_path / "a.pdf", "text", title=title)
    (page,) = read(tmp_path / "a.pdf")
    assert isinstance(page, OutlinedDocument)
    assert page.outline.title == ""


def test_pages_without_text_are_named_by_each_entrance(tmp_path: Path, kb: KnowledgeBase) -> None:
    write_pdf(tmp_path / "a.pdf", "Leave.", "", "")
    expected = {tmp_path / "a.pdf": "2 of 3 pages: no text: scanned?"}
    documents = read_documents(tmp_path)
    assert [document.text for document in documents] == ["Leave.", "", ""]
    assert documents.left_out == expected
    left_out = {str(path): reason for path, reason in expected.items()}
    report = kb.sync(tmp_path, show_progress=False)
    assert (report.left_out, report.added) == (left_out, (str(tmp_path / "a.pdf"),))
    assert kb.sync(documents, name="list", show_progress=False).left_out == left_out


def test_attached_files_are_named(tmp_path: Path) -> None:
    files = "/Names << /EmbeddedFiles << /Names [(a.txt) 100 0 R] >> >>"
    attached = "<< /Type /Filespec /F (a.txt) /EF << /F 5 0 R >> >>"
    write_pdf(tmp_path / "a.pdf", "Leave.", catalog=files, objects=(attached,))
    (reason,) = read_documents(tmp_path).left_out.values()
    assert "1 attached file" in reason


def damaged(path: Path) -> None:
    path.write_bytes(b"%PDF-1.4 and nothing else")


def encrypted(path: Path) -> None:
    write_pdf(path, "Leave.")
    key = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (" + "x" * 32 + ") /U ("
    content = path.read_bytes().replace(
        b"/Root 1 0 R", b"/Root 1 0 R /ID [(a) (a)] %b" % key.encode()
    )
    path.write_bytes(content.replace(b"/Info", b"y" * 32 + b") >> /Info"))


def with_too_many_pages(path: Path) -> None:
    write_pdf(path, "Leave.")
    kids = b" 4 0 R" * 60_000
    content = path.read_bytes().replace(b" 4 0 R", b"", 0)
    path.write_bytes(
        content.replace(b"[4 0 R] /Count 1", b"[%b] /Count 60000" % kids).split(b"xref")[0]
        + b"trailer << /Root 1 0 R >>\n"
    )


def bomb(path: Path, n_words: int = 6_000_000) -> None:
    write_pdf(path, "Leave.")
    stream = zlib.compress(b"BT /F1 9 Tf " + b"(aaaaaaaaaaaaaaaaaaa) Tj " * n_words, 9)
    body = b"<< /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream)
    head = path.read_bytes().split(b"5 0 obj")[0]
    path.write_bytes(head + b"5 0 obj\n" + body + b"\nendobj\ntrailer << /Root 1 0 R >>\n")


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (damaged, "it is damaged, or not a PDF"),
        (Path.touch, "it is damaged, or not a PDF"),
        (encrypted, "it can only be opened with a password; save a copy without one"),
        (with_too_many_pages, "it has more than 50,000 pages, the limit"),
        (bomb, "a page, or another part of it, unpacks to more than 50,000,000 bytes"),
    ],
)
@pytest.mark.slow
def test_files_that_cannot_be_read_are_left_out_with_a_reason(
    tmp_path: Path, write: object, reason: str
) -> None:
    assert callable(write)
    write(tmp_path / "a.pdf")
    documents = read_documents(tmp_path)
    assert (documents, documents.left_out) == ([], {tmp_path / "a.pdf": reason})


@pytest.mark.slow
def test_a_page_of_too_many_objects_is_named(tmp_path: Path) -> None:
    bomb(tmp_path / "a.pdf", n_words=300_001)
    (reason,) = read_documents(tmp_path).left_out.values()
    assert reason == "1 of 1 page: not read: more than 300,000 objects, the limit of a page"


@pytest.mark.slow
def test_texts_of_forms_that_a_page_draws_many_times_are_counted(tmp_path: Path) -> None:
    font = b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    texts = zlib.compress(b"BT /F1 9 Tf " + b"(aaaaa) Tj " * 40_000 + b"ET")
    form = b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Filter /FlateDecode "
    draws = b"/Fm Do " * 20
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R "
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        page + font + b" /XObject << /Fm 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(draws), draws),
        form + font + b" >> /Length %d >>\nstream\n%b\nendstream" % (len(texts), texts),
    ]
    body = b"".join(b"%d 0 obj\n%b\nendobj\n" % each for each in enumerate(objects, 1))
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\n" + body + b"trailer << /Root 1 0 R >>\n")
    (reason,) = read_documents(tmp_path).left_out.values()
    assert reason == "1 of 1 page: not read: more than 300,000 objects, the limit of a page"


@pytest.mark.slow
def test_threads_read_at_the_same_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.pdf" for number in range(8)]
    for path in paths:
        write_pdf(path, *([path.name] * 30))
    with ThreadPoolExecutor(8) as pool:
        for path, documents in zip(paths, pool.map(read, paths), strict=True):
            assert {document.text for document in documents} == {path.name}
