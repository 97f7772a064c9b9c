"""The more general question is asked as well."""

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rewrite.multi_query import StepBack
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM


@pytest.fixture
def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9)])


def asked(source: FakeRetriever) -> list[str]:
    return sorted(bundle.query_str for bundle in source.calls)


def test_one_more_general_question_is_asked(source: FakeRetriever) -> None:
    llm = ScriptedLLM(["Step-back question: How is leave regulated?\nWho regulates it?"])
    result = (StepBack(llm) >> source >> RRF()).search("Do five days carry over to March?")
    assert asked(source) == ["Do five days carry over to March?", "How is leave regulated?"]
    assert result.degraded == ()
    assert result.details == {"generated_queries": ["How is leave regulated?"], "queries_count": 2}


def test_a_question_that_is_general_already_is_asked_once(source: FakeRetriever) -> None:
    result = (StepBack(ScriptedLLM(["What is leave?"])) >> source >> RRF()).search("what is leave")
    assert asked(source) == ["what is leave"]
    assert result.degraded == ()
    assert result.details == {"generated_queries": [], "queries_count": 1}


def test_a_prompt_without_the_query_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        StepBack(ScriptedLLM([]), prompt="Take a step back.")
