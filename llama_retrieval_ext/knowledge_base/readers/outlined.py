"""The reader of DOCX. It needs the extra ``quickstart``.

LlamaIndex's drops styles and the limits of tables. Importing its readers takes two seconds and
configures the root logger.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import ZipFile

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.readers.outline import Line, OutlinedDocument, outlined

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


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
