"""Answers of models: thoughts, wrapping, refusals, and JSON that may be malformed or cut off."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from llama_retrieval_ext.llm.parsing import (
    cleaned,
    is_cut_off,
    is_refusal,
    parse_structured,
    texts_in_json,
    unfenced,
    without_thinking,
)
from tests.cases import cases

SIGNS = "ab 年\n\t\"\\'{}[],:</\x00\u2028"
PLAIN = st.text(alphabet="abc 年假\n.,<>/[]|", max_size=40)


def test_cleaning_keeps_only_the_answer(subtests: pytest.Subtests) -> None:
    for answer in [
        "<think>hm</think>leave",
        "<THINK>hm</Think>leave",
        '<thought kind="plan">hm</thought>leave',
        "<seed:think>hm</seed:think>leave",
        "[THINK]hm[/THINK]leave",
        "◁think▷hm◁/think▷leave",
        "<|START_THINKING|>hm<|END_THINKING|>leave",
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
            "<|channel|>final<|message|>leave<|return|>"
        ),
        "<think>one</think><think>two</think>leave",
        "<think>one <think>two</think> three</think>leave",
        "hm</think>leave",
        "leave<think>was that right?",
        "<think>hm</think><answer>leave</answer>",
        "<think></think>leave<|im_end|>",
    ]:
        with subtests.test(answer=answer):
            assert cleaned(answer) == "leave"


@cases("answer", ["", "<think>hm", "hm</think>"])
def test_a_thought_without_an_answer_is_cleaned_to_nothing(answer: str) -> None:
    assert cleaned(answer) == ""


@given(PLAIN)
def test_text_without_thoughts_stays_as_it_is(text: str) -> None:
    assert without_thinking(text) == text


@given(PLAIN, PLAIN)
def test_the_text_after_a_thought_is_the_answer(thought: str, answer: str) -> None:
    assert without_thinking(f"<think>{thought}</think>{answer}") == answer
    assert without_thinking(f"{thought}</think>{answer}") == answer


@cases(
    ("text", "inside"),
    [
        ("```\nleave\n```", "leave"),
        ("```\nleave", "leave"),
        ("```\nleave\n```\nand\n```\ndays\n```", "leave\ndays"),
        ("leave", "leave"),
        ("```leave```", "leave"),
        ("```\n```\nleave", "leave"),
    ],
)
def test_the_content_of_fences_is_returned(text: str, inside: str) -> None:
    assert unfenced(text).split() == inside.split()


@cases(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry.",  # noqa: RUF001 - as models write it
        "I cannot answer this question.",
        "As an AI language model, I ...",
        "抱歉，我无法回答。",  # noqa: RUF001
        "我无法回答这个问题",
    ],
)
def test_refusals_are_recognised(text: str) -> None:
    assert is_refusal(text)


@cases(
    "text", ["I cannot log in to the portal", "无法生成报表怎么办", "Staff have 25 days of leave."]
)
def test_ordinary_sentences_are_not_refusals(text: str) -> None:
    assert not is_refusal(text)


def test_the_texts_in_json_are_found_also_if_it_is_malformed(subtests: pytest.Subtests) -> None:
    for text in [
        '["annual leave", "days off"]',
        '{"queries": ["annual leave", "days off"]}',
        '{"1": "annual leave", "2": "days off"}',
        '[{"query": "annual leave", "why": "short"}, {"query": "days off", "why": "plain"}]',
        '{"query": "annual leave"}\n{"query": "days off"}',
        'Here you are:\n["annual leave", "days off"]\nAnything else?',
        "['annual leave', 'days off']",
        '["annual leave" "days off"]',
        '["annual leave", // as asked\n"days off"]',
        '["annual leave", "days off",]',
        '{queries: ["annual leave", "days off"]}',
        '[["annual leave"], [["days off"]], 3, null]',
    ]:
        with subtests.test(text=text):
            assert texts_in_json(text) == ["annual leave", "days off"]


@cases(
    "text",
    [
        "",
        "annual leave",
        "what is list[int]?",
        "[1] annual leave",
        "[]",
        "{}",
        "[0, 9]",
        "[a, b) c",
    ],
)
def test_text_without_texts_in_json_gives_none(text: str) -> None:
    assert not texts_in_json(text)


CUT_OFF = [
    '["annual leave", "days off", "leave and',
    "['annual leave', 'days off', 'leave and",
    '{"queries": ["annual leave", "days off"',
    '{"queries": ["annual leave", "days off"]',
    '[{"query": "annual leave"}, {"query": "days off"}',
    '["annual leave"]\n["days off", "lea',
    '{"a": "list ]", "b": "days o',
    "[" * 20_000,
]


@cases("text", CUT_OFF)
def test_what_is_read_in_half_is_unreadable(text: str) -> None:
    class Queries(BaseModel):
        queries: list[str] = []

    assert is_cut_off(text)
    assert texts_in_json(text) == []
    assert parse_structured(text, Queries) == (None, "it ends before its JSON does")


def test_malformed_values_beside_valid_ones_are_read_too() -> None:
    assert texts_in_json('[{"query": "leave"}, {query: "days off"}]') == ["leave", "days off"]
    assert texts_in_json('{"query": "leave"}\n{query: "days off"}') == ["leave", "days off"]


def test_apostrophes_do_not_end_a_text_in_single_quotes() -> None:
    assert texts_in_json("['what's new', 'days off']") == ["what's new", "days off"]


@given(st.lists(st.text(SIGNS, min_size=1).filter(str.strip), min_size=1))
def test_every_json_list_of_texts_is_read(texts: list[str]) -> None:
    assert texts_in_json(json.dumps(texts)) == [text.strip() for text in texts]


class Finding(BaseModel):
    text: str
    sources: list[int] = []


class Findings(BaseModel):
    findings: list[Finding]


WON = Findings(findings=[Finding(text="We won 'it'.", sources=[1])])


@cases(
    "answer",
    [
        """{"findings": [{"text": "We won 'it'.", "sources": [1]}]}""",
        """```json\n{"findings": [{"text": "We won 'it'.", "sources": [1],},]}\n```""",
        """Here it is: {findings: [{text: "We won 'it'.", "sources": [1]}]}""",
        """{"findings": [{"text": "We won 'it'.", "sources": [1}]}""",
    ],
)
def test_malformed_json_of_a_model_is_repaired_and_validated(answer: str) -> None:
    assert parse_structured(answer, Findings) == (WON, "")


@cases("answer", ["", "none", '{"findings": 3}', '{"findings": [{"text": "We w', "[" * 50])
def test_json_that_is_missing_invalid_or_cut_off_is_a_problem(answer: str) -> None:
    value, problem = parse_structured(answer, Findings)
    assert value is None
    assert problem


def test_different_answers_in_one_are_a_problem_and_examples_of_another_kind_are_not() -> None:
    whole, other = WON.model_dump_json(), '{"findings": []}'
    assert parse_structured(f"{whole}\n{whole}", Findings) == (WON, "")
    assert parse_structured(f"As in [1] and {{this}}: {whole}", Findings) == (WON, "")
    assert parse_structured(f"{other}\n{whole}", Findings) == (None, "it has 2 different answers")
