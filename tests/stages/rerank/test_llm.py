"""LLMRerank, and the judgements that it reads from answers of language models."""

# ruff: noqa: RUF001 - full-width punctuation on purpose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.stages.rerank.llm import LLMRerank, relevances_in
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import cases
from tests.meeting import Meeting
from tests.patience import soon, unless_stalled
from tests.searching import Searched

JUDGEMENTS = {
    "Doc: 3, Relevance: 7\nDoc: 1, Relevance: 5": {2: 0.7, 0: 0.5},
    "**Document 3** (relevance 7/10)\n**Document 1**: 5": {2: 0.7, 0: 0.5},
    "Doc: 3 (Policy 2024), Relevance: 7": {2: 0.7},
    "Doc: 3\nRelevance: 7\nDoc: 1\nRelevance: 5": {2: 0.7, 0: 0.5},
    "| Doc 3 | 7 |\n| Doc 1 | 5 |": {2: 0.7, 0: 0.5},
    "| Doc | Relevance |\n|---|---|\n| 3 | 7 |\n| 1 | 5 |": {2: 0.7, 0: 0.5},
    "文档：3，相关性：7\n文档 1：5": {2: 0.7, 0: 0.5},
    "3: 7\n1: 5": {2: 0.7, 0: 0.5},
    "[3] 7.5/10": {2: 0.75},
    "Here you are:\n```\nDoc: 3, Relevance: 7\n```\nI hope this helps!": {2: 0.7},
    '```json\n[{"document_number": 3, "relevance": 7}]\n```': {2: 0.7},
    '{"documents": [{"id": "3", "score": "7"}]}': {2: 0.7},
    '{"3": 7, "1": 5}': {2: 0.7, 0: 0.5},
    '{"doc": 3, "relevance": 7}\n{"doc": 1, "relevance": 5}': {2: 0.7, 0: 0.5},
    "[3] > [1]": {2: 1.0, 0: 0.5},
    "Ranking: [3, 1]": {2: 1.0, 0: 0.5},
    "<think>Doc: 1, Relevance: 10</think>Doc: 3, Relevance: 7": {2: 0.7},
    "Doc: 3, Relevance: 10\nDoc: 3, Relevance: 1": {2: 1.0},
}
NO_JUDGEMENT = [
    # Read in half: a document is named whose relevance is missing, in words or off the scale.
    '[{"doc": 3, "relevance": 7}, {"doc": 1, "rel',
    "[3, 1",
    "Doc: 1, unsure; Doc: 3, Relevance: 7",
    "Doc: 1\n2. Doc: 3, Relevance: 7",
    "Document 3 is the most relevant (9), then document 1 (4).",
    "Doc: 3, Relevance: 90%\nDoc: 1, Relevance: 4",
    "3: high\n1: 4",
    '{"3": "high", "1": 4}',
    '[{"id": 3, "score": 95}, {"id": 1, "score": 4}]',
    "",
    "9",
    "Doc: 0, Relevance: 9",
    "Doc: 9, Relevance: 9",
    "Doc: 1.5, Relevance: 9",
    "Doc: 1, Relevance: -3",
    "Doc: 1, Relevance: 95",
    "I think document 2 explains the 5 days best.",
    "I'm sorry, but I can't help with that.",
    "<think>Doc: 1, Relevance: 10",
    '{"relevance": 7}',
    '{"1": "all"}',
]


def test_judgements_are_read_from_every_layout_of_an_answer(subtests: pytest.Subtests) -> None:
    for answer, expected in JUDGEMENTS.items():
        with subtests.test(answer=answer):
            assert relevances_in(answer, documents=3) == pytest.approx(expected)


def test_an_answer_that_names_no_document_has_no_judgements(subtests: pytest.Subtests) -> None:
    for answer in NO_JUDGEMENT:
        with subtests.test(answer=answer):
            assert relevances_in(answer, documents=3) == {}


noise = st.text(alphabet=list('doc DOC:,[]{}"relevance0123456789.-\n>/'), max_size=20)
lines = st.builds(
    "{}Doc: {}, Relevance: {}".format, noise, st.integers(-2, 15), st.integers(-9, 99)
)


@pytest.mark.slow
@given(st.lists(lines | noise, max_size=9).map("\n".join), st.integers(1, 12))
def test_only_documents_in_the_prompt_are_judged(answer: str, documents: int) -> None:
    judged = relevances_in(f"{answer}\nDoc: 1, Relevance: 5", documents=documents)
    assert set(judged) <= set(range(documents))
    assert all(0.0 <= relevance <= 1.0 for relevance in judged.values())


@given(st.permutations(range(8)), st.lists(st.integers(0, 10), min_size=8, max_size=8))
def test_an_answer_in_the_requested_layout_is_read_exactly(
    order: list[int], scores: list[int]
) -> None:
    pairs = dict(zip(order, scores, strict=True))
    answer = "\n".join(f"Doc: {place + 1}, Relevance: {score}" for place, score in pairs.items())
    found = relevances_in(answer, documents=8)
    assert list(found) == order
    assert found == {place: score / 10 for place, score in pairs.items()}


@pytest.mark.parametrize("part", ["doc 1 ", "[", "1 > ", "{", "relevance ", "doc: 1, relevance"])
@pytest.mark.slow
def test_a_very_long_answer_is_read(part: str) -> None:
    assert len(relevances_in(part * 20_000, documents=3)) <= 3


ROWS = [("a", 0.9, "travel"), ("b", 0.8, "annual {leave}"), ("c", 0.7, "sick leave")]


SOURCE = FakeRetriever(ROWS)


