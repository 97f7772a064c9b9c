"""The reader of HTML and XHTML, on lxml. It needs the extra ``quickstart``."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.readers.encodings import decode_text
from llama_retrieval_ext.knowledge_base.readers.outline import TextLine, outlined_document
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList, undecoded

if TYPE_CHECKING:
    from lxml.etree import _Element

_NOT_TEXT: Final = {
    *("script", "style", "noscript", "template", "annotation", "annotation-xml"),
    *("rt", "rp"),  # the reading of ruby would part the words
}
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
# Tags at which a browser starts a new line.
_BLOCKS: Final = {
    *("address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd"),
    *("details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
    *("footer", "form", "head", "header", "hgroup", "hr", "html", "legend", "li", "listing"),
    *("main", "menu", "nav", "ol", "optgroup", "option", "p", "plaintext", "pre", "search"),
    *("section", "select", "summary", "table", "tbody", "text", "textarea", "tfoot", "thead"),
    *("title", "tr", "ul", "xmp"),
    *_HEADINGS,
}
_REPLACED: Final = {"img", "area", "input"}
_APART: Final = {"br", "button", "td", "th", *_REPLACED}
_ITEMS: Final = {"ol", "ul", "menu", "li"}
_AS_WRITTEN: Final = {"pre", "textarea", "listing", "xmp", "plaintext"}
_CAPTIONS: Final = {"caption", "figcaption"}
# A heading in one of these says what is in it, not what follows it: boxes beside the text. DocBook,
# AsciiDoc, Sphinx and others mark theirs by a class.
_BOXES: Final = {
    *("aside", "blockquote", "dd", "details", "dialog", "fieldset", "figure", "footer", "li"),
    *("nav", "td", "th"),
}
_BOX_CLASSES: Final = {
    *("admonition", "admonitionblock", "alert", "attention", "callout", "caution", "danger"),
    *("hint", "important", "infobox", "note", "sidebar", "sidebarblock", "tip", "warning"),
}
# Links to the heading itself, such as "¶".
_PERMALINKS: Final = {"headerlink", "permalink", "anchor-link"}
_NO_VALUE: Final = {"hidden", "password", "checkbox", "radio", "file", "image", "color", "range"}
# A declaration is in the first 1,024 bytes; some pages have comments before it.
_HEAD_BYTES: Final = 8192
_DECLARED: Final = re.compile(
    rb"<meta\s[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,200}?encoding=[\"']([\w.:-]+)",
    re.IGNORECASE,
)
# What browsers, and so authors, mean by a name.
_MEANT: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}


def read_html(file: Path, encoding: str = "") -> DocumentList:
    """Read the text of an HTML file as one document, a line for each block, without scripts.

    A page is in the encoding that it declares, unless it is UTF-8; one that declares none is read
    as other texts are.
    """
    data = file.read_bytes()
    declared = _DECLARED.search(data[:_HEAD_BYTES])
    name = _codec(declared[1] or declared[2]) if declared else ""
    page, reason = decode_text(data, encoding), ""
    if name and (data.isascii() or decode_text(data, "ascii") is None):
        page = data.decode(name, "replace")
        reason = undecoded(page)
    if page is None:
        raise ConfigurationError(
            "it declares no encoding, and is not text in UTF-8, UTF-16 or GB18030; pass encoding="
        )
    root = parsed(page)
    lines = [] if root is None else lines_of(root)
    title = {} if root is None else {"title": title_of(root)}
    return DocumentList([outlined_document(lines, title)], {file: reason})


def _codec(label: bytes) -> str:
    """Return Python's name of an encoding that a page declares; nothing if it has none."""
    try:
        name = codecs.lookup(label.decode()).name
    except LookupError:
        return ""
    # A page in UTF-16 could not be read up to its declaration.
    return "" if name.startswith(("utf-16", "utf-32")) else _MEANT.get(name, name)


def xml_root(data: bytes) -> "_Element":
    """Return the root of an XML document; no part of it is loaded from elsewhere."""
    from lxml.etree import XMLParser, fromstring  # noqa: PLC0415 - an extra

    parser = XMLParser(
        resolve_entities=False, no_network=True, remove_comments=True, huge_tree=True
    )
    return fromstring(data, parser)


def parsed(page: str) -> "_Element | None":
    """Return the root of a page; None if it is empty."""
    from lxml import etree  # noqa: PLC0415 # pyright: ignore[reportAttributeAccessIssue]

    data = page.encode("utf-8", "replace")
    if page.lstrip("\ufeff \t\r\n").startswith("<?xml"):
        strict = etree.XMLParser(encoding="utf-8", resolve_entities=False, remove_comments=True)
        try:
            return etree.fromstring(data, strict)
        except etree.XMLSyntaxError:  # as in most such pages
            pass
    parser = etree.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    root = etree.fromstring(data, parser) if data.strip() else None
    if any("depth" in error.message for error in parser.error_log):
        raise ConfigurationError("its tags are nested deeper than 2,048, the limit")
    return root


