"""Rule files are data: read with line numbers and advice, never run."""

from typing import Any

import pytest
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import RuleError, RuleSyntaxError
from llama_retrieval_ext.graph.elements import Direction
from llama_retrieval_ext.graph.rules.rule import Concludes, FromContext, Pattern, Rule, Step, Where
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from tests.cases import cases

RULES = """
rules:
  - id: hazards-have-measures
    kind: safety
    priority: 2
    confidence: 0.9
    match:
      - {node: process, label: Process}
      - {from: process, follow: HAS_HAZARD, node: hazard, label: Hazard}
      - {from: hazard, follow: [MITIGATES, PREVENTS], direction: in, hops: [1, 2], optional: true,
         node: measure, label: 措施}
    unless: [{from: hazard, follow: ACCEPTED_BY, node: manager}]
    where:
      - {node: hazard, property: level, operator: '>=', value: 3}
      - {context: chapter, operator: in, value: [safety, 应急]}
      - {node: hazard, property: areas, operator: contains, value_from: area}
    then: '{process} 需要 {measure.name}: {hazard}'
    missing: nothing
    concludes: {from: process, relation: FACES, to: hazard}
"""


def test_every_key_of_a_rule_is_read() -> None:
    (rule,) = parse_rules(RULES)
    first, second = rule.pattern.steps
    assert (rule.id, rule.kind, rule.priority, rule.confidence) == (
        *("hazards-have-measures", "safety", 2, 0.9),
    )
    assert rule.pattern.labels == (
        *(("process", "Process"), ("hazard", "Hazard"), ("measure", "措施")),
    )
    assert first == Step("process", ("HAS_HAZARD",), "hazard")
    assert second == Step(
        "hazard", ("MITIGATES", "PREVENTS"), "measure", Direction.IN, (1, 2), optional=True
    )
    assert rule.pattern.unless == (Step("hazard", ("ACCEPTED_BY",), "manager"),)
    assert rule.pattern.where == (
        Where("hazard", "level", FilterOperator.GTE, 3),
        Where(None, "chapter", FilterOperator.IN, ("safety", "应急")),
        Where("hazard", "areas", FilterOperator.CONTAINS, FromContext("area")),
    )
    assert (rule.then, rule.missing) == ("{process} 需要 {measure.name}: {hazard}", "nothing")
    assert rule.concludes == Concludes("process", "FACES", "hazard")


def test_texts_by_language_are_one_rule_per_language() -> None:
    texts = rule(then="then: {zh: '{p}: {h}。', en: '{p}: {h}.'}", missing="missing: {en: none}")
    rules = list(parse_rules(texts))
    assert [(each.id, each.then, each.missing) for each in rules] == [
        ("a-zh", "{p}: {h}。", "?"),
        ("a-en", "{p}: {h}.", "none"),
    ]
    assert [each.pattern.where for each in rules] == [
        (Where(None, "language", value=language),) for language in ("zh", "en")
    ]


def rule(**changes: str) -> str:
    """A rule, with lines of it replaced."""
    lines = {
        "id": "id: a",
        "match": "match: [{node: p, label: P}, {follow: HAS, node: h}]",
        "then": "then: '{p} {h}'",
        **changes,
    }
    return "rules:\n" + "".join(
        ("  - " if at == 0 else "    ") + line + "\n" for at, line in enumerate(lines.values())
    )