def test_llm_rerank_orders_by_relevance(searched: Searched) -> None:
    llm = ScriptedLLM(["Doc: 2, Relevance: 9\nDoc: 1, Relevance: 2\nDoc: 3, Relevance: 5"])
    result = searched(SOURCE >> LLMRerank(llm), "annual leave")
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("b", 0.9), ("c", 0.5), ("a", 0.2)]
    assert result.degraded == ()
    assert LLMRerank(llm).score_kind == "probability"


def test_the_prompt_holds_the_numbered_documents_and_the_query_verbatim() -> None:
    llm = ScriptedLLM(["Doc: 1, Relevance: 1"])
    (SOURCE >> LLMRerank(llm)).retrieve("what is {query}?")
    (prompt,) = llm.prompts
    assert "Document 2:\nannual {leave}\n\nDocument 3:\nsick leave" in prompt
    assert "Query: what is {query}?" in prompt


@cases("answer", ["The second is best.", "```\n```", ConnectionError("no route")])
def test_an_unusable_answer_of_the_llm_leaves_the_order_unchanged(
    answer: ScriptedAnswer, searched: Searched
) -> None:
    result = searched(SOURCE >> LLMRerank(ScriptedLLM([answer])), "annual leave")
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("a", 0.9), ("b", 0.8), ("c", 0.7)]
    (degraded,) = result.degraded
    assert degraded.where == "LLMRerank"


def test_a_repeated_judgement_counts_once_and_no_hit_is_lost() -> None:
    llm = ScriptedLLM(["Doc: 3, Relevance: 8\nDoc: 3, Relevance: 1"])
    found = (SOURCE >> LLMRerank(llm)).search("annual leave").hits
    assert node_ids(found) == ["c", "a", "b"]
    assert [score_of(hit) for hit in found] == [0.8, 0.0, 0.0]


def test_hits_of_equal_relevance_keep_their_order() -> None:
    rows = [("c", 0.9), ("b", 0.8), ("a", 0.7)]
    llm = ScriptedLLM(["1: 10\n2: 10\n3: 10"])
    found = (FakeRetriever(rows) >> LLMRerank(llm)).retrieve("q")
    assert node_ids(found) == ["c", "b", "a"]
    scores = [score_of(hit) for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert scores == pytest.approx([1.0, 1.0, 1.0])
    assert max(scores) <= 1.0


def test_batches_are_judged_concurrently() -> None:
    def answer(_: str) -> str:
        meeting.join()
        return "Doc: 1, Relevance: 5"

    meeting, llm = Meeting(3), ScriptedLLM(answer)
    result = (SOURCE >> LLMRerank(llm, batch_size=1)).search("annual leave")
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert len(llm.prompts) == 3


def test_documents_are_numbered_from_one_in_every_batch() -> None:
    llm = ScriptedLLM(lambda prompt: f"Doc: {'1' if 'sick' in prompt else '2'}, Relevance: 9")
    found = (SOURCE >> LLMRerank(llm, batch_size=2)).search("annual leave").hits
    assert [(hit.node_id, hit.score) for hit in found] == [("b", 0.9), ("c", 0.9), ("a", 0.0)]


def test_one_unusable_batch_leaves_the_order_unchanged() -> None:
    llm = ScriptedLLM(lambda prompt: "Doc: 1, Relevance: 9" if "sick" in prompt else "none")
    result = (SOURCE >> LLMRerank(llm, batch_size=2)).search("annual leave")
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert len(result.degraded) == 1


def test_a_late_llm_leaves_the_order_unchanged(searched: Searched) -> None:
    llm = ScriptedLLM([(60.0, "Doc: 3, Relevance: 9")])
    with soon():
        result = searched(SOURCE >> LLMRerank(llm, timeout_s=0.05), "annual leave")
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert "did not answer" in result.degraded[0].reason


def test_long_documents_are_cut_in_the_prompt() -> None:
    llm = ScriptedLLM(["Doc: 1, Relevance: 1"])
    stage = LLMRerank(llm, max_characters=5)
    (FakeRetriever([("a", 0.9, "beginning and end")]) >> stage).retrieve("q")
    assert "Document 1:\nbegin\n" in llm.prompts[0]


def test_llm_rerank_keeps_top_k_hits() -> None:
    llm = ScriptedLLM(["[3] > [1] > [2]"])
    found = (SOURCE >> LLMRerank(llm, top_k=2)).search("annual leave").hits
    assert node_ids(found) == ["c", "a"]


def test_the_llm_is_not_called_for_an_empty_ranking() -> None:
    llm = ScriptedLLM([])
    assert (FakeRetriever() >> LLMRerank(llm)).retrieve(Query("q")) == []
    assert llm.prompts == []


@cases(
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
def test_llm_rerank_refuses_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        LLMRerank(**{"llm": ScriptedLLM([]), **wrong})


@pytest.mark.slow
@pytest.mark.parametrize("within", ["stage", "retriever"])
@unless_stalled
def test_the_llm_gets_the_whole_timeout_of_the_reranker(within: str) -> None:
    llm = ScriptedLLM([(0.3, "Doc: 2, Relevance: 9\nDoc: 1, Relevance: 1")])
    source = FakeRetriever([("a", 0.9, "travel"), ("b", 0.8, "annual leave")])
    if within == "stage":
        result = (source >> LLMRerank(llm, timeout_s=1)).search("annual leave")
    else:
        result = RerankRetriever(source, LLMRerank(llm), timeout_s=1).search("annual leave")
    assert (node_ids(result.hits), result.degraded) == (["b", "a"], ())
