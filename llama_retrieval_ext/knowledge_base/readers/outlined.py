"""Readers of files with headings: HTML. They need the extra ``quickstart``.

LlamaIndex's HTML reader joins words across tags and requires UTF-8; its DOCX reader drops styles
and the limits of tables. Importing its readers takes two seconds and configures the root logger.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.readers.outline import Line, OutlinedDocument, outlined

if TYPE_CHECKING:
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