def tag_name(element: "_Element") -> str:
    """Return the name of a tag without its namespace; nothing for an entity."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def title_of(root: "_Element") -> str:
    """Return the title in the head of a page; empty without one."""
    titles = (child for head in root if tag_name(head) == "head" for child in head)
    title = next((child for child in titles if tag_name(child) == "title"), None)
    return "" if title is None else " ".join("".join(title.itertext()).split())


def attribute(element: "_Element", name: str) -> str:
    """Return an attribute of any namespace."""
    return next((str(v) for k, v in element.items() if k.rpartition("}")[2] == name), "")


def integer(written: str) -> int:
    """Return a number of up to nine digits; 1 for anything else."""
    digits = written.strip()
    return int(digits) if re.fullmatch(r"-?[0-9]{1,9}", digits) else 1


def lines_of(root: "_Element") -> list[TextLine]:
    """Return the lines with text of a page or a part of it."""
    return [*_Lines().read(root)]


class _Lines:
    """The lines of a page; iterative, because pages may nest thousands of tags."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._level = 0  # of the heading whose first line has not come yet
        self._is_caption = False
        self._as_written = 0  # open tags whose lines are kept
        self._boxes: list[bool] = []  # open boxes: whether a heading came in it
        self._ends = 0  # the box whose headings end
        self._tables: list[int] = []  # open tables: their number if they have a header, else 0
        self._n_tables = 0
        self._items: list[int | None] = []  # the next number of each open list

    def read(self, root: "_Element") -> Iterator[TextLine]:
        """Yield the lines with text."""
        from lxml.etree import iterwalk  # noqa: PLC0415 - an extra

        walk = iterwalk(root, events=("start", "end"))
        for event, element in walk:
            name = tag_name(element)
            is_block = name in _BLOCKS and not (name == "br" and self._level)
            if is_block and event == "start":
                yield from self._ended()
            if event == "end":
                if is_block:
                    yield from self._ended()
                self._close(name, element)
                self._parts.append(" " * (name in _APART) + (element.tail or ""))
            elif name in _NOT_TEXT or not _PERMALINKS.isdisjoint(_classes(element)):
                walk.skip_subtree()
            else:
                self._open(name, element)
                self._parts.append(" " * (name in _APART) + (element.text or ""))
        yield from self._ended()

    def _open(self, name: str, element: "_Element") -> None:
        if name in _HEADINGS:
            self._level = _HEADINGS[name]
        elif name in _ITEMS:
            self._parts.append(self._number(name, element))
        elif name == "table":
            self._tables.append(0)
        elif name == "th" and self._tables and not self._tables[-1]:
            self._n_tables += 1
            self._tables[-1] = self._n_tables
        elif name in _REPLACED:
            self._parts.append(_replacement(name, element))
        self._is_caption = self._is_caption or name in _CAPTIONS
        self._as_written += name in _AS_WRITTEN
        if _is_box(name, element):
            self._boxes.append(False)

    def _close(self, name: str, element: "_Element") -> None:
        if name in _HEADINGS:
            self._level = 0
        elif name in ("ol", "ul", "menu"):
            self._items.pop()
        elif name == "table":
            self._tables.pop()
        self._is_caption = self._is_caption and name not in _CAPTIONS
        self._as_written -= name in _AS_WRITTEN
        if _is_box(name, element) and self._boxes.pop():
            depth = len(self._boxes)
            self._ends = min(self._ends or depth + 1, depth + 1)

    def _number(self, name: str, element: "_Element") -> str:
        """Open a list; return the number of an item of a numbered one."""
        if name != "li":
            start = integer(element.get("start", "1"))
            self._items.append(start if name == "ol" else None)
            return ""
        number = self._items[-1] if self._items else None
        if number is None:
            return ""
        number = integer(element.get("value", str(number)))
        self._items[-1] = number + 1
        return f"{number}. "

    def _ended(self) -> Iterator[TextLine]:
        """Yield the lines of the block that ends; the first one of a heading is the heading."""
        written, self._parts = "".join(self._parts), []
        lines = written.splitlines() if self._as_written else [" ".join(written.split())]
        for line in lines:
            text = line.rstrip()
            if not text.strip():
                continue
            table = self._tables[-1] if self._tables else 0
            depth = len(self._boxes)
            if self._level and depth:
                self._boxes[-1] = True
            level, self._level = self._level, 0
            ends, self._ends = self._ends, 0
            yield TextLine(text, level, table, is_caption=self._is_caption, box=depth, ends=ends)


def _classes(element: "_Element") -> list[str]:
    return str(element.get("class", "")).lower().split()


def _is_box(name: str, element: "_Element") -> bool:
    return name in _BOXES or (
        name in ("div", "section") and not _BOX_CLASSES.isdisjoint(_classes(element))
    )


def _replacement(name: str, element: "_Element") -> str:
    """Return the text that stands for a picture or a field."""
    if name in ("img", "area"):
        return str(element.get("alt", ""))
    is_shown = element.get("type", "text").lower() not in _NO_VALUE
    return str(element.get("value", "")) if is_shown else ""
