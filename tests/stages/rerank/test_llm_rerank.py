"""`LLMRerank`: a language model judges, and is checked."""

import asyncio
import time
from typing import Any

import pytest
from llama_index.core.llms import CompletionResponse
from llama_index.core.postprocessor import LLMRerank as StockRerank
from pydantic import PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, node_ids, score_of
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.stages.rerank.llm import LLMRerank
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import each_case
from tests.meeting import Meeting

ROWS = [("a", 0.9, "travel"), ("b", 0.8, "annual {leave}"), ("c", 0.7, "sick leave")]
USELESS: dict[str, ScriptedAnswer] = {
    "empty": "",
    "a fence": "```\n```",
    "a zero": "0",
    "a nine": "9",
    "prose": "The second one explains it best.",
    "broken JSON": '[{"doc":',
    "a thought cut off": "<think>Doc: 1, Relevance: 9",
    "document 0": "Doc: 0, Relevance: 9",
    "document 4": "Doc: 4, Relevance: 9",
    "an exception": ConnectionError("no route to host"),
}


class Judge(ScriptedLLM):
    """Says one thing of a batch with sick leave in it, and another of every other."""

    _said: tuple[str, str] = PrivateAttr()

    def __init__(self, *, sick: str, other: str) -> None:
        super().__init__([])
        self._said = (sick, other)

    def _next(self, prompt: str) -> tuple[float, str | BaseException]:
        return 0.0, self._said["sick" not in prompt]


class MeetingLLM(ScriptedLLM):
    """Answers once all of its meeting were asked."""

    _meeting: Meeting = PrivateAttr()

    def __init__(self, answers: list[ScriptedAnswer], meeting: Meeting) -> None:
        super().__init__(answers)
        self._meeting = meeting

    def complete(self, prompt: str, formatted: bool = False, **_: object) -> CompletionResponse:
        self._meeting.join()
        return super().complete(prompt, formatted=formatted)  # type: ignore[no-any-return]

    async def acomplete(
        self, prompt: str, formatted: bool = False, **_: object
    ) -> CompletionResponse:
        await self._meeting.ajoin()
        return await super().acomplete(prompt, formatted=formatted)  # type: ignore[no-any-return]


def searched(stage: LLMRerank, query: str = "annual leave", *, asynchronous: bool) -> SearchResult:
    pipeline = FakeRetriever(ROWS) >> stage
    return asyncio.run(pipeline.asearch(query)) if asynchronous else pipeline.search(query)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_hits_come_by_relevance(*, asynchronous: bool) -> None:
    llm = ScriptedLLM(["Doc: 2, Relevance: 9\nDoc: 1, Relevance: 2\nDoc: 3, Relevance: 5"])
    result = searched(LLMRerank(llm), asynchronous=asynchronous)
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("b", 0.9), ("c", 0.5), ("a", 0.2)]
    assert result.degraded == ()


def test_the_model_sees_the_numbered_documents_and_the_query_as_they_are() -> None:
    llm = ScriptedLLM(["Doc: 1, Relevance: 1"])
    (FakeRetriever(ROWS) >> LLMRerank(llm)).retrieve("what is {query}?")
    (prompt,) = llm.prompts
    assert "Document 2:\nannual {leave}\n\nDocument 3:\nsick leave" in prompt
    assert "Query: what is {query}?" in prompt


@each_case("answer", USELESS.values(), ids=USELESS)
def test_m3_the_order_stays_when_nothing_usable_is_said(
    answer: ScriptedAnswer, *, asynchronous: bool
) -> None:
    result = searched(LLMRerank(ScriptedLLM([answer])), asynchronous=asynchronous)
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("a", 0.9), ("b", 0.8), ("c", 0.7)]
    (degraded,) = result.degraded
    assert degraded.where == "LLMRerank"


def test_m3_document_0_is_not_the_last_as_it_is_in_stock() -> None:
    answer = "Doc: 0, Relevance: 9\nDoc: 2, Relevance: 4"
    stock = StockRerank(llm=ScriptedLLM([answer]))
    wrapped = stock.postprocess_nodes(FakeRetriever(ROWS).hits, query_str="annual leave")
    assert node_ids(wrapped)[0] == "c"
    ours = searched(LLMRerank(ScriptedLLM([answer])), asynchronous=False)
    assert (ours.hits[0].node_id, ours.hits[0].score) == ("b", 0.4)


def test_m3_duplicates_count_once_and_no_hit_is_lost() -> None:
    llm = ScriptedLLM(["Doc: 3, Relevance: 8\nDoc: 3, Relevance: 1"])
    found = searched(LLMRerank(llm), asynchronous=False).hits
    assert node_ids(found) == ["c", "a", "b"]
    assert [score_of(hit) for hit in found] == [0.8, 0.0, 0.0]


