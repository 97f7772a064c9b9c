"""YAML as the notation of rules: read with line numbers and advice, printed back the same.

::

    rules:
      - id: hazards-have-measures
        kind: safety
        priority: 1
        confidence: 0.9
        match:
          - {node: process, label: Process}
          - {follow: HAS_HAZARD, node: hazard, label: Hazard}
          - {from: hazard, follow: [MITIGATES], direction: in, hops: [1, 2], optional: true,
             node: measure, label: Measure}
        unless:
          - {from: hazard, follow: ACCEPTED_BY, node: manager}
        where:
          - {node: hazard, property: level, operator: ">=", value: 3}
          - {context: chapter, operator: in, value: [safety, emergency]}
        then: "{process} requires {measure} against {hazard}"
        missing: a measure that nobody has named
        concludes: {from: process, relation: REQUIRES, to: hazard}

A rule file is data: nothing in it is run or imported, and references (``&``, ``*``) are refused.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from pydantic import ValidationError

from llama_retrieval_ext.errors import InvalidFilterError, RuleError, RuleSyntaxError
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.graph.backend import Direction
from llama_retrieval_ext.graph.cypher_text import quoted
from llama_retrieval_ext.graph.rules.chaining import variants
from llama_retrieval_ext.graph.rules.rule import (
    VARIABLE,
    Concludes,
    FromContext,
    Pattern,
    Rule,
    RuleSet,
    RuleValue,
    Step,
    Where,
)

T = TypeVar("T")

MAX_BYTES: Final = 1_000_000
_OPERATORS: Final = {operator.value: operator for operator in FilterOperator}
_DIRECTIONS: Final = {direction.value: direction for direction in Direction}
_RULE_KEYS: Final = (
    *("id", "kind", "priority", "confidence", "match", "unless", "where", "then", "missing"),
    "concludes",
)
_STEP_KEYS: Final = ("from", "follow", "direction", "hops", "optional", "node", "label")


def load_rules(path: str | Path) -> RuleSet:
    """Return the rules of a file.

    Raises:
        RuleSyntaxError: The file cannot be read; the message names line and column.
        RuleError: Rules do not fit together.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"the rule file {path} cannot be read: {error}") from error
    return parse_rules(text, file=str(path))


def parse_rules(text: str, *, file: str = "") -> RuleSet:
    """Return the rules of a text.

    Args:
        text: YAML.
        file: What it is called in messages.

    Raises:
        RuleSyntaxError: It is no rule file; the message names line and column.
        RuleError: Rules do not fit together.
    """
    reader = _Reader(file)
    root = reader.fields(_composed(text, reader), ("rules",), "a rule file")
    rules = [_rule(reader, node) for node in reader.items(root.need("rules"), "rules")]
    try:
        rule_set = RuleSet(tuple(rules), file)
        for rule in rules:
            variants(rule, rule_set)
    except RuleError as error:
        error.add_note(f"in {file or 'the rules'}")
        raise
    return rule_set


def print_rules(rules: RuleSet) -> str:
    """Return rules as YAML; parsing it gives equal rules, and printing those the same text."""
    printed = {"rules": [_printed(rule) for rule in rules]}
    text: str = yaml.safe_dump(printed, sort_keys=False, allow_unicode=True, width=100)
    return text


def _composed(text: str, reader: "_Reader") -> yaml.Node:
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise reader.error(None, f"the text is longer than {MAX_BYTES} bytes")
    try:
        _refuse_references(text, reader)
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise reader.error(error, f"no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise reader.error(None, f"no YAML: {error}") from error
    except RecursionError as error:
        raise reader.error(None, "the YAML is nested too deeply") from error
    if node is None:
        raise reader.error(None, "the text is empty; write 'rules:' and a list")
    return node


def _refuse_references(text: str, reader: "_Reader") -> None:
    """A few lines of references stand for gigabytes."""
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise reader.error(event, "references (& and *) are not allowed in rules")


class _Reader:
    """Reads YAML nodes, and knows where they stand."""

    def __init__(self, file: str) -> None:
        self.file = file

    def error(self, at: object, message: str) -> RuleSyntaxError:
        """Return an error at a YAML node, an event or an error of the parser."""
        mark = getattr(at, "start_mark", None) or getattr(at, "problem_mark", None)
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        return RuleSyntaxError(message, file=self.file, line=line, column=column)

    def fields(self, node: yaml.Node, known: Sequence[str], what: str) -> "_Fields":
        """Return the fields of a mapping, after checking their names."""
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} has the fields {', '.join(known)}")
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self.value(key_node)
            if not isinstance(key, str) or key not in known:
                raise self.error(key_node, f"{what} has no field {key!r}{_advice(key, known)}")
            if key in found:
                raise self.error(key_node, f"{what} has the field {key!r} twice")
            found[key] = value
        return _Fields(self, node, found, what)

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """Return the items of a list."""
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{what} is a list")
        items: list[yaml.Node] = node.value
        return items

    def value(self, node: yaml.Node) -> Any:  # noqa: ANN401 - whatever YAML has
        """Return a scalar, or a list of scalars, as Python has it."""
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, "expected a value or a list of values")
        try:
            return yaml.constructor.SafeConstructor().construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(node, f"no value: {error}") from error


