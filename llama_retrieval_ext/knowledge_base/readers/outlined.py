"""Readers of files with headings: HTML and DOCX. They need the extra ``quickstart``.

LlamaIndex's HTML reader joins words across tags and requires UTF-8; its DOCX reader drops styles
and the limits of tables. Importing its readers takes two seconds and configures the root logger.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zipfile import ZipFile

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.readers.outline import Line, OutlinedDocument, outlined

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from bs4 import BeautifulSoup

_Untyped: TypeAlias = Any  # the nodes of BeautifulSoup

_WHITE: Final = re.compile(r"\s+")
_NOT_TEXT: Final = ["script", "style", "noscript", "template"]
_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
# Tags at which a browser starts a new line.
_BLOCKS: Final = [
    *("p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "blockquote"),
    *("pre", "figure", "figcaption", "caption", "table", "tr", "hr", "br", "ul", "ol", "li", "dl"),
    *("dt", "dd", "form", "title", *_HEADINGS),
]
# Control characters that mark the start of these tags in the text, until it is split into lines.
_MARKS: Final = {
    **{name: chr(level) for level, name in enumerate(_HEADINGS, start=1)},
    "table": "\x0e",
    "tr": "\x0f",
    "th": "\x10",
    "caption": "\x11",
    "figcaption": "\x11",
}
# Marks at the end of tags.
_ENDS: Final = {**dict.fromkeys(_HEADINGS, "\x12"), "table": _MARKS["table"]}
_MARK: Final = re.compile(r"[\x01-\x06\x0e-\x12]")


class HTMLReader(BaseReader):
    """Reads the text of an HTML file as one document, a line for each block, without scripts."""

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        from bs4 import BeautifulSoup  # noqa: PLC0415 - an extra

        soup = BeautifulSoup(file.read_bytes(), "html.parser")
        for tag in soup(_NOT_TEXT):
            tag.decompose()
        title = {} if soup.title is None else {"title": _one_line(soup.title.get_text())}
        text, outline = outlined(_lines(_marked_text(soup)))
        metadata = {**(extra_info or {}), **title}
        return [OutlinedDocument(text=text, metadata=metadata, outline=outline)]


def _marked_text(soup: "BeautifulSoup") -> str:
    """Return the text with marks; linear, because files may nest thousands of tags."""
    parts: list[str] = []
    open_tags: list[tuple[Iterator[_Untyped], str, bool]] = [(iter(soup.contents), "", False)]
    while open_tags:
        children, after, in_pre = open_tags[-1]
        node = next(children, None)
        if node is None:
            parts.append(after)
            open_tags.pop()
        elif (name := getattr(node, "name", None)) is None:
            # Comments and similar nodes are subclasses of strings.
            if type(node).__name__ in ("NavigableString", "CData"):
                parts.append(node if in_pre else _WHITE.sub(" ", node))
        else:
            around = "\n" if name in _BLOCKS else ""
            parts.append(around + _MARKS.get(name, ""))
            after = " " if name in ("td", "th") else around + _ENDS.get(name, "")
            open_tags.append((iter(node.contents), after, in_pre or name == "pre"))
    return "".join(parts)


def _lines(text: str) -> Iterator[Line]:
    """Yield the lines of a text with marks; tables are those with a cell of the tag ``th``."""
    marks, table, has_header = "", 0, False
    for each in text.splitlines():
        marks += "".join(_MARK.findall(each))
        line = _one_line(_MARK.sub("", each))
        if not line:
            continue
        if _MARKS["table"] in marks:
            table, has_header = table + 1, False
        has_header = has_header or _MARKS["th"] in marks
        is_row = has_header and _MARKS["tr"] in marks
        open_marks = marks.rpartition(_ENDS["h1"])[2]
        level = next((n for n, name in enumerate(_HEADINGS, 1) if _MARKS[name] in open_marks), 0)
        yield Line(line, level, table if is_row else 0, is_caption=_MARKS["caption"] in marks)
        marks = ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_WHITE_TAGS: Final = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n"}
_TABLE: Final = f"{_WORD}tbl"
_CELLS: Final = {f"{_WORD}tc", f"{_WORD}sdt"}
_STYLES: Final = "word/styles.xml"
_PARTS: Final = (r"word/header\d*\.xml", r"word/document\.xml", r"word/footer\d*\.xml")


class DOCXReader(BaseReader):
    """Reads a DOCX file as one document: its paragraphs, and a line for each row of a table."""

    def load_data(self, file: Path, extra_info: dict[str, object] | None = None) -> list[Document]:
        """Return the document of a file."""
        # It has no types, and is of an extra.
        from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]  # noqa: PLC0415

        with ZipFile(file) as archive:
            names = sorted(archive.namelist())
            parts = [name for part in _PARTS for name in names if re.fullmatch(part, name)]
            roots = [fromstring(archive.read(name)) for name in parts]
            styles = fromstring(archive.read(_STYLES)) if _STYLES in names else ()
        names_of = {style.get(f"{_WORD}styleId"): _value(style, "name").lower() for style in styles}
        tables = count(1)
        lines = [line for root in roots for line in _word_lines(root, names_of, tables)]
        text, outline = outlined(lines)
        return [
            OutlinedDocument(text=text.rstrip(), metadata=dict(extra_info or {}), outline=outline)
        ]


def _word_lines(
    parent: "Element", styles: Mapping[str | None, str], tables: Iterator[int]
) -> Iterator[Line]:
    """Yield a line for each paragraph with text, and for each row of a table."""
    for each in parent:
        if each.tag == f"{_WORD}p":
            style = styles.get(_value(each, f"pPr/{_WORD}pStyle"), "")
            if text := _word_text(each, _FALLBACK).strip():
                yield from (Line(text, _level(style), is_caption=style == "caption"), Line(""))
        elif each.tag == _TABLE:
            number = next(tables)
            for row in each.iter(f"{_WORD}tr"):  # those of tables in cells, too
                cells = [cell for cell in row if cell.tag in _CELLS]
                texts = (_one_line(_word_text(cell, _FALLBACK, _TABLE)) for cell in cells)
                yield Line(" | ".join(texts), table=number)
            yield Line("")
        else:  # the body, a content control
            yield from _word_lines(each, styles, tables)


def _level(style: str) -> int:
    """Return the level of a heading by the name of its style, that of a title 1, of others 0."""
    name, _, number = style.partition(" ")
    if name == "heading" and number.isdecimal():
        return int(number) + 1
    return int(style == "title")


def _value(element: "Element", path: str) -> str:
    found = element.find(f"{_WORD}{path}")
    return "" if found is None else found.get(f"{_WORD}val", "")


def _word_text(element: "Element", *without: str) -> str:
    """Return the text of an element without that of some tags inside it."""
    if element.tag == f"{_WORD}t":
        return element.text or ""
    if element.tag in _WHITE_TAGS:
        return _WHITE_TAGS[element.tag]
    inside = "".join(_word_text(each, *without) for each in element if each.tag not in without)
    return f"{inside}\n" if element.tag == f"{_WORD}p" else inside
