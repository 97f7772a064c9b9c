"""YAML notation of rules, with line numbers and suggestions in errors.

The page of the folder ``graph`` has the keys of rules, steps and conditions, with an example.
``then`` and ``missing`` can be mappings by language, such as ``{en: …, zh: …}``: that is one rule
per language, with the language behind its id, and on the condition that it is the context's
``language``. ``relations`` names relation types by language, for proofs.

A rule file is data: nothing in it is executed or imported; references (``&``, ``*``) are refused.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import InvalidFilterError, RuleError, RuleSyntaxError
from llama_retrieval_ext.graph.cypher import quoted
from llama_retrieval_ext.graph.elements import Direction
from llama_retrieval_ext.graph.rules.rule import (
    VARIABLE,
    Concludes,
    During,
    FromContext,
    Pattern,
    Rule,
    RuleValue,
    Step,
    Timing,
    Where,
    compared,
)
from llama_retrieval_ext.graph.rules.rule_set import LANGUAGE_KEY, RuleSet
from llama_retrieval_ext.text.yaml_nodes import Fields, Reader, composed

_OPERATORS: Final = {operator.value: operator for operator in FilterOperator}
_DIRECTIONS: Final = {direction.value: direction for direction in Direction}
_RULE_KEYS: Final = (
    *("id", "kind", "priority", "confidence", "match", "unless", "where", "then", "missing"),
    "concludes",
)
_MOST_PROBLEMS: Final = 20  # that one message names
_STEP_KEYS: Final = ("from", "follow", "direction", "hops", "optional", "node", "label")


def load_rules(path: str | Path) -> RuleSet:
    """Read a rule file and return its rules.

    Raises:
        RuleSyntaxError: The file cannot be read; the message names line and column of the first
            problem of each of the first 20 rules that have one.
        RuleError: The rules are inconsistent, such as equal ids or a cycle.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"the rule file {path} cannot be read: {error}") from error
    return parse_rules(text, file=str(path))


def parse_rules(text: str, *, file: str = "") -> RuleSet:
    """Parse YAML and return its rules; see `load_rules`."""
    reader = Reader(file)
    root = reader.fields(composed(text, reader), ("rules", "relations"), "a rule file")
    items = reader.items(root.need("rules"), "rules")
    if not items:
        raise reader.error(root.nodes["rules"], "a rule file needs at least one rule")
    rules: list[Rule] = []
    problems: list[RuleSyntaxError] = []
    for node in items:
        try:
            rules += _rules(reader, node)
        except RuleSyntaxError as error:
            problems.append(error)
    if problems:  # the first one, with a line of text for each of the first
        lines = [*map(str, problems[:_MOST_PROBLEMS])]
        if len(problems) > len(lines):
            lines.append(f"{len(problems) - len(lines)} more rules have a problem")
        problems[0].args = ("\n".join(lines),)
        raise problems[0]
    try:
        rule_set = RuleSet(
            tuple(rules), file, _relations(reader, root.nodes.get("relations"), rules)
        )
        rule_set.variants  # noqa: B018 - raises what is wrong with the chains
    except RuleError as error:
        error.add_note(f"in {file or 'the rules'}")
        raise
    return rule_set


def _relations(
    reader: Reader, node: yaml.Node | None, rules: Sequence[Rule]
) -> dict[str, dict[str, str]]:
    """Return the names of the relation types of rules by language."""
    patterns = [rule.pattern for rule in rules]
    types = {t for p in patterns for step in (*p.steps, *p.unless) for t in step.types}
    named = {} if node is None else reader.fields(node, sorted(types), "the relations").nodes
    names: dict[str, dict[str, str]] = {}
    for type_, texts in named.items():
        by_language = _by_language(reader, texts)
        if not by_language:
            raise reader.error(texts, f"{type_!r} takes names by language, such as {{zh: 使用}}")
        fields = Fields(reader, texts, by_language, "a relation")
        names[type_] = {language: fields.text(language) for language in by_language}
    return names


def _rules(reader: Reader, node: yaml.Node) -> Iterator[Rule]:
    """Yield the rule of a node, or one rule per language."""
    fields = reader.fields(node, _RULE_KEYS, "a rule")
    pattern = _pattern(reader, fields)
    then = _by_language(reader, fields.need("then"))
    if not then:
        yield _rule(reader, fields, fields.text("id"), pattern)
    missing = _by_language(reader, fields.nodes.get("missing"))
    for language, text in then.items():
        values = dict(fields.nodes) | {"then": text}
        if missing:
            values.pop("missing")
            values |= {"missing": missing[language]} if language in missing else {}
        where = Where(None, LANGUAGE_KEY, value=language)
        translated = replace(pattern, where=(*pattern.where, where))
        id_ = f"{fields.text('id')}-{language}"
        yield _rule(reader, Fields(reader, node, values, "a rule"), id_, translated)


