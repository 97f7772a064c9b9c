"""Prompts are filled literally."""

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.llm.client import check_prompt, filled


def test_f14_braces_that_are_no_places_stay() -> None:
    template = 'Answer {query} as {"queries": ["..."]}, {n} of them, not {other} or {}'
    assert filled(template, query="leave?", n=2) == (
        'Answer leave? as {"queries": ["..."]}, 2 of them, not {other} or {}'
    )


def test_a_place_in_a_value_is_not_filled() -> None:
    assert filled("{query} {n}", query="{n}", n=3) == "{n} 3"
    assert filled("{n} {query}", query=r"\1 {query}", n=3) == r"3 \1 {query}"


def test_a_prompt_without_a_query_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        check_prompt("Write three queries.")
