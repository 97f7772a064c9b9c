"""Reading YAML nodes with errors that name file, line and column."""

from collections.abc import Callable

import pytest

from llama_retrieval_ext.errors import RuleSyntaxError
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.text.yaml_nodes import Fields, Reader, composed
from tests.cases import cases


def fields(text: str) -> Fields:
    reader = Reader("rules.yaml")
    return reader.fields(composed(text, reader), ["name", "weight", "mode"], "a rule")


def test_fields_are_read_with_their_type_or_default() -> None:
    read = fields("name: leave\nweight: 2")
    assert (read.text("name"), read.get("weight", float, 1.0)) == ("leave", 2.0)
    assert read.choice("mode", {"fast": 1}, 0) == 0
    assert "mode" not in read


@cases(
    ("text", "message"),
    [
        ("", "the text is empty; write 'rules:' and a list"),
        ("a: [", "not valid YAML"),
        ("a: &x 1\nb: *x", r"references \(& and \*\) are not allowed in rules"),
        ("[" * 13 + "]" * 13, "the YAML is nested too deeply"),
        ("name: " + "x" * 2_000_000, "the text is longer than"),
        ("[1]", "a rule has the fields name, weight, mode"),
        ("nam: x", "a rule has no field 'nam'; did you mean 'name'?"),
        ("name: x\nname: y", "a rule has the field 'name' twice"),
    ],
)
def test_a_text_that_is_no_safe_mapping_of_known_fields_is_refused(text: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError, match=message):
        fields(text)


@cases(
    ("text", "read", "message"),
    [
        ("weight: 1", lambda each: each.text("name"), "a rule needs the field 'name'"),
        ("name: ' '", lambda each: each.text("name"), "'name' must not be empty"),
        ("name: 3", lambda each: each.text("name"), "'name' is text, got 3"),
        ("weight: true", lambda each: each.get("weight", float, 1.0), "'weight' is a number"),
        ("weight: {}", lambda each: each.get("weight", float, 1.0), "expected a value"),
        ("mode: fst", lambda each: each.choice("mode", {"fast": 1}, 0), "did you mean 'fast'"),
    ],
)
def test_a_field_of_another_type_is_refused(
    text: str, read: Callable[[Fields], object], message: str
) -> None:
    with pytest.raises(RuleSyntaxError, match=message):
        read(fields(text))


@cases("value", ["12:30", "012", "0o12", "1_000", "0b11", "1:30.5", "1e3", "-07"])
def test_a_number_that_yaml_versions_read_differently_is_refused(value: str) -> None:
    reader = Reader("rules.yaml")
    for text in (f"a: {value}", f"a: [x, {value}]"):
        with pytest.raises(RuleSyntaxError, match=r"in quotes.*") as caught:
            reader.data(composed(text, reader))
        assert (caught.value.line, caught.value.column) == (1, text.index(value) + 1)
    assert reader.data(composed(f"a: '{value}'", reader)) == {"a": value}


@cases(
    ("text", "value"),
    [("0", 0), ("-12", -12), ("0x1F", 31), ("1.50", 1.5), (".5", 0.5), ("5x", "5x")],
)
def test_a_number_that_yaml_versions_read_alike_is_a_number(text: str, value: object) -> None:
    reader = Reader("rules.yaml")
    assert reader.data(composed(text, reader)) == value


def test_an_error_names_file_line_and_column() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        fields("name: x\n\nwrong: y")
    assert (caught.value.line, caught.value.column) == (3, 1)
    assert "rules.yaml" in str(caught.value)


@cases("text", ['rules: ["\\ud800"]', 'rules:\n  - name: "\\uD800"', "rules: \ud800"])
def test_half_of_a_surrogate_pair_is_a_syntax_error(text: str) -> None:
    with pytest.raises(RuleSyntaxError):
        parse_rules(text)
