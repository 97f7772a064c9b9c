"""`ScriptedLLM` answers by its script, and fails where a real model would."""

import asyncio

import pytest
from llama_index.core.llms import ChatMessage

from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM


def test_answers_come_in_order_by_every_method() -> None:
    llm = ScriptedLLM(["one", "two", "three", "four"])
    assert llm.complete("a").text == "one"
    assert asyncio.run(llm.acomplete("b")).text == "two"
    assert str(llm.chat([ChatMessage("c")]).message.content) == "three"
    assert [part.text for part in llm.stream_complete("d")][-1] == "four"
    assert [prompt for prompt in llm.prompts if len(prompt) == 1] == ["a", "b", "d"]


def test_a_function_can_answer_each_prompt() -> None:
    assert ScriptedLLM(str.upper).complete("leave").text == "LEAVE"


def test_an_error_in_the_script_is_raised_instead_of_an_answer() -> None:
    with pytest.raises(ConnectionError, match="down"):
        ScriptedLLM([ConnectionError("down")]).complete("a")


def test_a_prompt_beyond_the_script_is_an_error_with_the_prompt() -> None:
    with pytest.raises(LookupError, match="no answer left for prompt 1: 'leave'"):
        ScriptedLLM([]).complete("leave")


def test_a_prompt_that_leaves_no_room_for_the_answer_is_an_error() -> None:
    with pytest.raises(AssertionError, match="leaves no room for 10 in 20"):
        ScriptedLLM(["x"], context_window=20, num_output=10).complete("leave " * 30)
