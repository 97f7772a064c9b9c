"""YAML nodes with line numbers; errors list the expected names and values."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import yaml

from llama_retrieval_ext.errors import RetrievalExtError, RuleSyntaxError

T = TypeVar("T")

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HALF: Final = "half of a surrogate pair, which is no character: write the character itself"
# Numbers that mean the same in YAML 1.1, which PyYAML reads, and in YAML 1.2; and those of one.
_NUMBER: Final = re.compile(
    r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_NUMBER_OF_1_2: Final = re.compile(
    r"0o[0-7]+|[-+]?[0-9]+|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
)
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
MAX_BYTES: Final = 1_000_000
# The C parser is ten times as fast, but PyYAML may be built without it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def composed(text: str, reader: "Reader") -> yaml.Node:
    """Parse a text and return its root node."""
    if len(text.encode("utf-8", "replace")) > reader.max_bytes:
        raise reader.error(None, f"the text is longer than {reader.max_bytes} bytes")
    if _SURROGATE.search(text):
        raise reader.error(None, f"the text has {_HALF}")
    try:
        _check_events(text, reader)
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise reader.error(error, f"not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise reader.error(None, f"not valid YAML: {error}") from error
    if node is None:
        raise reader.error(None, f"the text is empty; write {reader.example}")
    return node


def _check_events(text: str, reader: "Reader") -> None:
    """Raise on references, which can expand to gigabytes, and on deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise reader.error(event, f"references (& and *) are not allowed in {reader.what}")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > reader.max_depth:
            raise reader.error(event, "the YAML is nested too deeply")


class Reader:
    """Reader of YAML nodes; errors name file, line and column."""

    what: ClassVar[str] = "rules"
    example: ClassVar[str] = "'rules:' and a list"
    max_bytes: ClassVar[int] = MAX_BYTES
    max_depth: ClassVar[int] = 12

    def __init__(self, file: str) -> None:
        self.file = file

    def error(self, at: object, message: str) -> RetrievalExtError:
        """Return an error at a YAML node, an event or an error of the parser."""
        line, column = position(at)
        return RuleSyntaxError(message, file=self.file, line=line, column=column)

    def fields(self, node: yaml.Node, names: Sequence[str], what: str) -> "Fields":
        """Return the fields of a mapping, after checking their names."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} has the fields {', '.join(names)}")
        nodes: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self.value(key_node)
            if not isinstance(key, str) or key not in names:
                raise self.error(key_node, f"{what} has no field {key!r}{_advice(key, names)}")
            if key in nodes:
                raise self.error(key_node, f"{what} has the field {key!r} twice")
            nodes[key] = value
        return Fields(self, node, nodes, what)

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """Return the items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{what} is a list")
        items: list[yaml.Node] = node.value
        return items

    def value(self, node: yaml.Node) -> Any:  # noqa: ANN401 - whatever YAML has
        """Return a scalar, or a list of scalars, as a Python value."""
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, "expected a value or a list of values")
        is_number = node.tag in _NUMBERS or _NUMBER_OF_1_2.fullmatch(node.value)
        if not node.style and is_number and not _NUMBER.fullmatch(node.value):
            raise self.error(  # without the value, which may be a secret
                node,
                "YAML 1.1 and 1.2 read this differently, as 12:30, 012, 0o12, 1_000 and 1e3: put "
                "it in quotes as text, or write the number in decimal digits",
            )
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(node, f"no value: {error}") from error
        if isinstance(value, str) and _SURROGATE.search(value):
            raise self.error(node, f"no value: it has {_HALF}")
        return value

    def data(self, node: yaml.Node) -> Any:  # noqa: ANN401 - whatever YAML has
        """Return a node as dictionaries, lists and values."""
        if isinstance(node, yaml.SequenceNode):
            return [self.data(item) for item in node.value]
        if not isinstance(node, yaml.MappingNode):
            return self.value(node)
        fields: dict[str, Any] = {}
        for key_node, value in node.value:
            key = self.value(key_node)
            if not isinstance(key, str) or key in fields:
                raise self.error(key_node, "a field's name is a text and there once")
            fields[key] = self.data(value)
        return fields


def position(at: object) -> tuple[int, int]:
    """Return line and column, from 1, of a YAML node, an event or an error of the parser."""
    mark = getattr(at, "start_mark", None) or getattr(at, "problem_mark", None)
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


class Fields:
    """Fields of one mapping, each checked when it is read."""

    def __init__(
        self, reader: Reader, node: yaml.Node, nodes: Mapping[str, yaml.Node], what: str
    ) -> None:
        self.reader, self.node, self.nodes, self.what = reader, node, nodes, what

    def __contains__(self, key: str) -> bool:
        return key in self.nodes

    def need(self, key: str) -> yaml.Node:
        """Return the node of a required field."""
        if key not in self.nodes:
            raise self.reader.error(self.node, f"{self.what} needs the field {key!r}")
        return self.nodes[key]

    def get(self, key: str, kind: type[T], default: T) -> T:
        """Return a scalar field of the given type, or the default."""
        if key not in self.nodes:
            return default
        value = self.reader.value(self.nodes[key])
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            name = {str: "text", int: "a whole number", float: "a number"}.get(
                kind, "true or false"
            )
            raise self.reader.error(self.nodes[key], f"{key!r} is {name}, got {value!r}")
        return value  # pyright: ignore[reportReturnType]  # its type was checked

    def text(self, key: str) -> str:
        """Return a required text."""
        self.need(key)
        value = self.get(key, str, "")
        if not value.strip():
            raise self.reader.error(self.nodes[key], f"{key!r} must not be empty")
        return value

    def word(self, key: str, check: Callable[[str], str]) -> str:
        """Return a required label, type, property or variable."""
        value = self.text(key)
        try:
            return check(value)
        except ValueError as error:
            raise self.reader.error(self.nodes[key], f"{key!r}: {error}") from error

    def choice(self, key: str, choices: Mapping[str, T], default: T) -> T:
        """Return the value that a field selects by name, or the default."""
        if key not in self.nodes:
            return default
        name = self.get(key, str, "")
        if name not in choices:
            advice = _advice(name, tuple(choices))
            raise self.reader.error(
                self.nodes[key], f"{key!r} is one of {', '.join(choices)}, got {name!r}{advice}"
            )
        return choices[name]


def _advice(word: object, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names)}"