class _Fields:
    """The fields of one mapping."""

    def __init__(
        self, reader: _Reader, node: yaml.Node, found: Mapping[str, yaml.Node], what: str
    ) -> None:
        self.reader, self.node, self.found, self.what = reader, node, found, what

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def need(self, key: str) -> yaml.Node:
        """Return the node of a field that must be there."""
        if key not in self.found:
            raise self.reader.error(self.node, f"{self.what} needs the field {key!r}")
        return self.found[key]

    def get(self, key: str, kind: type[T], default: T) -> T:
        """Return a scalar field of a type."""
        if key not in self.found:
            return default
        value = self.reader.value(self.found[key])
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            name = {str: "text", int: "a whole number", float: "a number"}.get(
                kind, "true or false"
            )
            raise self.reader.error(self.found[key], f"{key!r} is {name}, got {value!r}")
        return value

    def text(self, key: str) -> str:
        """Return a text that must be there."""
        self.need(key)
        value = self.get(key, str, "")
        if not value.strip():
            raise self.reader.error(self.found[key], f"{key!r} must not be empty")
        return value

    def word(self, key: str, check: Callable[[str], str]) -> str:
        """Return a label, type, property or variable that must be there."""
        value = self.text(key)
        try:
            return check(value)
        except ValueError as error:
            raise self.reader.error(self.found[key], f"{key!r}: {error}") from error

    def choice(self, key: str, choices: Mapping[str, T], default: T) -> T:
        """Return one of some values that have names."""
        if key not in self.found:
            return default
        name = self.get(key, str, "")
        if name not in choices:
            advice = _advice(name, tuple(choices))
            raise self.reader.error(
                self.found[key], f"{key!r} is one of {', '.join(choices)}, got {name!r}{advice}"
            )
        return choices[name]


def _rule(reader: _Reader, node: yaml.Node) -> Rule:
    fields = reader.fields(node, _RULE_KEYS, "a rule")
    pattern = _pattern(reader, fields)
    try:
        return Rule(
            id=fields.text("id"),
            pattern=pattern,
            then=fields.text("then"),
            kind=fields.get("kind", str, ""),
            priority=fields.get("priority", int, 1),
            confidence=fields.get("confidence", float, 1.0),
            missing=fields.get("missing", str, "?"),
            concludes=_concludes(reader, fields),
        )
    except RuleSyntaxError:
        raise
    except RuleError as error:
        words = [*pattern.variables, *(step.target for step in pattern.unless)]
        raise reader.error(node, f"{error}{_nearest(str(error), words)}") from error


def _pattern(reader: _Reader, fields: _Fields) -> Pattern:
    items = reader.items(fields.need("match"), "match")
    if not items:
        raise reader.error(fields.found["match"], "match needs a first node")
    start_node, *step_nodes = items
    start = reader.fields(start_node, ("node", "label"), "the first node")
    variable = start.word("node", _variable)
    labels = [(variable, start.word("label", _word))] if "label" in start else []
    steps, at = [], variable
    for node in step_nodes:
        step = _step(reader, node, at, labels)
        steps.append(step)
        at = step.target
    unless = [
        _step(reader, node, variable, labels)
        for node in (reader.items(fields.found["unless"], "unless") if "unless" in fields else ())
    ]
    where = [
        _where(reader, node)
        for node in (reader.items(fields.found["where"], "where") if "where" in fields else ())
    ]
    required = [step for step in steps if not step.optional]
    optional = [step for step in steps if step.optional]
    return Pattern(
        variable,
        tuple(dict.fromkeys(labels)),
        (*required, *optional),
        tuple(unless),
        tuple(where),
    )


def _step(reader: _Reader, node: yaml.Node, at: str, labels: list[tuple[str, str]]) -> Step:
    fields = reader.fields(node, _STEP_KEYS, "a step")
    follow = reader.value(fields.need("follow"))
    types = follow if isinstance(follow, list) else [follow]
    for type_ in types:
        try:
            _word(type_)
        except ValueError as error:
            raise reader.error(fields.found["follow"], f"'follow': {error}") from error
    target = fields.word("node", _variable)
    if "label" in fields:
        label = fields.word("label", _word)
        if dict(labels).get(target, label) != label:
            raise reader.error(fields.found["label"], f"{target!r} has two labels")
        labels.append((target, label))
    return Step(
        source=fields.word("from", _variable) if "from" in fields else at,
        types=tuple(dict.fromkeys(types)),
        target=target,
        direction=fields.choice("direction", _DIRECTIONS, Direction.OUT),
        hops=_hops(reader, fields),
        optional=fields.get("optional", bool, False),
    )


