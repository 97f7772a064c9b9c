"""All stages and retrievers that use an LLM answer the query whatever the LLM answers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM

from llama_retrieval_ext import RRF, Query, Retriever, SearchResult
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stages import Decompose, HyDE, HyDEFanOut, MultiQuery, StepBack
from llama_retrieval_ext.testing import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import cases
from tests.patience import unless_stalled

Build = Callable[[LLM, BaseRetriever], Retriever]
BUILDS: dict[str, Build] = {
    "HyDE": lambda llm, source: HyDE(llm) >> source,
    "HyDE fan-out": lambda llm, source: HyDEFanOut(llm, include_original=False) >> source >> RRF(),
    "multi-query": lambda llm, source: MultiQuery(llm, include_original=False) >> source >> RRF(),
    "step-back": lambda llm, source: StepBack(llm) >> source >> RRF(),
    "decompose": lambda llm, source: Decompose(llm, include_original=False) >> source >> RRF(),
}
BUILT = pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
UNUSABLE: list[ScriptedAnswer] = [
    *("9", "I'm sorry, but I can't help with that.", "<think>The user wants"),
    '["How much vacation is there", "and ho',
    ConnectionError("no route to host"),
]
USABLE = [
    "1. How much vacation is there",
    "<think>leave?</think>```\nHow much vacation is there\n```",
    "The question is about vacation and how much of it there is",
]


@BUILT
@cases("answer", UNUSABLE)
def test_an_unusable_answer_leaves_the_query_as_it_is(
    answer: ScriptedAnswer, build: Build, searched: Callable[[Retriever, Query], SearchResult]
) -> None:
    source = FakeRetriever([("a", 0.9)])
    result = searched(build(ScriptedLLM([answer]), source), Query("annual leave"))
    assert node_ids(result.hits) == ["a"]
    assert [(call.query_str, call.embedding_strs) for call in source.calls] == [
        ("annual leave", ["annual leave"])
    ]
    (missing,) = result.degraded
    assert missing.where in {"HyDE", "MultiQuery", "StepBack", "Decompose"}
    assert missing.reason


@BUILT
@cases("answer", USABLE)
def test_a_usable_answer_is_read_from_any_layout(
    answer: str, build: Build, searched: Callable[[Retriever, Query], SearchResult]
) -> None:
    source = FakeRetriever([("a", 0.9)])
    result = searched(build(ScriptedLLM([answer]), source), Query("annual leave"))
    assert node_ids(result.hits) == ["a"]
    assert result.degraded == ()
    texts = {text for call in source.calls for text in call.embedding_strs}
    assert any("vacation" in text for text in texts)
    assert not any("think" in text or "`" in text for text in texts)


@pytest.mark.slow
@unless_stalled
def test_a_late_llm_leaves_time_for_the_query(
    searched: Callable[[Retriever, Query], SearchResult],
) -> None:
    def run(build: Build) -> SearchResult:
        source = FakeRetriever([("a", 0.9)], delay_s=0.05)
        return searched(build(ScriptedLLM([(9.0, "late")]), source), Query("leave", timeout_s=0.8))

    with ThreadPoolExecutor(len(BUILDS)) as pool:  # all wait at the same time
        results = dict(zip(BUILDS, pool.map(run, BUILDS.values()), strict=True))
    for name, result in results.items():
        assert node_ids(result.hits) == ["a"], name
        assert "DeadlineExceededError" in result.degraded[0].reason


@BUILT
def test_usable_answers_are_cached_and_failures_are_not(
    build: Build, searched: Callable[[Retriever, Query], SearchResult]
) -> None:
    llm = ScriptedLLM([ConnectionError(), "0", "How much vacation is there"])
    retriever = build(llm, FakeRetriever([("a", 0.9)]))
    degraded = [bool(searched(retriever, Query("annual leave")).degraded) for _ in range(4)]
    assert degraded == [True, True, False, False]
    assert len(llm.prompts) == 3