def _by_language(reader: Reader, node: yaml.Node | None) -> Mapping[str, yaml.Node]:
    """Return the texts of a mapping by language; empty for a plain text."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    languages = [str(reader.value(key)) for key, _ in node.value]
    return reader.fields(node, languages, "texts by language").nodes


def _rule(reader: Reader, fields: Fields, id_: str, pattern: Pattern) -> Rule:
    try:
        return Rule(
            id=id_,
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
        raise reader.error(fields.node, f"{error}{_nearest(str(error), words)}") from error


def _pattern(reader: Reader, fields: Fields) -> Pattern:
    items = reader.items(fields.need("match"), "match")
    if not items:
        raise reader.error(fields.nodes["match"], "match needs a first node")
    start_node, *step_nodes = items
    start = reader.fields(start_node, ("node", "label"), "the first node")
    variable = start.word("node", _variable)
    labels = [(variable, start.word("label", _word))] if "label" in start else []
    steps, at = [], variable
    for node in step_nodes:
        step = _step(reader, node, at, labels)
        steps.append(step)
        at = step.target
    unless, where = (
        reader.items(fields.nodes[key], key) if key in fields else [] for key in ("unless", "where")
    )
    timed = [node for node in where if _is_timed(reader, node)]
    excluded = tuple(_step(reader, node, variable, labels) for node in unless)
    steps.sort(key=lambda step: step.optional)
    return Pattern(
        variable,
        tuple(dict.fromkeys(labels)),
        tuple(steps),
        excluded,
        tuple(_where(reader, node) for node in where if node not in timed),
        tuple(_during(reader, node) for node in timed),
    )


def _is_timed(reader: Reader, node: yaml.Node) -> bool:
    keys = node.value if isinstance(node, yaml.MappingNode) else []
    return any(reader.value(key) == "holds" for key, _ in keys)


def _during(reader: Reader, node: yaml.Node) -> During:
    fields = reader.fields(node, ("node", "holds", "other", "period"), "a condition on time")
    timing = fields.choice("holds", {timing.value: timing for timing in Timing}, Timing.OVERLAPS)
    if ("other" in fields) == ("period" in fields):
        raise reader.error(node, "a condition on time has 'other', a node, or 'period', two dates")
    if "other" in fields:
        return During(fields.word("node", _variable), timing, fields.word("other", _variable))
    dates = reader.value(fields.nodes["period"])
    ends = [None if date is None else str(date) for date in dates if isinstance(dates, list)]
    if len(ends) != 2 or any(date and instant(date) is None for date in ends):  # noqa: PLR2004
        raise reader.error(
            fields.nodes["period"], f"'period' is [start, end], dates or null, got {dates!r}"
        )
    return During(fields.word("node", _variable), timing, (ends[0], ends[1]))


def _step(reader: Reader, node: yaml.Node, at: str, labels: list[tuple[str, str]]) -> Step:
    fields = reader.fields(node, _STEP_KEYS, "a step")
    follow = reader.value(fields.need("follow"))
    types = follow if isinstance(follow, list) else [follow]
    for type_ in types:
        try:
            _word(type_)
        except ValueError as error:
            raise reader.error(fields.nodes["follow"], f"'follow': {error}") from error
    target = fields.word("node", _variable)
    if "label" in fields:
        label = fields.word("label", _word)
        if dict(labels).get(target, label) != label:
            raise reader.error(fields.nodes["label"], f"{target!r} has two labels")
        labels.append((target, label))
    return Step(
        source=fields.word("from", _variable) if "from" in fields else at,
        types=tuple(dict.fromkeys(types)),
        target=target,
        direction=fields.choice("direction", _DIRECTIONS, Direction.OUT),
        hops=_hops(reader, fields),
        optional=fields.get("optional", bool, False),
    )


def _hops(reader: Reader, fields: Fields) -> tuple[int, int]:
    if "hops" not in fields:
        return (1, 1)
    value = reader.value(fields.nodes["hops"])
    numbers = value if isinstance(value, list) else [value, value]
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):  # noqa: PLR2004
        raise reader.error(
            fields.nodes["hops"], f"'hops' is a number or [least, most], got {value!r}"
        )
    return numbers[0], numbers[1]


def _where(reader: Reader, node: yaml.Node) -> Where:
    keys = ("node", "property", "context", "operator", "value", "value_from")
    fields = reader.fields(node, keys, "a condition")
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
        plain = reader.value(fields.nodes["value"]) if "value" in fields else None
        try:
            value = compared(key, operator, plain).value
        except InvalidFilterError as error:
            raise reader.error(fields.nodes.get("value", node), str(error)) from error
    return Where(variable, key, operator, value)


def _concludes(reader: Reader, fields: Fields) -> Concludes | None:
    if "concludes" not in fields:
        return None
    edge = reader.fields(fields.nodes["concludes"], ("from", "relation", "to"), "'concludes'")
    return Concludes(
        edge.word("from", _variable), edge.word("relation", _word), edge.word("to", _variable)
    )


def _word(word: str) -> str:
    """Check a label, relation type or property with the checks for Cypher."""
    quoted(word)
    return word


def _variable(word: str) -> str:
    if not VARIABLE.fullmatch(word):
        raise ValueError(f"a variable is letters, digits and _, a letter first, got {word!r}")
    return word


def _nearest(message: str, words: Sequence[str]) -> str:
    """Return a suggestion for a variable that a message quotes."""
    quoted = message.split("'")[3::2]
    near = [n for word in quoted for n in difflib.get_close_matches(word, words, n=1) if n != word]
    return f"; did you mean {near[0]!r}?" if near else ""