def test_an_unreadable_rule_file_is_an_error_with_its_line(subtests: pytest.Subtests) -> None:
    for text, line, message in [
        (rule(then="the: x"), 4, "no field 'the'; did you mean 'then'"),
        (rule(match="match: [{node: p}, {folow: HAS, node: h}]"), 3, "did you mean 'follow'"),
        (rule(where="where: [{node: hh, property: x, value: 1}]"), 2, "on 'hh'"),
        (rule(then="then: '{hh}'"), 2, "names 'hh', which no step binds"),
        (rule(then="then: 'a { b'"), 2, "brace"),
        (rule(match="match: [{node: p}, {follow: 'A`B', node: h}]"), 3, "letters, digits"),
        (rule(match="match: [{node: 'p p'}]"), 3, "a variable is"),
        (rule(match="match: [{node: p}, {follow: A, hops: [0, 99], node: h}]"), 2, "hops"),
        (rule(match="match: [{node: p}, {follow: A, direction: ot, node: h}]"), 3, "'out'"),
        (rule(kind="kind: 3"), 5, "'kind' is text"),
        (rule(kind="confidence: 2"), 2, "confidence must be in"),
        (rule(kind="priority: true"), 5, "whole number"),
        (rule(where="where: [{node: h, property: x, operator: '=>', value: 1}]"), 5, "one of"),
        (rule(where="where: [{node: h, property: x, value: true}]"), 5, "text, numbers"),
        (rule(where="where: [{node: h, property: x, operator: in, value: 1}]"), 5, "a list"),
        (rule(where="where: [{node: h, property: x, value: 2024-01-01}]"), 5, "text, numbers"),
        ("rules:\n  - !!python/object/apply:os.system ['x']\n", 2, "has the fields"),
        (rule(id="id: !!python/name:os.system x"), 2, "no value"),
        ("rules: []", 1, "at least one rule"),
        ("relations: {HAD: {zh: 有}}\n" + rule(), 1, "no field 'HAD'; did you mean 'HAS'"),
        ("relations: {HAS: 有}\n" + rule(), 1, "names by language"),
    ]:
        with subtests.test(text=text):
            with pytest.raises(RuleSyntaxError, match=message) as caught:
                parse_rules(text, file="rules.yaml")
            assert caught.value.line == line
            assert str(caught.value).startswith(f"rules.yaml, line {line}, column")


def test_two_rules_cannot_have_one_id() -> None:
    with pytest.raises(RuleError, match="two rules"):
        parse_rules(rule() + rule().removeprefix("rules:\n"))


HAS = Step("p", ("HAS",), "h")
MAYBE = Step("h", ("MITIGATES",), "m", optional=True)


def test_a_conclusion_has_names_properties_and_the_text_for_what_is_missing() -> None:
    rule = Rule(
        "a", Pattern("p", steps=(HAS, MAYBE)), "{p}: {{{h.levels}}}, {m}, {h.x}", missing="-"
    )
    text = rule.text({"p": "pit", "h": "flood"}, {"h": {"levels": [1, 2]}})
    assert text == "pit: {1, 2}, -, -"


@cases(
    ("pattern", "options", "message"),
    [
        (Pattern("p", steps=(Step("x", ("A",), "y"),)), {}, "leaves 'x'"),
        (Pattern("p", steps=(Step("p", (), "y"),)), {}, "names no relation type"),
        (Pattern("p", steps=(HAS, Step("p", ("A",), "h", optional=True))), {}, "bound already"),
        (
            Pattern("p", steps=(HAS, MAYBE), unless=(Step("p", ("A",), "m"),)),
            {},
            "only an optional",
        ),
        (Pattern("p", steps=(HAS,), where=(Where("q", "x", value=1),)), {}, "on 'q'"),
        (Pattern("p", steps=(HAS,) * 99), {}, "more than"),
        (Pattern("p", steps=(HAS, MAYBE)), {"concludes": Concludes("p", "R", "m")}, "at 'm'"),
        (Pattern("p"), {"priority": 0}, "priority must be at least 1"),
        (Pattern("p"), {"confidence": 0.0}, "confidence must be in"),
        (Pattern("p"), {"then": "{q}"}, "names 'q'"),
    ],
)
def test_a_rule_with_an_unknown_reference_is_refused(
    pattern: Pattern, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RuleError, match=f"rule 'a': .*{message}"):
        Rule("a", pattern, **{"then": "{p}", **options})
