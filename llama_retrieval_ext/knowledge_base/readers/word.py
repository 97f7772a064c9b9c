"""What Word shows but does not store as text: numbers of headings and lists, and formulas."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

if TYPE_CHECKING:
    from lxml.etree import _Element

_TYPES: Final = "[Content_Types].xml"
_PLACE: Final = re.compile(r"%([1-9])")
_LAST_ROMAN: Final = 3999
_ROMAN: Final = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_HUNDREDS: Final = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"))
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


class _Level(NamedTuple):
    start: int
    kind: str
    pattern: str


def with_visible_text(data: bytes) -> bytes:
    """Return a DOCX file whose numbers and formulas are text, and whose title is a heading."""
    from lxml.etree import QName, XMLParser, fromstring, tostring  # noqa: PLC0415 - an extra

    parser = XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    with ZipFile(BytesIO(data)) as archive:
        types = fromstring(archive.read(_TYPES), parser)
        names = {
            str(each.get("ContentType")).rpartition(".")[2]: str(each.get("PartName")).lstrip("/")
            for each in types.iter("{*}Override")
        }
        kinds = {kind: name for kind, name in names.items() if name in archive.namelist()}
        main = kinds.get("main+xml")
        if main is None:
            return data
        roots = {
            kind: fromstring(archive.read(kinds[kind]), parser)
            for kind in ("main+xml", "numbering+xml", "styles+xml")
            if kind in kinds
        }
        root = roots["main+xml"]
        space = str(QName(root).namespace)
        styles = {_get(style, "styleId"): style for style in _all(roots.get("styles+xml"), "style")}
        _number(root, space, styles, _Numbering(roots.get("numbering+xml")))
        for formula in _all(root, "oMath"):
            if QName(formula).namespace != space:
                text = _SINGLE.sub(r"\1", " ".join(_formula(formula).split()))
                formula.addprevious(_run(space, text))
                formula.getparent().remove(formula)
        packed = BytesIO()
        with ZipFile(packed, "w", ZIP_DEFLATED) as target:
            for name in dict.fromkeys(archive.namelist()):
                content = tostring(root) if name == main else archive.read(name)
                target.writestr(name, content)
    return packed.getvalue()


def _number(
    root: "_Element", space: str, styles: Mapping[str, "_Element"], numbering: "_Numbering"
) -> None:
    """Write the number of each paragraph into it, and mark titles and captions."""
    for paragraph in root.iter(f"{{{space}}}p"):
        style = styles.get(_value(paragraph, "pPr/{*}pStyle"))
        named = [paragraph, *_bases(style, styles)]
        numbers = [each.find("{*}pPr/{*}numPr") for each in named]
        given = [number for number in numbers if number is not None]
        number = next(filter(None, (_value(each, "numId") for each in given)), "")
        level = next(filter(None, (_value(each, "ilvl") for each in given)), "0")
        label = numbering.next_label(number, level)
        mark = "" if style is None else _MARKS.get(_value(style, "name").lower(), "")
        if label or mark:
            run = _run(space, f"{mark}{label} " if label else mark)
            properties = paragraph.find("{*}pPr")
            if properties is not None:
                properties.addnext(run)
                for each in properties.findall("{*}numPr"):
                    properties.remove(each)


def _bases(style: "_Element | None", styles: Mapping[str, "_Element"]) -> Iterator["_Element"]:
    seen: set[str] = set()
    while style is not None and _get(style, "styleId") not in seen:
        seen.add(_get(style, "styleId"))
        yield style
        style = styles.get(_value(style, "basedOn"))


class _Numbering:
    """The lists of a file, and how far each of their levels has been counted."""

    def __init__(self, root: "_Element | None") -> None:
        self._counts: dict[str, dict[int, int]] = defaultdict(dict)
        self._levels: dict[str, dict[int, _Level]] = {}
        self._lists: dict[str, str] = {}
        for each in _all(root, "abstractNum"):
            self._levels[_get(each, "abstractNumId")] = {
                int(_get(level, "ilvl") or 0): _Level(
                    int(_value(level, "start") or 1),
                    _value(level, "numFmt") or "decimal",
                    _value(level, "lvlText"),
                )
                for level in each.findall("{*}lvl")
            }
        for each in _all(root, "num"):
            own = _get(each, "numId")
            self._lists[own] = _value(each, "abstractNumId")
            for override in each.findall("{*}lvlOverride/{*}startOverride"):
                level = int(_get(override.getparent(), "ilvl") or 0)
                levels = dict(self._levels.get(self._lists[own], {}))
                if level in levels:
                    levels[level] = levels[level]._replace(start=int(_get(override, "val") or 1))
                self._levels[f"num {own}"], self._lists[own] = levels, f"num {own}"

    def next_label(self, number: str, level: str) -> str:
        """Return what Word writes before the next paragraph of a list; empty for none."""
        name, place = self._lists.get(number, ""), int(level) if level.isdecimal() else 0
        levels, counts = self._levels.get(name, {}), self._counts[name]
        if place not in levels:
            return ""
        counts[place] = counts[place] + 1 if place in counts else levels[place].start
        for deeper in [count for count in counts if count > place]:
            del counts[deeper]
        if levels[place].kind in ("bullet", "none"):
            return "-" if levels[place].kind == "bullet" else ""

        def written(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            one = levels.get(at, levels[place])
            return _written(counts.get(at, one.start), one.kind)

        return _PLACE.sub(written, levels[place].pattern)


def _written(number: int, kind: str) -> str:
    """Return a number as Word writes it; kinds besides letters and Roman numbers as decimals."""
    text = str(number)
    if kind.endswith("Letter") and number > 0:
        turns, place = divmod(number - 1, 26)
        text = chr(ord("a") + place) * (turns + 1)
    elif kind.endswith("Roman") and 0 < number <= _LAST_ROMAN:
        text = ""
        for size, letters in (*_HUNDREDS, (50, "l"), (40, "xl"), *_ROMAN):
            text += letters * (number // size)
            number %= size
    return text.upper() if kind.startswith("upper") else text


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
    parts["chr"] = "∫" if sign is None else _get(sign, "val")
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
    found = element.find(f"{{*}}{path}")
    return "" if found is None else _get(found, "val")


def _get(element: "_Element", name: str) -> str:
    """Return an attribute of any namespace."""
    return next((str(v) for k, v in element.items() if k.rpartition("}")[2] == name), "")
