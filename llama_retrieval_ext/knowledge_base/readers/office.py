"""Readers of Word and PowerPoint files, which `office_oxide` parses. They need ``quickstart``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, TypeAlias

from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.readers.outline import TextLine, outlined_document
from llama_retrieval_ext.knowledge_base.readers.word import (
    CAPTION_MARK,
    TITLE_MARK,
    with_visible_text,
)
from llama_retrieval_ext.scope import PAGE_KEY

_Element: TypeAlias = Mapping[str, Any]  # of the tree that office_oxide makes
_NOTES: Final = ("footnote", "endnote")
_HEADERS: Final = ("header", "first_page_header", "even_page_header")
_FOOTERS: Final = ("footer", "first_page_footer", "even_page_footer")


def read_word(file: Path) -> list[Document]:
    """Read a DOCX or DOC file as one document, a line for each paragraph and row of a table.

    Numbers of headings and lists are part of the text; notes and comments follow the paragraph or
    table that they are on. None without text.
    """
    sections = _sections(file, with_visible_text)
    parts = [
        *_once(section.get(name) for section in sections for name in _HEADERS),
        *(section["elements"] for section in sections),
        *_once(section.get(name) for section in sections for name in _FOOTERS),
    ]
    document = outlined_document(_Lines([*chain.from_iterable(parts)]), {})
    document.set_content(document.text.rstrip())
    return [document] if document.text else []


def read_slides(file: Path) -> list[Document]:
    """Read each slide with text of a PPTX or PPT file as a document, with its title and notes."""
    documents: list[Document] = []
    for number, slide in enumerate(_sections(file), start=1):
        lines = _Lines([*slide["elements"], *slide.get("speaker_notes", ())], spacing=False)
        document = outlined_document(lines, {PAGE_KEY: number})
        if document.text.strip():
            headings = document.outline.headings
            document.metadata |= {"title": headings[0].text} if headings else {}
            documents.append(document)
    return documents


def _sections(file: Path, prepared: Any = bytes) -> Sequence[_Element]:  # noqa: ANN401 - a function
    from office_oxide import Document as OfficeDocument  # noqa: PLC0415 - an extra

    kind: Any = file.suffix.lower()[1:4]
    kind = {"dot": "doc", "pps": "ppt", "pot": "ppt"}.get(kind, kind)
    data = file.read_bytes()
    if data.startswith(b"PK"):
        data, kind = prepared(data), f"{kind}x"
    with closing(OfficeDocument.from_bytes(data, kind)) as document:
        sections: Sequence[_Element] = document.to_ir()["sections"]
        return sections


def _once(contents: Iterator[_Element | None]) -> list[Sequence[_Element]]:
    """Return the headers or footers that differ."""
    several = (content["content"] for content in contents if content is not None)
    return [*{repr(content): content for content in several}.values()]


class _Lines:
    """The lines of elements, each with the notes on it."""

    def __init__(self, elements: Sequence[_Element], *, spacing: bool = True) -> None:
        self._elements = [element for element in elements if element["type"] not in _NOTES]
        self._notes = {
            (
                "comment" if "author" in element or "marker" in element else element["type"],
                element["id"],
            ): element
            for element in elements
            if element["type"] in _NOTES
        }
        self._tables = count(1)
        self._after = [TextLine("")] if spacing else []

    def __iter__(self) -> Iterator[TextLine]:
        for element in self._elements:
            yield from self._lines(element)
            for key in _references(element):
                yield from self._note(key)
        for key in [*self._notes]:
            yield from self._note(key)

    def _note(self, key: tuple[str, int]) -> Iterator[TextLine]:
        note = self._notes.pop(key, None)
        if note is not None and (words := " ".join(_text(note).split())):
            yield from [TextLine(f"[{note.get('marker') or 'Note'}: {words}]"), *self._after]

    def _lines(self, element: _Element) -> Iterator[TextLine]:
        kind = element["type"]
        if kind in ("text_box", "list"):
            for child in chain.from_iterable(map(_children, element.get("items", [element]))):
                yield from self._lines(child)
        elif kind == "table":
            number = next(self._tables)
            if element.get("caption"):
                yield TextLine(str(element["caption"]), is_caption=True)
            for row in element["rows"]:
                cells = (" ".join(_text(cell).split()) for cell in row["cells"])
                yield TextLine(" | ".join(cells), table=number)
                yield from (
                    line
                    for cell in row["cells"]
                    for child in cell["content"]
                    if child["type"] == "table"
                    for line in self._lines(child)
                    if line.text
                )
            yield from self._after
        elif text := _text(element).strip():
            level = element["level"] + 1 if kind == "heading" else int(text[0] == TITLE_MARK)
            lines = [" ".join(text.split())] if level else text.split("\n")
            for line in lines:
                shown = line.strip().lstrip(TITLE_MARK + CAPTION_MARK)
                yield TextLine(shown, level, is_caption=text[0] == CAPTION_MARK)
            yield from self._after


def _references(element: _Element) -> Iterator[tuple[str, int]]:
    """Yield the notes on an element, in the order of the text."""
    for child in _children(element):
        kind, _, end = str(child.get("type", "")).partition("_")
        if end == "ref":
            yield kind, child["comment_id" if kind == "comment" else "note_id"]
        yield from _references(child)


def _children(element: _Element) -> Sequence[_Element]:
    name = next((name for name in ("content", "items", "rows", "cells") if name in element), "")
    nested = element.get("nested")  # the list below an item of a list
    return [*element.get(name, ()), *([{"type": "list", **nested}] if nested else [])]


def _text(element: _Element) -> str:
    """Return the text of an element, with that of pictures, and its paragraphs on lines."""
    kind = element.get("type", "cell")
    if kind == "text":
        return str(element["text"])
    if kind in ("line_break", "page_break"):
        return "\n"
    if kind == "image":
        return str(element.get("alt_text") or "")
    inside = [child for child in _children(element) if child.get("type") != "table"]
    between = "" if kind in ("paragraph", "heading") else " | " if "cells" in element else "\n"
    return between.join(map(_text, inside))
