"""What language models say of documents, in all the ways they say it."""
# ruff: noqa: RUF001 - full-width punctuation on purpose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.stages.rerank.llm import relevances_in
from tests.cases import each_case

USABLE = {
    "Doc: 3, Relevance: 7\nDoc: 1, Relevance: 5": {2: 0.7, 0: 0.5},
    "1. Doc: 3, Relevance: 7\n2. Doc: 1, Relevance: 5": {2: 0.7, 0: 0.5},
    "**Document 3** (relevance 7/10)\n**Document 1**: 5": {2: 0.7, 0: 0.5},
    "Doc: 3 (Policy 2024), Relevance: 7": {2: 0.7},
    "Document 3: the score is 7 out of 10": {2: 0.7},
    "Doc: 3\nRelevance: 7\nDoc: 1\nRelevance: 5": {2: 0.7, 0: 0.5},
    "Doc: 3, Relevance: 7; Doc: 1, Relevance: 5": {2: 0.7, 0: 0.5},
    "| Doc 3 | 7 |\n| Doc 1 | 5 |": {2: 0.7, 0: 0.5},
    "文档：3，相关性：7\n文档 1：5": {2: 0.7, 0: 0.5},
    "3: 7\n1: 5": {2: 0.7, 0: 0.5},
    "[3] 7.5/10": {2: 0.75},
    "Here you are:\n```\nDoc: 3, Relevance: 7\n```\nI hope this helps!": {2: 0.7},
    '```json\n[{"document_number": 3, "relevance": 7}]\n```': {2: 0.7},
    '{"documents": [{"id": "3", "score": "7"}]}': {2: 0.7},
    '{"3": 7, "1": 5}': {2: 0.7, 0: 0.5},
    '{"doc": 3, "relevance": 7}\n{"doc": 1, "relevance": 5}': {2: 0.7, 0: 0.5},
    '[{"doc": 3, "relevance": 7}, {"doc": 1, "rel': {2: 0.7},
    "[3] > [1]": {2: 1.0, 0: 0.5},
    "3 > 1": {2: 1.0, 0: 0.5},
    "Ranking: [3, 1]": {2: 1.0, 0: 0.5},
    "<think>Doc: 1, Relevance: 10</think>Doc: 3, Relevance: 7": {2: 0.7},
    "Doc: 1, unsure; Doc: 3, Relevance: 7": {2: 0.7},
    "Doc: 1\n2. Doc: 3, Relevance: 7": {2: 0.7},
    "Doc: 3, Relevance: 10\nDoc: 3, Relevance: 1": {2: 1.0},
}
USELESS = [
    "",
    " \n",
    "0",
    "9",
    "[2]",
    "...",
    "Doc: 0, Relevance: 9",
    "Doc: 9, Relevance: 9",
    "Doc: -1, Relevance: 9",
    "Doc: 1.5, Relevance: 9",
    "Doc: 1, Relevance: -3",
    "Doc: 1, Relevance: 95",
    "Doc: 1, Relevance: high",
    "I think document 2 explains the 5 days best.",
    "I'm sorry, but I can't help with that.",
    "<think>Doc: 1, Relevance: 10",
    '{"relevance": 7}',
    "[[[",
    '{"1": "all"}',
]


@each_case("answer", USABLE)
def test_an_answer_is_read_however_it_is_laid_out(answer: str) -> None:
    assert relevances_in(answer, documents=3) == pytest.approx(USABLE[answer])


@each_case("answer", USELESS)
def test_m3_what_names_no_document_is_refused(answer: str) -> None:
    assert relevances_in(answer, documents=3) == {}


noise = st.text(alphabet=list('doc DOC:,[]{}"relevance0123456789.-\n>/'), max_size=20)
lines = st.builds(
    "{}Doc: {}, Relevance: {}".format, noise, st.integers(-2, 15), st.integers(-9, 99)
)


@given(st.lists(lines | noise, max_size=9).map("\n".join), st.integers(1, 12))
def test_only_documents_that_were_shown_are_ever_judged(answer: str, documents: int) -> None:
    judged = relevances_in(f"{answer}\nDoc: 1, Relevance: 5", documents=documents)
    assert set(judged) <= set(range(documents))
    assert all(0.0 <= relevance <= 1.0 for relevance in judged.values())


def test_a_document_that_was_not_shown_is_passed_over() -> None:
    answer = "Doc: 1, Relevance: 5\nDoc: 4, Relevance: 9\nDoc: 0, Relevance: 9"
    assert relevances_in(answer, documents=3) == {0: 0.5}


@given(st.permutations(range(8)), st.lists(st.integers(0, 10), min_size=8, max_size=8))
def test_what_is_written_as_asked_is_read_as_meant(order: list[int], scores: list[int]) -> None:
    pairs = dict(zip(order, scores, strict=True))
    answer = "\n".join(f"Doc: {place + 1}, Relevance: {score}" for place, score in pairs.items())
    found = relevances_in(answer, documents=8)
    assert list(found) == order
    assert found == {place: score / 10 for place, score in pairs.items()}


@each_case("part", ["doc 1 ", "[", "1 > ", "{", "relevance ", "doc: 1, relevance"])
def test_an_endless_answer_is_read_in_no_time(part: str) -> None:
    assert len(relevances_in(part * 20_000, documents=3)) <= 3
