"""The reader of PDF, on pdfium. It needs the extra ``quickstart``."""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from ctypes import c_float, c_ushort
from mmap import ACCESS_READ, mmap
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.outline import Heading, Outline, OutlinedDocument
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList
from llama_retrieval_ext.scope import PAGE_KEY
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_Raw: TypeAlias = Any  # pypdfium2.raw, the functions of pdfium, and its handles

# pdfium is not thread-safe, not even for different files.
_LOCK: Final = Lock()
# Titles that programs write when the author gives none.
_NO_TITLE: Final = re.compile(r"^untitled|^microsoft |\.\w{2,4}$", re.IGNORECASE)
# A page tree can name one page any number of times, and a page unpack to any number of characters.
_MAX_PAGES: Final = 50_000
_MAX_CHARACTERS: Final = 100_000_000
_MAX_ANNOTATIONS: Final = 10_000
# pdfium takes 2 s to parse a million objects of a page, and 12 s to put their text together.
_MAX_OBJECTS_OF_PAGE: Final = 300_000
_MAX_OBJECTS: Final = 5_000_000
# What a page draws, without pictures, is rarely above 10 MB; nothing stops pdfium once it parses.
_MAX_UNPACKED: Final = 50_000_000
_MOST_PACKED: Final = 1_032  # bytes that deflate packs in one
_STREAM: Final = re.compile(rb"(?<!end)stream\r?\n")
# pdfium's sign for the hyphen of a word that goes on in the next line.
_BROKEN_WORD: Final = "\ufffe"
_COMMON_HAN: Final = 0x4E00
_LETTERS: Final = {
    **dict(enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"), start=0xFB00)),  # ligatures
    **dict.fromkeys((*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFF), ""),  # no characters
}
# Kinds of annotations whose text somebody wrote, unlike that of links.
_NOTES: Final = (
    *("TEXT", "FREETEXT", "HIGHLIGHT", "UNDERLINE", "SQUIGGLY", "STRIKEOUT", "STAMP", "CARET"),
    *("INK", "SQUARE", "CIRCLE", "LINE", "POLYGON", "POLYLINE"),
)


_SCANNED: Final = "no text: scanned?"
_DAMAGED: Final = "cannot be read: damaged"
_CROWDED: Final = f"not read: more than {_MAX_OBJECTS_OF_PAGE:,} objects, the limit of a page"
_FONTLESS: Final = (
    "may miss text: its font is neither in the file nor on this machine; install fonts of its "
    "language, such as fonts-noto-cjk, and read it again"
)


class _Page(NamedTuple):
    """What is read of a page, and what of it is not."""

    label: str
    text: str = ""
    defect: str = ""


def read_pdf(file: Path) -> DocumentList:
    """Read each page of a PDF as a document, with the headings of the file's bookmarks.

    A page ends with its notes and the values of its form. `DocumentList.left_out` says how many
    pages have no text.
    """
    from pypdfium2 import PdfDocument, PdfiumError, raw  # noqa: PLC0415 - an extra

    if file.stat().st_size:
        with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
            _check_streams(content)
    with _LOCK:
        try:
            pdf = PdfDocument(file)
        except PdfiumError as error:
            reason = "it is damaged, or not a PDF"
            if error.err_code in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY):
                reason = "it can only be opened with a password; save a copy without one"
            raise ConfigurationError(reason) from error
        with closing(pdf):
            pdf.init_forms()
            if len(pdf) > _MAX_PAGES:
                raise ConfigurationError(f"it has more than {_MAX_PAGES:,} pages, the limit")
            bookmarks = _bookmarks(pdf)
            title = pdf.get_metadata_value("Title").strip()
            pages = list(_pages(pdf, raw))
            n_attachments = pdf.count_attachments()
    title = "" if _NO_TITLE.search(title) else title
    n_pages = counted(len(pages), "page")
    defects = Counter(page.defect for page in pages if page.defect)
    left_out = [f"{count} of {n_pages}: {defect}" for defect, count in defects.items()]
    if n_attachments:
        left_out.append(f"{counted(n_attachments, 'attached file')}: not read; save them beside it")
    return DocumentList(_outlined_pages(pages, bookmarks, title), {file: "; ".join(left_out)})


def _check_streams(content: mmap) -> None:
    """Raise if a stream that is no picture or attached file unpacks to more than the limit."""
    end = 0
    while start := _STREAM.search(content, end):
        end = content.find(b"endstream", start.end())
        end = len(content) if end < 0 else end
        fields = content[max(start.start() - 400, 0) : start.start()].rpartition(b"obj")[2]
        is_short = end - start.end() < _MAX_UNPACKED // _MOST_PACKED
        if is_short or b"/Image" in fields or b"/EmbeddedFile" in fields:
            continue
        try:
            stream = content[start.end() : end]
            unpacked = zlib.decompressobj().decompress(stream, _MAX_UNPACKED + 1)
        except zlib.error:
            continue  # it is packed in another way
        if len(unpacked) > _MAX_UNPACKED:
            raise ConfigurationError(
                f"a page, or another part of it, unpacks to more than {_MAX_UNPACKED:,} bytes"
            )