def test_among_equal_relevances_the_order_is_that_before() -> None:
    rows = [("c", 0.9), ("b", 0.8), ("a", 0.7)]
    llm = ScriptedLLM(["1: 10\n2: 10\n3: 10"])
    found = (FakeRetriever(rows) >> LLMRerank(llm)).retrieve("q")
    assert node_ids(found) == ["c", "b", "a"]
    scores = [score_of(hit) for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert scores == pytest.approx([1.0, 1.0, 1.0])
    assert max(scores) <= 1.0


def test_m3_batches_are_asked_at_the_same_time(*, asynchronous: bool) -> None:
    llm = MeetingLLM(["Doc: 1, Relevance: 5"] * 3, Meeting(3))
    stage = LLMRerank(llm, batch_size=1)
    result = searched(stage, asynchronous=asynchronous)
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert len(llm.prompts) == 3


def test_numbers_count_from_one_in_every_batch() -> None:
    llm = Judge(sick="Doc: 1, Relevance: 9", other="Doc: 2, Relevance: 4")
    found = searched(LLMRerank(llm, batch_size=2), asynchronous=False).hits
    assert [(hit.node_id, hit.score) for hit in found] == [("c", 0.9), ("b", 0.4), ("a", 0.0)]


def test_one_useless_batch_leaves_the_order_as_it_was() -> None:
    llm = Judge(sick="Doc: 1, Relevance: 9", other="none")
    result = searched(LLMRerank(llm, batch_size=2), asynchronous=False)
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert len(result.degraded) == 1


def test_an_answer_that_is_late_is_not_waited_for(*, asynchronous: bool) -> None:
    llm = ScriptedLLM([(30.0, "Doc: 3, Relevance: 9")])
    started = time.monotonic()
    result = searched(LLMRerank(llm, timeout_s=0.05), asynchronous=asynchronous)
    assert time.monotonic() - started < 10
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert "did not answer" in result.degraded[0].reason


def test_it_takes_no_more_than_its_share_of_the_querys_time() -> None:
    llm = ScriptedLLM([(30.0, "Doc: 3, Relevance: 9")])
    result = (FakeRetriever(ROWS) >> LLMRerank(llm)).search("q", timeout_s=0.3)
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert [part.where for part in result.degraded] == ["LLMRerank"]


def test_long_documents_are_shown_from_their_beginning() -> None:
    llm = ScriptedLLM(["Doc: 1, Relevance: 1"])
    stage = LLMRerank(llm, max_characters=5)
    (FakeRetriever([("a", 0.9, "beginning and end")]) >> stage).retrieve("q")
    assert "Document 1:\nbegin\n" in llm.prompts[0]


def test_only_so_many_are_kept() -> None:
    llm = ScriptedLLM(["[3] > [1] > [2]"])
    found = searched(LLMRerank(llm, top_k=2), asynchronous=False).hits
    assert node_ids(found) == ["c", "a"]


def test_an_empty_ranking_asks_nobody() -> None:
    llm = ScriptedLLM([])
    assert (FakeRetriever() >> LLMRerank(llm)).retrieve(Query("q")) == []
    assert llm.prompts == []


@each_case(
    "wrong",
    [
        {"llm": None},
        {"top_k": 0},
        {"batch_size": 0},
        {"max_characters": 0},
        {"timeout_s": 0},
        {"prompt": "Judge {documents}"},
        {"prompt": "Judge for {query}"},
    ],
)
def test_bad_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        LLMRerank(**{"llm": ScriptedLLM([]), **wrong})


def test_it_tells_what_it_is() -> None:
    stage = LLMRerank(ScriptedLLM([]), top_k=5)
    assert repr(stage) == "LLMRerank(ScriptedLLM(...), top_k=5)"
    assert stage.score_kind == "probability"


@each_case("within", ["stage", "retriever"], side_by_side=True)
def test_the_llm_gets_all_of_the_time_that_the_reranker_has(within: str) -> None:
    llm = ScriptedLLM([(0.6, "Doc: 2, Relevance: 9\nDoc: 1, Relevance: 1")])
    source = FakeRetriever([("a", 0.9, "travel"), ("b", 0.8, "annual leave")])
    if within == "stage":
        result = (source >> LLMRerank(llm, timeout_s=1)).search("annual leave")
    else:
        result = RerankRetriever(source, LLMRerank(llm), timeout_s=1).search("annual leave")
    assert (node_ids(result.hits), result.degraded) == (["b", "a"], ())


def test_an_llm_that_takes_longer_than_the_reranker_has_costs_no_more_than_that() -> None:
    llm = ScriptedLLM([(5.0, "Doc: 2, Relevance: 9")])
    source = FakeRetriever([("a", 0.9, "travel"), ("b", 0.8, "annual leave")])
    started = time.monotonic()
    result = (source >> LLMRerank(llm, timeout_s=0.6)).search("annual leave")
    assert time.monotonic() - started < 4
    assert (node_ids(result.hits), len(result.degraded)) == (["a", "b"], 1)
