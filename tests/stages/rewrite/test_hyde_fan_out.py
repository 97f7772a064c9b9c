"""Imagined answers are queries of their own."""

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.hyde import HyDEFanOut
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM

PASSAGES = ["Staff have 25 days.", "Leave is 20 days."]


def test_the_query_and_each_document_are_asked() -> None:
    source = FakeRetriever([("a", 0.9)])
    result = (HyDEFanOut(ScriptedLLM(PASSAGES), n=2) >> source >> RRF()).search("annual leave")
    assert {call.query_str for call in source.calls} == {"annual leave", *PASSAGES}
    assert len(result.hits[0].contributions) == 3
    assert result.details["hyde_queries_count"] == 2
    assert result.degraded == ()


def test_the_original_may_be_left_out() -> None:
    source = FakeRetriever([("a", 0.9)])
    stage = HyDEFanOut(ScriptedLLM(PASSAGES), n=2, include_original=False)
    (stage >> source >> RRF()).retrieve("annual leave")
    assert {call.query_str for call in source.calls} == set(PASSAGES)


def test_an_embedding_that_the_query_brings_is_the_querys_alone() -> None:
    source = FakeRetriever([("a", 0.9)])
    query = Query("annual leave", embedding=[1.0])
    (HyDEFanOut(ScriptedLLM(PASSAGES)) >> source >> RRF()).retrieve(query)
    embedded = {call.query_str: call.embedding for call in source.calls}
    assert embedded == {"annual leave": [1.0], PASSAGES[0]: None}