def _pages(pdf: "PdfDocument", raw: _Raw) -> Iterator[_Page]:
    from pypdfium2 import PdfiumError  # noqa: PLC0415 - an extra

    left, left_objects = _MAX_CHARACTERS, _MAX_OBJECTS
    for number in range(len(pdf)):
        label = pdf.get_page_label(number) or str(number + 1)
        try:
            with closing(pdf[number]) as page:
                n_objects = _count_objects(page, raw)
                left_objects -= n_objects
                is_crowded = n_objects > _MAX_OBJECTS_OF_PAGE
                text, defect = ("", _CROWDED) if is_crowded else _text_and_defect(page, raw)
        except PdfiumError:
            text, defect = "", _DAMAGED
        left -= len(text)
        if left < 0:
            raise ConfigurationError(f"its text is longer than {_MAX_CHARACTERS:,} characters")
        if left_objects < 0:
            raise ConfigurationError(f"its pages have more than {_MAX_OBJECTS:,} objects")
        yield _Page(label, text, defect)


def _text_and_defect(page: "PdfPage", raw: _Raw) -> tuple[str, str]:
    with closing(page.get_textpage()) as characters:
        written = characters.get_text_range().replace(_BROKEN_WORD, "-\n").translate(_LETTERS)
    lines = [line.rstrip() for line in written.splitlines()]
    text = "\n".join([*lines, *_annotations(page, raw)]).strip("\n")
    if _has_font_missing(page, raw):
        return text, _FONTLESS
    is_scanned = not text.strip() and raw.FPDFPage_CountObjects(page) > 0
    return text, _SCANNED if is_scanned else ""


def _count_objects(page: "PdfPage", raw: _Raw) -> int:
    """Return the number of objects of a page, each form with its own; above the limit at least."""
    count: int = raw.FPDFPage_CountObjects(page)
    containers = [(raw.FPDFPage_GetObject, page, count)]
    while containers and count <= _MAX_OBJECTS_OF_PAGE:
        get_object, container, n_inside = containers.pop()
        for number in range(n_inside):
            written = get_object(container, number)
            if raw.FPDFPageObj_GetType(written) == raw.FPDF_PAGEOBJ_FORM:
                n_drawn = raw.FPDFFormObj_CountObjects(written)
                count += n_drawn
                containers.append((raw.FPDFFormObj_GetObject, written, n_drawn))
    return count


def _has_font_missing(page: "PdfPage", raw: _Raw) -> bool:
    """Return whether pdfium drops text, which has no width if no font has its characters."""
    left, bottom, right, top, width = (c_float() for _ in range(5))
    for number in range(raw.FPDFPage_CountObjects(page)):
        written = raw.FPDFPage_GetObject(page, number)
        if raw.FPDFPageObj_GetType(written) != raw.FPDF_PAGEOBJ_TEXT:
            continue
        raw.FPDFPageObj_GetBounds(written, left, bottom, right, top)
        font = raw.FPDFTextObj_GetFont(written)
        # Blanks have no width either: only Chinese, Japanese and Korean fonts know U+4E00.
        if left.value == right.value and not raw.FPDFFont_GetIsEmbedded(font):
            raw.FPDFFont_GetGlyphWidth(font, _COMMON_HAN, 1, width)
            if width.value and not raw.FPDFFont_GetGlyphPath(font, _COMMON_HAN, 1):
                return True
    return False


def _annotations(page: "PdfPage", raw: _Raw) -> Iterator[str]:
    """Yield the notes on a page, and the values of its form as lines ``field: value``."""
    notes = {getattr(raw, f"FPDF_ANNOT_{name}") for name in _NOTES}
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        line = ""
        if kind in notes:
            line = _string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
        elif kind == raw.FPDF_ANNOT_WIDGET and page.formenv is not None:
            line = _field(page.formenv, annotation, raw)
        raw.FPDFPage_CloseAnnot(annotation)
        if line := " ".join(line.split()):
            yield line


def _field(form: _Raw, annotation: _Raw, raw: _Raw) -> str:
    """Return a field of a form with its value; nothing if it is empty or not checked."""
    name = _string(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation) or _string(
        raw.FPDFAnnot_GetFormFieldName, form, annotation
    )
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        if not raw.FPDFAnnot_IsChecked(form, annotation):
            return ""
        return f"{name}: {_string(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation)}"
    value = _string(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    return f"{name}: {value}" if value.strip() else ""


def _string(function: _Raw, *arguments: object) -> str:
    """Return the text that a function of pdfium writes into a buffer in UTF-16."""
    size = function(*arguments, None, 0)
    buffer = (c_ushort * (size // 2))()
    function(*arguments, buffer, size)
    return bytes(buffer)[:-2].decode("utf-16-le", "ignore")


def _bookmarks(pdf: "PdfDocument") -> dict[int, list[Heading]]:
    """Return the bookmarks by the number of their page."""
    headings: dict[int, list[Heading]] = {}
    for bookmark in pdf.get_toc():
        words = " ".join(bookmark.get_title().split())
        target = bookmark.get_dest()
        page = None if target is None else target.get_index()
        if page is not None and words:
            headings.setdefault(page, []).append(Heading(0, bookmark.level + 1, words))
    return headings


def _outlined_pages(
    pages: Sequence[_Page], bookmarks: Mapping[int, Sequence[Heading]], title: str
) -> Iterator[Document]:
    """Yield pages with their headings and those of pages before."""
    above: list[Heading] = []
    for number, page in enumerate(pages):
        headings = list(above)
        for bookmark in bookmarks.get(number, ()):
            start = headings[-1].start if headings else 0
            words = r"\s+".join(map(re.escape, bookmark.text.split()))
            match = re.compile(words, re.IGNORECASE).search(page.text, start)
            headings.append(bookmark._replace(start=start if match is None else match.start()))
            above = [*(heading for heading in above if heading.level < bookmark.level), bookmark]
        outline = Outline(title, tuple(headings))
        label = {PAGE_KEY: int(page.label) if page.label.isdecimal() else page.label}
        yield OutlinedDocument(text=page.text, metadata=label, outline=outline)
