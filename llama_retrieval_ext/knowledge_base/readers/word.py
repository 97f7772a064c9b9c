"""What Word shows but does not store as text: numbers of headings and lists, and formulas."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZipFile

from llama_retrieval_ext.knowledge_base.readers.html import attribute, integer, xml_root
from llama_retrieval_ext.knowledge_base.readers.list_numbers import ListLevel, ListNumbers

if TYPE_CHECKING:
    from lxml.etree import _Element

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
