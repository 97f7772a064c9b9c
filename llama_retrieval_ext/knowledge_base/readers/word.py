"""What Word shows but does not store as text: numbers of headings and lists, and formulas."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZIP_DEFLATED, ZipFile

from llama_retrieval_ext.knowledge_base.readers.html import attribute
from llama_retrieval_ext.knowledge_base.readers.list_numbers import ListLevel, ListNumbers

if TYPE_CHECKING:
    from lxml.etree import _Element

_TYPES: Final = "[Content_Types].xml"
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


def with_visible_text(data: bytes) -> bytes:
    """Return a DOCX file whose numbers and formulas are text, and whose title is a heading."""
    from lxml.etree import QName, XMLParser, fromstring, tostring  # noqa: PLC0415 - an extra

    parser = XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    with ZipFile(BytesIO(data)) as archive:
        types = fromstring(archive.read(_TYPES), parser)
        names = {
            str(part.get("ContentType")).rpartition(".")[2]: str(part.get("PartName")).lstrip("/")
            for part in types.iter("{*}Override")
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
        styles = {
            attribute(style, "styleId"): style for style in _all(roots.get("styles+xml"), "style")
        }
        _number(root, space, styles, *_numbering(roots.get("numbering+xml")))
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
        levels[attribute(definition, "abstractNumId")] = {
            int(attribute(level, "ilvl") or 0): ListLevel(
                int(_value(level, "start") or 1),
                _value(level, "numFmt") or "decimal",
                _value(level, "lvlText"),
            )
            for level in definition.findall("{*}lvl")
        }
    names: dict[str, str] = {}
    for numbered in _all(root, "num"):
        number = attribute(numbered, "numId")
        names[number] = _value(numbered, "abstractNumId")
        for override in numbered.findall("{*}lvlOverride/{*}startOverride"):
            place = int(attribute(override.getparent(), "ilvl") or 0)
            changed = dict(levels.get(names[number], {}))
            if place in changed:
                changed[place] = changed[place]._replace(start=int(attribute(override, "val") or 1))
            names[number] = f"num {number}"
            levels[names[number]] = changed
    return ListNumbers(levels), names


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
