"""Texts come out of JSON, whole or broken."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.llm.parsing import texts_in_json


@pytest.mark.parametrize(
    "text",
    [
        '["annual leave", "days off"]',
        '{"queries": ["annual leave", "days off"]}',
        '{"1": "annual leave", "2": "days off"}',
        '[{"query": "annual leave", "why": "short"}, {"query": "days off", "why": "plain"}]',
        '{"query": "annual leave"}\n{"query": "days off"}',
        'Here you are:\n["annual leave", "days off"]\nAnything else?',
        "['annual leave', 'days off']",
        '["annual leave", "days off", "leave and',
        '["annual leave", "days off",]',
        '{"queries": ["annual leave", "days off"',
        '{queries: ["annual leave", "days off"]}',
        '[["annual leave"], [["days off"]], 3, null]',
    ],
)
def test_the_texts_are_found(text: str) -> None:
    assert texts_in_json(text) == ["annual leave", "days off"]


@pytest.mark.parametrize(
    "text",
    ["", "annual leave", "what is list[int]?", "[1] annual leave", "[]", "{}", "[", "[0, 9]"],
)
def test_what_holds_no_texts_gives_none(text: str) -> None:
    assert texts_in_json(text) == []


def test_apostrophes_do_not_end_a_text_in_single_quotes() -> None:
    assert texts_in_json("['what's new', 'days off']") == ["what's new", "days off"]


def test_json_nested_without_end_is_survived() -> None:
    assert texts_in_json("[" * 100_000) == []


@given(st.lists(st.text(min_size=1).filter(lambda text: bool(text.strip())), min_size=1))
def test_every_list_of_texts_is_read(texts: list[str]) -> None:
    assert texts_in_json(json.dumps(texts)) == [text.strip() for text in texts]
