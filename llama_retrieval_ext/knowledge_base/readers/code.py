"""The classes and functions of source code; they need the extra ``code``."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

# Suffixes by the names of tree-sitter's languages.
_SUFFIXES: Final[Mapping[str, str]] = {
    "python": "py pyi",
    "javascript": "js jsx mjs cjs",
    "typescript": "ts",
    "tsx": "tsx",
    "java": "java",
    "kotlin": "kt",
    "scala": "scala",
    "go": "go",
    "rust": "rs",
    "c": "c",
    "cpp": "h cc cpp cxx hpp",
    "csharp": "cs",
    "ruby": "rb",
    "php": "php",
    "swift": "swift",
    "lua": "lua",
}
LANGUAGES: Final = {f".{end}": name for name, ends in _SUFFIXES.items() for end in ends.split()}
_DEFINITION: Final = re.compile(
    r"(?:\w+_)?(?:class|interface|protocol|enum|record|struct|union|trait|impl|mod|module|namespace|object"
    r"|function|method|constructor|type)_(?:definition|declaration|item|specifier|spec)"
    r"|class|module|method|singleton_method"
)
# A definition may stand in one of these, with its decorators or its `export`.
_AROUND: Final = {"decorated_definition", "export_statement", "template_declaration"}
_BEFORE: Final = re.compile(r"\w*comment|attribute_item")
# The type of the receiver of a method of Go: `(o *Order)`, `(s Stack[T])`.
_RECEIVER: Final = re.compile(r"(\w+)\s*(?:\[.*\])?\s*,?\s*\)$", re.DOTALL)
_LONGEST_RECEIVER: Final = 300


class CodeDefinition(NamedTuple):
    """A class or function: its first line, the line after it, its depth from 1, and its name."""

    first: int
    last: int
    level: int
    name: str


@cache
def is_installed() -> bool:
    """Return whether the extra ``code`` is installed."""
    return find_spec("tree_sitter_language_pack") is not None


def definitions(text: str, suffix: str) -> list[CodeDefinition]:
    """Return the classes and functions of a source text, in its order; none without the extra."""
    if not is_installed():
        return []
    from tree_sitter_language_pack import get_parser  # noqa: PLC0415 - an extra

    language: Any = LANGUAGES[suffix]  # a literal type of some hundred names
    root = get_parser(language).parse(text.encode(errors="replace")).root_node
    return sorted(_definitions(root), key=lambda definition: (definition.first, definition.level))


class _Place(NamedTuple):
    """A node in its tree; tree-sitter itself finds parents and siblings from the root."""

    node: "Node"
    siblings: "list[Node]"
    at: int
    parent: "_Place | None"


def _definitions(root: "Node") -> Iterator[CodeDefinition]:
    """Yield definitions; iterative, because generated code may nest thousands of levels."""
    open_places = [(_Place(root, [root], 0, None), 1)]
    while open_places:
        place, level = open_places.pop()
        node, parent = place.node, place.parent
        names = _names(node) if _is_definition(node) else []
        around = parent if parent is not None and _is_around(parent.node, node) else place
        for depth, name in enumerate(names, start=level):
            yield CodeDefinition(_first_line(around), _last_line(around.node) + 1, depth, name)
        children = node.children
        for at, child in enumerate(children):
            open_places.append((_Place(child, children, at, place), level + len(names)))


def _is_definition(node: "Node") -> bool:
    if not (node.is_named and _DEFINITION.fullmatch(node.type)):
        return False
    # In C, `struct order` without a body names a type.
    return not node.type.endswith("specifier") or node.child_by_field_name("body") is not None


def _is_around(parent: "Node", node: "Node") -> bool:
    """Return whether a definition begins with its parent; in Go, several types may have one."""
    if parent.type == "type_declaration":
        return parent.start_point.row == node.start_point.row
    return parent.type in _AROUND


def _first_line(place: _Place) -> int:
    """Return the line where the comments and attributes directly above a definition begin."""
    first = place.node.start_point.row
    for at in range(place.at - 1, -1, -1):
        before = place.siblings[at]
        shares = at > 0 and _last_line(place.siblings[at - 1]) == before.start_point.row
        is_directly = _last_line(before) + 1 >= first
        if shares or not is_directly or not _BEFORE.fullmatch(before.type):
            break
        first = before.start_point.row
    return first


def _last_line(node: "Node") -> int:
    """Return the line of the last character; Rust's comments include the end of their line."""
    end = node.end_point
    return end.row - (end.column == 0 and end.row > node.start_point.row)


def _names(node: "Node") -> list[str]:
    """Return the name of a definition, below that of the type for a method of Go."""
    receiver = node.child_by_field_name("receiver")
    text = b"" if receiver is None else receiver.text or b""
    typed = _RECEIVER.search(text[-_LONGEST_RECEIVER:].decode(errors="ignore"))
    return [name for name in (typed[1] if typed else "", _name(node)) if name]


def _name(node: "Node") -> str:
    named: Node | None = node
    while named is not None and named.type.endswith(("declarator", "definition")):
        named = named.child_by_field_name("declarator") or named.child_by_field_name("name")
    if named is node:
        fields = (node.child_by_field_name(field) for field in ("name", "type"))
        words = (child for child in node.named_children if child.type.endswith("identifier"))
        named = next((field for field in (*fields, *words) if field is not None), None)
    return "" if named is None or named.text is None else " ".join(named.text.decode().split())
