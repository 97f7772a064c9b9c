"""Fan-outs written by a language model: MultiQuery, Decompose, StepBack."""

from typing import Any

import pytest

# ruff: noqa: RUF001 - full-width punctuation on purpose
# ruff: noqa: RUF001 - full-width punctuation and curly quotes on purpose
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext import RRF, Query
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stages.rewrite.multi_query import (
    Decompose,
    MultiQuery,
    StepBack,
    distinct,
    keeps_language,
    queries_in,
)
from llama_retrieval_ext.testing import FakeRetriever, ScriptedLLM
from tests.cases import cases
from tests.searching import Searched

PARTS = "1. How long is sick leave?\n2. Who pays for sick leave?\n3. What is sick leave?"
BOTH = "How long is sick leave, and who pays?"


@pytest.fixture
def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9), ("b", 0.5)])


def queries(source: FakeRetriever) -> list[str]:
    return sorted(bundle.query_str for bundle in source.calls)


@pytest.mark.parametrize(
    ("stage", "query", "written"),
    [
        (
            MultiQuery(ScriptedLLM(["1. days off\n2. holiday entitlement"]), n=2),
            "annual leave",
            ["days off", "holiday entitlement"],
        ),
        (
            MultiQuery(ScriptedLLM(["Annual  leave?\ndays off\nDAYS OFF\nholidays"])),
            "annual leave",
            ["days off", "holidays"],
        ),
        (
            MultiQuery(ScriptedLLM(["员工年假天数\nannual leave\n如何休假"])),
            "年假",
            ["员工年假天数", "如何休假"],
        ),
        (
            Decompose(ScriptedLLM([PARTS]), n=2),
            BOTH,
            ["How long is sick leave?", "Who pays for sick leave?"],
        ),
        (
            StepBack(ScriptedLLM(["Step-back question: How is leave regulated?\nBy whom?"])),
            "Do five days carry over to March?",
            ["How is leave regulated?"],
        ),
        (StepBack(ScriptedLLM(["What is leave?"])), "what is leave", []),
    ],
    ids=["two", "repeated", "language", "parts", "step back", "already general"],
)
def test_the_query_and_the_written_queries_are_searched(
    stage: MultiQuery | Decompose | StepBack,
    query: str,
    written: list[str],
    source: FakeRetriever,
    searched: Searched,
) -> None:
    result = searched(stage >> source >> RRF(), query)
    assert queries(source) == sorted([query, *written])
    assert result.degraded == ()
    assert result.details == {"generated_queries": written, "queries_count": 1 + len(written)}
    assert node_ids(result.hits) == ["a", "b"]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (MultiQuery(ScriptedLLM(["days off"]), include_original=False), "days off"),
        (Decompose(ScriptedLLM([PARTS]), n=1, include_original=False), "How long is sick leave?"),
        (Decompose(ScriptedLLM([BOTH]), include_original=False), BOTH),
    ],
    ids=["variants", "parts", "a question with one part"],
)
def test_the_original_query_can_be_left_out(
    stage: MultiQuery | Decompose, expected: str, source: FakeRetriever
) -> None:
    result = (stage >> source >> RRF()).search(BOTH)
    assert queries(source) == [expected]
    assert result.degraded == ()


def test_the_prompt_holds_the_query_the_number_and_the_language() -> None:
    llm = ScriptedLLM(["days off"])
    (MultiQuery(llm, n=7) >> FakeRetriever() >> RRF()).retrieve("annual leave")
    (prompt,) = llm.prompts
    for part in ("annual leave", "7", "language of the question", "与问题相同的语言"):
        assert part in prompt
    assert "{" not in prompt


def test_written_queries_do_not_use_the_embedding_of_the_query() -> None:
    source = FakeRetriever([("a", 0.9)])
    query = Query("annual leave", embedding=[1.0], custom_embedding_strs=["leave"])
    (MultiQuery(ScriptedLLM(["days off"])) >> source >> RRF()).retrieve(query)
    embedded = {call.query_str: (call.embedding, call.embedding_strs) for call in source.calls}
    assert embedded == {"annual leave": ([1.0], ["leave"]), "days off": (None, ["days off"])}


def test_a_query_without_text_is_searched_without_the_llm(source: FakeRetriever) -> None:
    llm = ScriptedLLM([])
    result = (MultiQuery(llm) >> source >> RRF()).search(Query("", embedding=[1.0]))
    assert (node_ids(result.hits), result.degraded, llm.prompts) == (["a", "b"], (), [])


def test_details_of_nested_fan_outs_add_up(source: FakeRetriever) -> None:
    inner = MultiQuery(ScriptedLLM(["holidays", "vacation"]), n=1) >> source >> RRF()
    outer = MultiQuery(ScriptedLLM(["days off"]), n=1) >> inner >> RRF()
    details = outer.search("annual leave").details
    assert isinstance(details["generated_queries"], list)
    assert sorted(details["generated_queries"]) == ["days off", "holidays", "vacation"]
    assert details["queries_count"] == 6