def _hops(reader: _Reader, fields: _Fields) -> tuple[int, int]:
    if "hops" not in fields:
        return (1, 1)
    value = reader.value(fields.found["hops"])
    numbers = value if isinstance(value, list) else [value, value]
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):  # noqa: PLR2004
        raise reader.error(
            fields.found["hops"], f"'hops' is a number or [least, most], got {value!r}"
        )
    return numbers[0], numbers[1]


def _where(reader: _Reader, node: yaml.Node) -> Where:
    known = ("node", "property", "context", "operator", "value", "value_from")
    fields = reader.fields(node, known, "a condition")
    operator = fields.choice("operator", _OPERATORS, FilterOperator.EQ)
    if "context" in fields and ("node" in fields or "property" in fields):
        raise reader.error(node, "a condition is on a property of a node or on the context")
    variable = None if "context" in fields else fields.word("node", _variable)
    key = fields.word("property" if variable else "context", _word)
    value: RuleValue
    if "value_from" in fields:
        if "value" in fields or operator is FilterOperator.IS_EMPTY:
            raise reader.error(node, "a condition has one value")
        value = FromContext(fields.word("value_from", _word))
    else:
        given = reader.value(fields.found["value"]) if "value" in fields else None
        value = tuple(given) if isinstance(given, list) else given
        _check_value(reader, fields.found.get("value", node), Where(variable, key, operator, value))
    return Where(variable, key, operator, value)


def _check_value(reader: _Reader, node: yaml.Node, where: Where) -> None:
    """Check a condition as a filter on metadata is checked."""
    value = list(where.value) if isinstance(where.value, tuple) else where.value
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            raise reader.error(node, f"a number has at most 64 bits, got {number}")
    try:
        parse_filters(
            MetadataFilters(
                filters=[MetadataFilter(key=where.key, operator=where.operator, value=value)]  # type: ignore[arg-type]
            )
        )
    except ValidationError as error:
        raise reader.error(
            node, f"a condition takes text, numbers or a list of them, got {value!r}"
        ) from error
    except InvalidFilterError as error:
        raise reader.error(node, str(error)) from error


def _concludes(reader: _Reader, fields: _Fields) -> Concludes | None:
    if "concludes" not in fields:
        return None
    own = reader.fields(fields.found["concludes"], ("from", "relation", "to"), "'concludes'")
    return Concludes(
        own.word("from", _variable), own.word("relation", _word), own.word("to", _variable)
    )


def _word(word: str) -> str:
    """Check a label, relation type or property as Cypher's are checked."""
    quoted(word)
    return word


def _variable(word: str) -> str:
    if not VARIABLE.fullmatch(word):
        raise ValueError(f"a variable is letters, digits and _, a letter first, got {word!r}")
    return word


def _advice(word: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"


def _nearest(message: str, words: Sequence[str]) -> str:
    """Advice on a variable that a message quotes."""
    quoted = message.split("'")[3::2]
    near = [n for word in quoted for n in difflib.get_close_matches(word, words, n=1) if n != word]
    return f"; did you mean {near[0]!r}?" if near else ""


def _printed(rule: Rule) -> dict[str, object]:
    pattern = rule.pattern
    labels = dict(pattern.labels)
    shown: dict[str, object] = {"id": rule.id}
    defaults = {"kind": "", "priority": 1, "confidence": 1.0}
    shown |= {key: v for key, default in defaults.items() if (v := getattr(rule, key)) != default}
    start: dict[str, object] = {"node": pattern.start}
    if pattern.start in labels:
        start["label"] = labels[pattern.start]
    shown["match"] = [start, *(_printed_step(step, labels) for step in pattern.steps)]
    if pattern.unless:
        shown["unless"] = [_printed_step(step, labels) for step in pattern.unless]
    if pattern.where:
        shown["where"] = [_printed_where(where) for where in pattern.where]
    shown["then"] = rule.then
    if rule.missing != "?":
        shown["missing"] = rule.missing
    if rule.concludes is not None:
        ends = rule.concludes
        shown["concludes"] = {"from": ends.source, "relation": ends.type, "to": ends.target}
    return shown


def _printed_step(step: Step, labels: Mapping[str, str]) -> dict[str, object]:
    shown: dict[str, object] = {"from": step.source}
    shown["follow"] = step.types[0] if len(step.types) == 1 else list(step.types)
    if step.direction is not Direction.OUT:
        shown["direction"] = step.direction.value
    if step.hops != (1, 1):
        shown["hops"] = list(step.hops)
    if step.optional:
        shown["optional"] = True
    shown["node"] = step.target
    if step.target in labels:
        shown["label"] = labels[step.target]
    return shown


def _printed_where(where: Where) -> dict[str, object]:
    shown: dict[str, object] = (
        {"context": where.key}
        if where.variable is None
        else {"node": where.variable, "property": where.key}
    )
    if where.operator is not FilterOperator.EQ:
        shown["operator"] = where.operator.value
    if isinstance(where.value, FromContext):
        shown["value_from"] = where.value.key
    elif where.value is not None:
        shown["value"] = list(where.value) if isinstance(where.value, tuple) else where.value
    return shown
