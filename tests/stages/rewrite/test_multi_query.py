"""Fan-outs written by a language model: MultiQuery, Decompose, StepBack."""

from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.multi_query import Decompose, MultiQuery, StepBack
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
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


@pytest.mark.parametrize(
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