@cases(
    ("kind", "wrong", "message"),
    [
        (MultiQuery, {"llm": None}, "pass a LlamaIndex LLM"),
        (MultiQuery, {"n": 0}, "n must be a whole number"),
        *((kind, {"prompt": "Write."}, r"\{query\}") for kind in (MultiQuery, Decompose, StepBack)),
    ],
)
def test_fan_outs_refuse_a_missing_llm_and_impossible_arguments(
    kind: type[Any], wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind(**{"llm": ScriptedLLM([]), **wrong})


TWO = ["annual leave days", "how many days off"]
LAYOUTS = {
    "plain lines": "annual leave days\nhow many days off",
    "numbers with a dot": "1. annual leave days\n2. how many days off",
    "numbers with a bracket": "1) annual leave days\n2) how many days off",
    "numbers in brackets": "(1) annual leave days\n[2] how many days off",
    "numbers without a space": "1、annual leave days\n2．how many days off",
    "circled numbers": "① annual leave days\n② how many days off",
    "hyphens": "- annual leave days\n- how many days off",
    "bullets": "• annual leave days\n•how many days off",
    "labels": "Query 1: annual leave days\nQuery 2: how many days off",
    "bold labels": "**Query 1:** annual leave days\n**Query 2:** how many days off",
    "labels on lines of their own": "Query 1:\nannual leave days\nQuery 2:\nhow many days off",
    "double quotes": '"annual leave days"\n"how many days off"',
    "commas behind quotes": '"annual leave days",\n"how many days off",',
    "all at once": '**1. "annual leave days",**\n**2. "how many days off"**',
    "reasons behind": '1. "annual leave days" - names it\n2. "how many days off" (plain words)',
    "a fence": "```\nannual leave days\nhow many days off\n```",
    "a fence that is not closed": "```text\nannual leave days\nhow many days off",
    "talk around a fence": "Sure!\n```\nannual leave days\nhow many days off\n```\nGood luck",
    "a heading": "Here are the queries:\nannual leave days\nhow many days off",
    "a heading without a colon": "Here are 2 queries\nannual leave days\nhow many days off",
    "a bold heading": "**Queries:**\n- annual leave days\n- how many days off",
    "talk around a list": "I thought of two.\n1. annual leave days\n2. how many days off\nBye",
    "talk around plain lines": (
        "I have rephrased your question.\n\nannual leave days\nhow many days off\n\n"
        "These queries cover synonyms.\nLet me know if you need more!"
    ),
    "a sentence behind plain lines": "annual leave days\nhow many days off\n\nThe second is plain.",
    "JSON": '["annual leave days", "how many days off"]',
    "JSON in a fence": '```json\n{"queries": ["annual leave days", "how many days off"]}\n```',
    "broken JSON": '["annual leave days", "how many days off",]',
    "a thought before": "<think>1. sick leave?</think>annual leave days\nhow many days off",
    "tags": "<query>annual leave days</query><query>how many days off</query>",
}


def test_queries_are_read_from_every_layout_of_an_answer(subtests: pytest.Subtests) -> None:
    for name, answer in LAYOUTS.items():
        with subtests.test(name):
            assert queries_in(answer) == TWO


def test_chinese_queries_are_found(subtests: pytest.Subtests) -> None:
    for answer in [
        "1、员工年假天数\n2、如何休假",
        "一、员工年假天数\n二、如何休假",
        "查询1：员工年假天数\n查询2：如何休假",
        "以下是两个查询：\n员工年假天数\n如何休假",
        "好的，\n员工年假天数\n如何休假\n希望这些对您有帮助。",
        "「员工年假天数」\n「如何休假」",
        "1．员工年假天数；\n2．如何休假。",
    ]:
        with subtests.test(answer=answer):
            assert [query.rstrip("。") for query in queries_in(answer)] == [
                "员工年假天数",
                "如何休假",
            ]


def test_a_query_with_numbers_or_signs_is_not_changed(subtests: pytest.Subtests) -> None:
    for query in [
        "3.11 release notes",
        "24:00 or 00:00",
        "2024 budget",
        "what does list[int] mean?",
        "C++ and C#",
        '"sick leave" or "annual leave"',
        "I cannot log in to the portal",
        "What is U.S. law on leave?",
        "Explain annual leave.",
        "注意事项有哪些",
        "parse_filters 怎么用？",
    ]:
        with subtests.test(query=query):
            assert queries_in(query) == [query]
            assert queries_in(f"1. {query}\n2. {query}") == [query, query]


def test_an_answer_without_a_query_gives_none(subtests: pytest.Subtests) -> None:
    for answer in [
        "",
        "0",
        "1.\n2.\n3.",
        "[]",
        '{"queries": []}',
        "```\n```",
        "<think>annual leave",
        "Here are the queries:",
        "I'm sorry, but I can't help with that.",
        "1. I'm sorry, but I can't help with that.",
        "抱歉，我无法回答这个问题。",
        "The question is about leave. It asks for days. Nothing else is needed.",
        "annual leave and days off " * 30,
    ]:
        with subtests.test(answer=answer):
            assert queries_in(answer) == []


@given(st.text())
def test_any_text_is_read_without_an_error(answer: str) -> None:
    assert all(query and query == query.strip() for query in queries_in(answer))


def test_distinct_ignores_case_spaces_width_and_final_punctuation() -> None:
    texts = [
        "Annual leave?",
        "annual  LEAVE",
        "ａｎｎｕａｌ　ｌｅａｖｅ",
        "annual leave.",
        "days off",
    ]
    assert distinct(texts) == ["Annual leave?", "days off"]
    assert distinct(["年假 天数？", "年假天数"]) == ["年假 天数？"]


@cases(
    ("text", "query", "kept"),
    [
        ("年假有几天", "员工年假", True),
        ("annual leave", "员工年假", False),
        ("what is BM25", "BM25 是什么", False),
        ("BM25 的 k1 参数如何设置", "BM25 k1 参数", True),
        ("如何使用 parse_filters 函数", "how to use parse_filters", False),
        ("有給休暇", "ゆうきゅうは何日ですか", True),
        ("vacances d'été", "summer leave", True),
        ("annual leave", "42?", True),
    ],
)
def test_a_variant_keeps_the_language_as_far_as_the_script_tells(
    text: str, query: str, *, kept: bool
) -> None:
    assert keeps_language(text, query) is kept
