"""Readers of Word and PowerPoint files, which `office_oxide` parses. They need ``quickstart``."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from io import BytesIO
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zipfile import ZipFile

from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.readers.html import attribute, integer, xml_root
from llama_retrieval_ext.knowledge_base.readers.list_numbers import ListLevel, ListNumbers
from llama_retrieval_ext.knowledge_base.readers.outline import TextLine, outlined_document
from llama_retrieval_ext.scope import PAGE_KEY

if TYPE_CHECKING:
    from lxml.etree import _Element

_Part: TypeAlias = Mapping[str, Any]  # of the tree that office_oxide makes
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


def _sections(file: Path, prepared: Any = bytes) -> Sequence[_Part]:  # noqa: ANN401 - a function
    from office_oxide import Document as OfficeDocument  # noqa: PLC0415 - an extra

    kind: Any = file.suffix.lower()[1:4]
    kind = {"dot": "doc", "pps": "ppt", "pot": "ppt"}.get(kind, kind)
    data = file.read_bytes()
    if data.startswith(b"PK"):
        data, kind = prepared(data), f"{kind}x"
    with closing(OfficeDocument.from_bytes(data, kind)) as document:
        sections: Sequence[_Part] = document.to_ir()["sections"]
        return sections


def _once(contents: Iterator[_Part | None]) -> list[Sequence[_Part]]:
    """Return the headers or footers that differ."""
    several = (content["content"] for content in contents if content is not None)
    return [*{repr(content): content for content in several}.values()]


class _Lines:
    """The lines of elements, each with the notes on it."""

    def __init__(self, elements: Sequence[_Part], *, spacing: bool = True) -> None:
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

    def _lines(self, element: _Part) -> Iterator[TextLine]:
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


def _references(element: _Part) -> Iterator[tuple[str, int]]:
    """Yield the notes on an element, in the order of the text."""
    for child in _children(element):
        kind, _, end = str(child.get("type", "")).partition("_")
        if end == "ref":
            yield kind, child["comment_id" if kind == "comment" else "note_id"]
        yield from _references(child)


def _children(element: _Part) -> Sequence[_Part]:
    name = next((name for name in ("content", "items", "rows", "cells") if name in element), "")
    nested = element.get("nested")  # the list below an item of a list
    return [*element.get(name, ()), *([{"type": "list", **nested}] if nested else [])]


def _text(element: _Part) -> str:
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


_TYPES: Final = "[Content_Types].xml"
# Parts with text.
_TEXTS: Final = tuple(
    f"{kind}+xml" for kind in ("main", "header", "footer", "footnotes", "endnotes", "comments")
)
# How the parts of a formula are written; other elements are written one after the other.
_FORMULAS: Final[Mapping[str, str]] = {
    "f": "({num})/({den})",
    "sSup": "{e}^({sup})",
    "sSub": "{e}_({sub})",
    "sSubSup": "{e}_({sub})^({sup})",
    "rad": "{deg}√({e})",
    "nary": "{chr}_({sub})^({sup}) {e}",
    "d": "({e})",
    "func": "{fName}({e})",
    "limLow": "{e}_({lim})",
    "limUpp": "{e}^({lim})",
}
# Put before titles and captions, whose styles the tree of office_oxide does not have.
TITLE_MARK: Final = "\ue000"
CAPTION_MARK: Final = "\ue001"
_MARKS: Final = {"title": TITLE_MARK, "caption": CAPTION_MARK}
_SINGLE: Final = re.compile(r"\((\w?)\)")
# Where fonts of symbols have their characters. Source of Symbol's: its encoding by Adobe,
# https://www.unicode.org/Public/MAPPINGS/VENDORS/ADOBE/symbol.txt; of Wingdings the common ones.
_PRIVATE: Final = re.compile("[\uf020-\uf0ff]")
_SYMBOL: Final = (
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"  # noqa: RUF001
    f"‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{{|}}∼{' ' * 33}"  # noqa: RUF001
    "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓"  # noqa: RUF001
    "◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪ 〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
)
_WINGDINGS: Final = zip("JKLlnox\xa7\xa8ßàûüýþ", "☺😐☹●■□☒▪☐←→✗✓☒☑", strict=True)
_SYMBOLS: Final = {
    "Symbol": dict(enumerate(_SYMBOL, start=0xF020)),
    "Wingdings": {
        **dict(enumerate("⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿", start=0xF080)),
        **{0xF000 + ord(letter): sign for letter, sign in _WINGDINGS},
    },
}


def with_visible_text(data: bytes) -> bytes:
    """Return a DOCX file whose numbers and formulas are text, and whose title is a heading."""
    from lxml.etree import QName, tostring  # noqa: PLC0415 - an extra

    with ZipFile(BytesIO(data)) as archive:
        kinds = {
            str(part.get("PartName")).lstrip("/"): str(part.get("ContentType")).rpartition(".")[2]
            for part in xml_root(archive.read(_TYPES)).iter("{*}Override")
        }
        names = [*dict.fromkeys(archive.namelist())]
        read = (*_TEXTS, "numbering+xml", "styles+xml")
        roots = {name: xml_root(archive.read(name)) for name in names if kinds.get(name) in read}
        by_kind = {kinds[name]: root for name, root in roots.items()}
        root = by_kind.get("main+xml")
        if root is None:
            return data
        space = str(QName(root).namespace)
        styles = {
            attribute(style, "styleId"): style for style in _all(by_kind.get("styles+xml"), "style")
        }
        _number(root, space, styles, *_numbering(by_kind.get("numbering+xml")))
        for name, part in roots.items():
            if kinds[name] in _TEXTS:
                _write_formulas(part, space)
                _write_symbols(part, space)
                _put_in_lines(part, space)
        packed = BytesIO()
        with ZipFile(packed, "w") as target:
            for name in names:
                content = tostring(roots[name]) if name in roots else archive.read(name)
                target.writestr(name, content)
    return packed.getvalue()


def _write_formulas(root: "_Element", space: str) -> None:
    from lxml.etree import QName  # noqa: PLC0415 - an extra

    for formula in _all(root, "oMath"):
        if QName(formula).namespace != space:
            text = _SINGLE.sub(r"\1", " ".join(_formula(formula).split()))
            formula.addprevious(_run(space, text))
            formula.getparent().remove(formula)


def _write_symbols(root: "_Element", space: str) -> None:
    """Write the characters of fonts of symbols in Unicode; pictures among them are left out."""
    for written in [*_all(root, "sym"), *_all(root, "t")]:
        text = written.text or ""
        fonts = written.getparent().find("{*}rPr/{*}rFonts") if _PRIVATE.search(text) else None
        font = "" if fonts is None else attribute(fonts, "ascii")
        if written.tag == f"{{{space}}}sym":
            font, written.tag = attribute(written, "font"), f"{{{space}}}t"
            with suppress(ValueError, OverflowError):  # a damaged code, or no character
                written.text = chr(int(attribute(written, "char"), 16))
            text = written.text or ""
        if font in _SYMBOLS or "dings" in font:
            written.text = _PRIVATE.sub("", text.translate(_SYMBOLS.get(font, {})))
            if fonts is not None:  # office_oxide drops Unicode in these
                fonts.getparent().remove(fonts)


def _put_in_lines(root: "_Element", space: str) -> None:
    """Put the text of alternatives, links, ruby and initials where the text around them is."""
    from lxml.etree import strip_tags  # noqa: PLC0415 - an extra

    for alternatives in _all(root, "AlternateContent"):
        shown = next((version for version in alternatives if len(version)), None)
        # office_oxide itself takes the text of shapes from their alternatives.
        if shown is not None and shown.find("{*}drawing") is None:
            alternatives[:] = [shown]
            alternatives.tag = shown.tag = "shown"
    strip_tags(root, "shown", *(f"{{{space}}}{name}" for name in ("hyperlink", "ins", "moveTo")))
    for ruby in _all(root, "ruby"):
        run = ruby.getparent()
        for base in [*ruby.iterfind("{*}rubyBase/{*}r")]:
            run.addprevious(base)
    for initial in _all(root, "framePr"):
        paragraph = initial.getparent().getparent()
        following = paragraph.getnext()
        if attribute(initial, "dropCap") in ("drop", "margin") and following is not None:
            place = int(following.find("{*}pPr") is not None)
            following[place:place] = paragraph[1:]  # behind its properties
            paragraph.getparent().remove(paragraph)


def _number(
    root: "_Element",
    space: str,
    styles: Mapping[str, "_Element"],
    numbers: ListNumbers,
    names: Mapping[str, str],
) -> None:
    """Write the number of each paragraph into it, and mark titles and captions."""
    for paragraph in root.iter(f"{{{space}}}p"):
        style = styles.get(_value(paragraph, "pPr/{*}pStyle"))
        named = [paragraph, *_bases(style, styles)]
        places = [style.find("{*}pPr/{*}numPr") for style in named]
        given = [place for place in places if place is not None]
        number = next(filter(None, (_value(place, "numId") for place in given)), "")
        level = next(filter(None, (_value(place, "ilvl") for place in given)), "0")
        label = numbers.next(names.get(number, ""), int(level) if level.isdecimal() else 0)
        mark = "" if style is None else _MARKS.get(_value(style, "name").lower(), "")
        if label or mark:
            run = _run(space, f"{mark}{label} " if label else mark)
            properties = paragraph.find("{*}pPr")
            if properties is not None:
                properties.addnext(run)
                for number in properties.findall("{*}numPr"):
                    properties.remove(number)


def _bases(style: "_Element | None", styles: Mapping[str, "_Element"]) -> Iterator["_Element"]:
    seen: set[str] = set()
    while style is not None and attribute(style, "styleId") not in seen:
        seen.add(attribute(style, "styleId"))
        yield style
        style = styles.get(_value(style, "basedOn"))


def _numbering(root: "_Element | None") -> tuple[ListNumbers, Mapping[str, str]]:
    """Return the numbers of the lists of a file, and the name of each list."""
    levels: dict[str, dict[int, ListLevel]] = {}
    for definition in _all(root, "abstractNum"):
        levels[attribute(definition, "abstractNumId")] = _levels(definition)
    names: dict[str, str] = {}
    for numbered in _all(root, "num"):
        number = attribute(numbered, "numId")
        names[number] = _value(numbered, "abstractNumId")
        changed = dict(levels.get(names[number], {}))
        for override in numbered.findall("{*}lvlOverride"):
            changed |= _levels(override)
            place = integer(attribute(override, "ilvl") or "0")
            start = _value(override, "startOverride")
            if place in changed and start:
                changed[place] = changed[place]._replace(start=integer(start))
            names[number] = f"num {number}"
            levels[names[number]] = changed
    return ListNumbers(levels), names


def _levels(element: "_Element") -> dict[int, ListLevel]:
    return {
        integer(attribute(level, "ilvl") or "0"): ListLevel(
            integer(_value(level, "start")),
            _value(level, "numFmt") or "decimal",
            _value(level, "lvlText"),
        )
        for level in element.findall("{*}lvl")
    }


def _formula(element: "_Element") -> str:
    """Return a formula in a line."""
    from lxml.etree import QName  # noqa: PLC0415 - an extra

    name = QName(element).localname
    if name == "t":
        return element.text or ""
    children = [child for child in element if isinstance(child.tag, str)]
    inside = [(QName(child).localname, _formula(child)) for child in children]
    if name not in _FORMULAS:
        between = {"m": "; ", "eqArr": "; ", "mr": " "}.get(name, "")
        return between.join(text for _, text in inside if text)
    parts: dict[str, Any] = defaultdict(str)
    for child, text in inside:
        parts[child] += f", {text}" if parts[child] else text
    sign = element.find("{*}naryPr/{*}chr")
    parts["chr"] = "∫" if sign is None else attribute(sign, "val")
    return _FORMULAS[name].format_map(parts)


def _run(space: str, text: str) -> "_Element":
    from lxml.etree import Element, SubElement  # noqa: PLC0415 - an extra

    run = Element(f"{{{space}}}r")
    written = SubElement(run, f"{{{space}}}t")
    written.text = text
    written.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return run


def _all(root: "_Element | None", name: str) -> list["_Element"]:
    return [] if root is None else list(root.iter(f"{{*}}{name}"))


def _value(element: "_Element", path: str) -> str:
    part = element.find(f"{{*}}{path}")
    return "" if part is None else attribute(part, "val")
