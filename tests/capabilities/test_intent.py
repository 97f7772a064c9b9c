"""The cascade of rules, embedding and LLM, and what it feeds."""

import asyncio
from typing import Any

import pytest
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext import RouteRule, RuleSelector, Top
from llama_retrieval_ext.capabilities import IntentRecognizer
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.retrievers.intent import (
    IntentAdaptive,
    IntentAdaptiveRetriever,
    IntentProfile,
    default_intent_rules,
)
from llama_retrieval_ext.testing import FakeEmbedding, FixedRetriever, ScriptedLLM
from tests.cases import cases

INTENTS = {
    "report": ["writing a weekly report", "summarise my week", "what did I do"],
    "search": ["finding a document", "find the file about pumps"],
}
RULES = RuleSelector([RouteRule("report", any_of=["weekly report"], confidence=0.95)])


def recognizer(*answers: object, **options: object) -> IntentRecognizer:
    llm = ScriptedLLM(answers)  # type: ignore[arg-type]
    return IntentRecognizer(
        INTENTS,
        rules=RULES,
        embed_model=FakeEmbedding(),
        llm=llm,
        **options,  # type: ignore[arg-type]
    )


@cases(
    ("query", "answers", "name", "reason"),
    [
        ("My weekly report please", [], "report", "a rule holds"),
        ("find the file about pumps", [], "search", "1.00"),
        ("gimme doc 17", ["<think>1?</think>2"], "search", "the LLM chose it"),
        ("hello", ["none"], "general", "no step recognised an intent"),
    ],
)
def test_a_step_is_called_only_if_those_before_are_not_sure(
    query: str, answers: list[str], name: str, reason: str
) -> None:
    found = recognizer(*answers).recognize(query)
    assert (found.name, found.reason) == (name, reason)
    assert (found.confidence > 0) == (name != "general")
    assert found == asyncio.run(recognizer(*answers).arecognize(query))


def test_an_unsure_answer_counts_if_the_next_step_fails() -> None:
    found = recognizer(RuntimeError("503")).recognize("what did we find")
    assert found.name == "report"
    assert 0.5 < found.confidence < 0.85
    assert "503" in found.degraded[0]


def test_the_default_intents_are_those_of_the_default_rules() -> None:
    rules = {rule.route for rule in default_intent_rules().rules}
    assert {intent.name for intent in IntentRecognizer().intents} == rules


def test_a_recognizer_is_a_selector_of_adaptive_retrieval() -> None:
    profiles = {"report": IntentProfile("reports", refine=(Top(1),)), "search": IntentProfile("s")}
    adaptive = IntentAdaptive(profiles, selector=recognizer())
    rows = [("a", 0.9), ("b", 0.5)]
    result = (FixedRetriever(rows) >> adaptive).search("My weekly report")
    assert [hit.node_id for hit in result.hits] == ["a"]
    assert "a rule holds" in str(result.details["intents"])
    legs = {"vector": FixedRetriever(rows), "keyword": FixedRetriever(rows)}
    retriever = IntentAdaptiveRetriever(legs, selector=IntentRecognizer())
    assert "comparison" in str(retriever.search("Qdrant versus Milvus").details)
    with pytest.raises(ConfigurationError, match="none of them"):
        IntentAdaptive({"other": IntentProfile("other")}, selector=recognizer())


def test_a_recognizer_is_a_llama_index_selector() -> None:
    tools = [ToolMetadata(name=name, description=name) for name in ("search", "report")]
    selector = recognizer().as_llama_index_selector()
    assert selector.select(tools, "My weekly report").ind == 1
    assert asyncio.run(selector.aselect(tools, "find the file about pumps")).ind == 0


@cases(
    "wrong",
    [{"intents": {}}, {"intents": {"a": ""}}, {"intents": {"a": []}}, {"min_confidence": 2}],
)
def test_bad_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        IntentRecognizer(**wrong)
