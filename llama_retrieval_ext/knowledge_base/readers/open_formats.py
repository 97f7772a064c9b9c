"""Readers of OpenDocument texts and slides and of EPUB: XML in a ZIP file, read as pages of HTML.

They need the extra ``quickstart``.
"""

import posixpath
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote
from zipfile import ZipFile

from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.html import (
    attribute,
    integer,
    lines_of,
    parsed,
    tag_name,
    title_of,
    xml_root,
)
from llama_retrieval_ext.knowledge_base.readers.list_numbers import ListLevel, ListNumbers
from llama_retrieval_ext.knowledge_base.readers.outline import OutlinedDocument, outlined_document
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList
from llama_retrieval_ext.scope import PAGE_KEY

if TYPE_CHECKING:
    from lxml.etree import _Element

# The tags of OpenDocument 1.3 (OASIS, part 3) that mean what one of HTML means.
_HTML: Final[Mapping[str, str]] = {
    "list": "ul",
    **dict.fromkeys(("list-item", "list-header"), "li"),
    "line-break": "br",
    "table-row": "tr",
    **dict.fromkeys(("text-box", "frame", "notes"), "section"),
    # Not to be read.
    **dict.fromkeys(
        ("tracked-changes", "forms", "page-number", "page-count", "ruby-text"), "script"
    ),
}
_REMARKS: Final = {"note": "Note", "annotation": "Comment"}
_LEVEL: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}outline-level"
# By level or style; levels are below the title of the document, those from the fifth on as one.
_HEADINGS: Final = {"Title": "h1", **{str(n): f"h{min(n + 1, 6)}" for n in range(1, 11)}}
_STYLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}style-name"
# Formats of numbers, as Word names them; those of other scripts are written as decimals.
_KINDS: Final = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_OUTLINE: Final = "outline-style"
_CLASS: Final = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}class"
_CONTENT: Final = "content.xml"
_STYLES: Final = "styles.xml"
_MANIFEST: Final = "META-INF/manifest.xml"
_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"


def read_open_text(file: Path) -> list[Document]:
    """Read an ODT file as one document, with its headers, footers, notes, comments and formulas."""
    with _opened(file) as parts:
        root = _whole(parts)
        shared = [_xml(parts, _STYLES)] if _STYLES in parts.namelist() else []
    _write_numbers(root, [*shared, root])
    body, *_ = _as_html(root)
    styles = [part for tree in shared for part in _as_html(tree)]
    headers, footers = (
        [line for margin in styles if tag_name(margin) == name for line in lines_of(margin)]
        for name in ("header", "footer")
    )
    return _with_titles([outlined_document([*headers, *lines_of(body), *footers], {})])


def read_open_slides(file: Path) -> list[Document]:
    """Read each slide with text of an ODP file as a document, with its title, notes and charts."""
    with _opened(file) as parts:
        slides = [part for part in _as_html(_whole(parts)) if tag_name(part) == "page"]
    return _with_titles(
        outlined_document(lines_of(slide), {PAGE_KEY: number})
        for number, slide in enumerate(slides, start=1)
    )


def read_epub(file: Path) -> DocumentList:
    """Read each chapter with text of an EPUB file as a document, in the order of the book.

    The metadata have ``book``, its title, and ``title``, that of the chapter.
    """
    documents, missing = [], []
    with _opened(file) as parts:
        package, names = _package(parts)
        readable = {*parts.namelist()}
        if _ENCRYPTION in readable:  # it names the files whose content is encrypted
            references = _xml(parts, _ENCRYPTION).iter("{*}CipherReference")
            readable -= {unquote(reference.get("URI", "")) for reference in references}
        book = " ".join((package.findtext(".//{*}metadata/{*}title") or "").split())
        for name in names:
            data = parts.read(name) if name in readable else b""
            root = parsed(data.decode("utf-8", "replace"))
            if root is None:
                missing.append(name)
                continue
            body = next(root.iter("{*}body", "body"), root)
            chapter = outlined_document(lines_of(body), {"book": book, "title": title_of(root)})
            if chapter.outline.headings and "title" in chapter.metadata:
                chapter.metadata["title"] = chapter.outline.headings[0].text
            documents.append(chapter)
    reason = f"{len(missing)} of {len(names)} chapters are encrypted or missing: {missing[:3]}"
    return DocumentList(_with_titles(documents), {file: reason if missing else ""})


def _with_titles(documents: Iterable[OutlinedDocument]) -> list[Document]:
    """Return the documents with text; the title of an outline is that of its document."""
    shown: list[Document] = []
    for document in documents:
        if document.text.strip():
            title = document.outline.title
            document.metadata |= {"title": title} if title else {}
            shown.append(document)
    return shown


def _opened(file: Path) -> ZipFile:
    parts = ZipFile(file)
    if _MANIFEST in parts.namelist() and b"encryption-data" in parts.read(_MANIFEST):
        raise ConfigurationError("it is encrypted; save it without a password")
    return parts


def _xml(parts: ZipFile, name: str) -> "_Element":
    from lxml.etree import XMLSyntaxError  # noqa: PLC0415 - an extra

    try:
        return xml_root(parts.read(name))
    except (KeyError, XMLSyntaxError) as error:
        raise ConfigurationError(f"its {name} cannot be read: {error}") from error


