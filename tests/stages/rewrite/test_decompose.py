"""A question is asked part by part."""

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.multi_query import Decompose
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM

QUESTION = "How long is sick leave, and who pays?"
PARTS = "1. How long is sick leave?\n2. Who pays for sick leave?\n3. What is sick leave?"


@pytest.fixture
def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9)])


def asked(source: FakeRetriever) -> list[str]:
    return sorted(bundle.query_str for bundle in source.calls)


def test_at_most_n_parts_are_asked_beside_the_whole(source: FakeRetriever) -> None:
    result = (Decompose(ScriptedLLM([PARTS]), n=2) >> source >> RRF()).search(QUESTION)
    parts = ["How long is sick leave?", "Who pays for sick leave?"]
    assert asked(source) == sorted([QUESTION, *parts])
    assert result.degraded == ()
    assert result.details == {"generated_queries": parts, "queries_count": 3}


def test_the_whole_may_be_left_out(source: FakeRetriever) -> None:
    stage = Decompose(ScriptedLLM([PARTS]), n=1, include_original=False)
    (stage >> source >> RRF()).retrieve(QUESTION)
    assert asked(source) == ["How long is sick leave?"]


def test_a_question_that_asks_one_thing_goes_on_as_it_is(source: FakeRetriever) -> None:
    stage = Decompose(ScriptedLLM([QUESTION]), include_original=False)
    result = (stage >> source >> RRF()).search(QUESTION)
    assert asked(source) == [QUESTION]
    assert result.degraded == ()


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="n must be a whole number"):
        Decompose(ScriptedLLM([]), n=0)
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        Decompose(ScriptedLLM([]), prompt="Divide it.")
