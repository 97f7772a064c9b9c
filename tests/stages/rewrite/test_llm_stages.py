"""Whatever a model answers, or does not, the query itself is still answered."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM

from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, node_ids
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.hyde import HyDE, HyDEFanOut
from llama_retrieval_ext.stages.rewrite.multi_query import Decompose, MultiQuery, StepBack
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import each_case
from tests.patience import unless_stalled

Build = Callable[[LLM, BaseRetriever], Retriever]
BUILDS: dict[str, Build] = {
    "HyDE": lambda llm, source: HyDE(llm) >> source,
    "HyDE fan-out": lambda llm, source: HyDEFanOut(llm, include_original=False) >> source >> RRF(),
    "multi-query": lambda llm, source: MultiQuery(llm, include_original=False) >> source >> RRF(),
    "step-back": lambda llm, source: StepBack(llm) >> source >> RRF(),
    "decompose": lambda llm, source: Decompose(llm, include_original=False) >> source >> RRF(),
    "HyDE retriever": lambda llm, source: HyDERetriever(source, llm),
    "multi-query retriever": lambda llm, source: MultiQueryRetriever(source, llm),
}
BUILT = each_case("build", BUILDS.values(), ids=BUILDS)
USELESS: dict[str, ScriptedAnswer] = {
    "empty": "",
    "blank": " \n",
    "a number": "0",
    "another number": "9",
    "numbers": "1.\n2.\n3.",
    "signs": "...",
    "an empty fence": "```\n```",
    "a refusal": "I'm sorry, but I can't help with that.",
    "a thought": "<think>The user wants leave</think>",
    "a thought cut off": "<think>The user wants",
    "an exception": ConnectionError("no route to host"),
    "a time-out": TimeoutError("the model timed out"),
}
USEFUL: dict[str, str] = {
    "plain": "How much vacation is there",
    "numbered": "1. How much vacation is there",
    "fenced": "```\nHow much vacation is there\n```",
    "thought over": "<think>leave?</think>How much vacation is there",
    "JSON": '["How much vacation is there"]',
    "broken JSON": '["How much vacation is there", "and ho',
    "prose": "The question is about vacation and how much of it there is",
}


@BUILT
@each_case("answer", USELESS.values(), ids=USELESS)
def test_f14_without_help_the_query_is_asked_as_it_is(
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
@each_case("answer", USEFUL.values(), ids=USEFUL)
def test_a_useful_answer_is_used_in_whatever_form_it_comes(
    answer: str, build: Build, searched: Callable[[Retriever, Query], SearchResult]
) -> None:
    source = FakeRetriever([("a", 0.9)])
    result = searched(build(ScriptedLLM([answer]), source), Query("annual leave"))
    assert node_ids(result.hits) == ["a"]
    assert result.degraded == ()
    texts = {text for call in source.calls for text in call.embedding_strs}
    assert any("vacation" in text for text in texts)
    assert not any("think" in text or "`" in text for text in texts)


@unless_stalled
def test_a_late_model_leaves_time_for_the_query_itself(
    searched: Callable[[Retriever, Query], SearchResult],
) -> None:
    def ask(build: Build) -> SearchResult:
        source = FakeRetriever([("a", 0.9)], delay_s=0.05)
        return searched(build(ScriptedLLM([(9.0, "late")]), source), Query("leave", timeout_s=0.8))

    with ThreadPoolExecutor(len(BUILDS)) as pool:  # all wait at the same time
        results = dict(zip(BUILDS, pool.map(ask, BUILDS.values()), strict=True))
    for name, result in results.items():
        assert node_ids(result.hits) == ["a"], name
        assert "DeadlineExceededError" in result.degraded[0].reason


@BUILT
def test_what_was_degraded_is_asked_again_and_a_good_answer_is_not(
    build: Build, searched: Callable[[Retriever, Query], SearchResult]
) -> None:
    llm = ScriptedLLM([ConnectionError(), "0", "How much vacation is there"])
    retriever = build(llm, FakeRetriever([("a", 0.9)]))
    degraded = [bool(searched(retriever, Query("annual leave")).degraded) for _ in range(4)]
    assert degraded == [True, True, False, False]
    assert len(llm.prompts) == 3


@BUILT
def test_the_query_that_came_in_is_not_changed(build: Build) -> None:
    query = Query("annual leave", custom_embedding_strs=["leave"])
    build(ScriptedLLM(["How much vacation is there"]), FakeRetriever([("a", 0.9)])).retrieve(query)
    assert query == Query("annual leave", custom_embedding_strs=["leave"])