def _whole(parts: ZipFile) -> "_Element":
    """Return the content of an OpenDocument file, with its formulas and charts in their places."""
    root, names = _xml(parts, _CONTENT), {*parts.namelist()} - {_CONTENT}
    for place in [*root.iter("{*}object")]:
        name = posixpath.normpath(posixpath.join(attribute(place, "href"), _CONTENT))
        if name in names:
            embedded = _xml(parts, name)  # instead of words for programs that cannot show it
            place[:] = embedded.findall("{*}body") or [embedded]
            names.remove(name)  # shown once, however often it is named
    for formula in [*root.iter("{*}math")]:
        words = formula.findtext(".//{*}annotation") or "".join(formula.itertext())
        _replace(formula, " ".join(words.split()))
        for box in formula.iterancestors("{*}frame"):
            box.tag = "span"  # in its line
    return root


def _as_html(root: "_Element") -> "list[_Element]":
    """Return the body and the parts of an OpenDocument file, their tags those of HTML."""
    for element in [*root.iter("{*}*")]:
        name, attributes = tag_name(element), dict(element.items())
        match name:
            case "h" | "p":
                name = _HEADINGS.get(attributes.get(_LEVEL) or attributes.get(_STYLE, ""), name)
            case "note" | "annotation":
                texts = ("".join(part.itertext()) for part in element.iter("{*}p", "p"))
                _replace(element, f" [{_REMARKS[name]}: {' '.join(' '.join(texts).split())}]")
                name = "span"
            case "s" | "tab":
                element.text, name = " ", "span"
            case "frame" if attributes.get(_CLASS) == "title":
                for paragraph in element.iter("{*}p"):
                    paragraph.tag = "h1"
            case "table":
                _join_cells(element)
        element.tag = _HTML.get(name, name)
    return [next(root.iter("body"), root), *root.iter("page", "header", "footer")]


def _write_numbers(root: "_Element", roots: "Iterable[_Element]") -> None:
    """Write the number of each heading and item of a list into it, as the styles of a file say."""
    from lxml.etree import iterwalk  # noqa: PLC0415 - an extra

    named = [style for part in roots for style in part.iter("{*}list-style", "{*}outline-style")]
    numbers = ListNumbers(
        {
            # The outline of a file has a style for itself.
            (attribute(style, "name") if tag_name(style) != _OUTLINE else _OUTLINE): _levels(style)
            for style in named
        }
    )
    opened: list[str] = []
    for event, element in iterwalk(root, ("start", "end"), ("{*}list", "{*}list-item", "{*}h")):
        name = tag_name(element)
        if name == "list" and event == "end":
            opened.pop()
        elif name == "list":
            is_continued = attribute(element, "continue-numbering") == "true"
            opened.append(attribute(element, "style-name") or (opened[-1] if opened else ""))
            if len(opened) == 1 and not is_continued and not attribute(element, "continue-list"):
                numbers.restart(opened[0])
        elif event == "start" and name == "list-item" and opened:
            if len(element) and tag_name(element[0]) in ("p", "h"):
                _write_number(numbers, element, opened[-1], len(opened) - 1)
        elif event == "start" and not opened and attribute(element, "is-list-header") != "true":
            _write_number(numbers, element, _OUTLINE, _level(element) - 1)


def _write_number(numbers: ListNumbers, element: "_Element", name: str, place: int) -> None:
    start = attribute(element, "start-value")
    label = numbers.next(name, place, integer(start) if start else None)
    if label:
        line = element if tag_name(element) == "h" else element[0]
        line.text = f"{label} {line.text or ''}"


def _levels(style: "_Element") -> dict[int, ListLevel]:
    """Return the numbered levels of a style."""
    formats = {_level(level): attribute(level, "num-format") for level in style}
    levels = {}
    for level in style:
        place = _level(level)
        first = max(place - integer(attribute(level, "display-levels")), 0) + 1
        number = ".".join(f"%{n}" for n in range(first, place + 1) if formats.get(n))
        pattern = f"{attribute(level, 'num-prefix')}{number}{attribute(level, 'num-suffix')}"
        if formats[place]:
            start = integer(attribute(level, "start-value"))
            kind = _KINDS.get(formats[place], "decimal")
            levels[place - 1] = ListLevel(start, kind, pattern)
    return levels


def _level(element: "_Element") -> int:
    return min(integer(attribute(element, "level") or attribute(element, "outline-level")), 10)


def _join_cells(table: "_Element") -> None:
    """Make the first row of a table its header, and the paragraphs of each cell one line."""
    for number, row in enumerate(table.iter("{*}table-row")):
        for cell in row:
            cell.tag = "td" if number else "th"
            for paragraph in cell.iterchildren("{*}p"):
                paragraph.tag, paragraph.tail = "span", " "


def _replace(element: "_Element", words: str) -> None:
    tail = element.tail
    element.clear()
    element.text, element.tail = words, tail


def _package(parts: ZipFile) -> "tuple[_Element, list[str]]":
    """Return the package document of a book, and the names of its chapters in their order."""
    place = _xml(parts, _CONTAINER).find(".//{*}rootfile")
    path = "" if place is None else place.get("full-path", "")
    package = _xml(parts, path)
    files = {item.get("id"): unquote(item.get("href", "")) for item in package.iter("{*}item")}
    chapters = (files.get(item.get("idref"), "") for item in package.iter("{*}itemref"))
    folder = posixpath.dirname(path)
    return package, [posixpath.normpath(posixpath.join(folder, name)) for name in chapters]
