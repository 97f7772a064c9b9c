"""Thoughts, wrapping and refusals are told from what a model says."""

import time

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.llm.parsing import (
    cleaned,
    has_words,
    is_refusal,
    unfenced,
    without_thinking,
)
from tests.cases import each_case

PLAIN = st.text(alphabet="abc 年假\n.,<>/[]|", max_size=40)


@each_case(
    "answer",
    [
        "<think>hm</think>leave",
        "<think>\nhm\n\nhm</think>\n\nleave",
        "<THINK>hm</Think>leave",
        "<thinking>hm</thinking>leave",
        '<thought kind="plan">hm</thought>leave',
        "<reasoning>hm</reasoning>leave",
        "<scratchpad>hm</scratchpad>leave",
        "<antThinking>hm</antThinking>leave",
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
        "leave<think>was that right?</think>",
        "<think>hm</think><answer>leave</answer>",
        "<think></think>leave<|im_end|>",
    ],
)
def test_only_the_answer_stays(answer: str) -> None:
    assert cleaned(answer) == "leave"


@each_case("answer", ["", " \n", "<think>", "<think>hm", "[THINK]hm", "hm</think>"])
def test_a_thought_alone_is_no_answer(answer: str) -> None:
    assert cleaned(answer) == ""


@given(PLAIN)
def test_text_without_thoughts_stays_as_it_is(text: str) -> None:
    assert without_thinking(text) == text


@given(PLAIN, PLAIN)
def test_what_follows_the_thought_is_the_answer(thought: str, answer: str) -> None:
    assert without_thinking(f"<think>{thought}</think>{answer}") == answer
    assert without_thinking(f"{thought}</think>{answer}") == answer


@each_case("piece", ["<think>", "</think>", "<", "<think ", "```\n", "<|channel|>"])
def test_a_long_answer_takes_no_longer_than_its_length(piece: str) -> None:
    started = time.perf_counter()
    unfenced(cleaned(piece * 20_000))
    assert time.perf_counter() - started < 10


@each_case(
    ("text", "inside"),
    [
        ("```\nleave\n```", "leave"),
        ("```json\nleave\n```\nbye", "leave"),
        ("Here:\n~~~\nleave\n~~~", "leave"),
        ("```\nleave", "leave"),
        ("```\nleave\n```\nand\n```\ndays\n```", "leave\ndays"),
        ("leave", "leave"),
        ("```leave```", "leave"),
        ("```\n```\nleave", "leave"),
    ],
)
def test_what_is_fenced_comes_out(text: str, inside: str) -> None:
    assert unfenced(text).split() == inside.split()


@each_case(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry.",  # noqa: RUF001 - as models write it
        "Sorry, no.",
        "I cannot answer this question.",
        "I am unable to provide that.",
        "As an AI language model, I ...",
        "抱歉，我无法回答。",  # noqa: RUF001
        "作为一个人工智能",
        "我无法回答这个问题",
    ],
)
def test_a_refusal_is_known(text: str) -> None:
    assert is_refusal(text)


@each_case(
    "text",
    [
        "I cannot log in to the portal",
        "I am unable to open the file",
        "无法生成报表怎么办",
        "Assistants refuse leave",
        "Staff have 25 days of leave.",
    ],
)
def test_what_people_ask_is_no_refusal(text: str) -> None:
    assert not is_refusal(text)


def test_digits_are_no_words_and_chinese_is() -> None:
    assert not has_words("0")
    assert not has_words("9. -")
    assert has_words("年假")
