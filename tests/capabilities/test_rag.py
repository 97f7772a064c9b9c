"""Cited answers: what the model is sent, and which citations hold."""
# ruff: noqa: RUF001 - Chinese punctuation on purpose

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.query_engine import CustomQueryEngine

from llama_retrieval_ext import RRF
from llama_retrieval_ext.capabilities import RAGGenerator
from llama_retrieval_ext.capabilities.query_engine import as_hits
from llama_retrieval_ext.capabilities.rag import RAGAnswer, check_citations
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.testing import FakeRetriever, FlakyRetriever, ScriptedLLM
from tests.capabilities.conftest import ACME, QUESTION

Generated = Callable[..., RAGAnswer]


@pytest.fixture(params=["sync", "async", "stream", "astream", "query", "aquery"])
def generated(request: pytest.FixtureRequest) -> Generated:
    """Each way to an answer."""

    async def last(rag: RAGGenerator, *args: object, **kwargs: object) -> RAGAnswer:
        return [each async for each in rag.astream(*args, **kwargs)][-1]  # type: ignore[arg-type]

    def engine(rag: RAGGenerator, query: str, **kwargs: object) -> Query:
        del rag
        return Query(query, **kwargs)  # type: ignore[arg-type]

    ways: dict[str, Callable[..., RAGAnswer]] = {
        "sync": lambda rag, *args, **kw: rag.generate(*args, **kw),
        "async": lambda rag, *args, **kw: asyncio.run(rag.agenerate(*args, **kw)),
        "stream": lambda rag, *args, **kw: list(rag.stream(*args, **kw))[-1],
        "astream": lambda rag, *args, **kw: asyncio.run(last(rag, *args, **kw)),
        "query": lambda rag, *args, **kw: rag.query(engine(rag, *args, **kw)),
        "aquery": lambda rag, *args, **kw: asyncio.run(rag.aquery(engine(rag, *args, **kw))),
    }
    return ways[request.param]


def test_an_answer_cites_hits_of_its_scope_alone(kb: KnowledgeBase, generated: Generated) -> None:
    llm = ScriptedLLM(["<think>44 or 25?</think>Annual leave is 25 days a year [1]."])
    answer = generated(RAGGenerator(kb.retriever(), llm=llm), QUESTION, scope=ACME)
    assert answer.text == "Annual leave is 25 days a year [1]."
    assert [each.hit.node.ref_doc_id for each in answer.citations] == ["acme-leave"]
    assert answer.is_supported
    (prompt,) = llm.prompts
    assert QUESTION in prompt
    assert "acme" in prompt
    assert "beta" not in prompt
    assert "44" not in prompt


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("Annual leave is 25 days [7].", "no passage [7]"),
        ("Annual leave is 30 days [1].", "30 is not in [1]"),
        ("Quantum chromodynamics rocks [1].", "no word in common"),
        ("Annual leave is 25 days.", "cites no passage"),
        ("Annual leave is 25 days [1]. It was 31 days in Rome [1].", "31 is not in [1]"),
    ],
)
def test_an_answer_whose_citations_do_not_hold_is_marked(
    kb: KnowledgeBase, said: str, problem: str
) -> None:
    answer = RAGGenerator(kb.retriever(), llm=ScriptedLLM([said])).generate(QUESTION, scope=ACME)
    assert not answer.is_supported
    assert problem in answer.problems[0]
    assert answer.text == said


def test_an_answer_without_relevant_passages_says_so(
    kb: KnowledgeBase, generated: Generated
) -> None:
    silent = ScriptedLLM([])
    nowhere = generated(RAGGenerator(kb.retriever(), llm=silent), QUESTION, scope=Scope("none"))
    assert not nowhere.is_answered
    assert silent.prompts == []
    llm = ScriptedLLM(["<think>hm</think>\nNOT_IN_PASSAGES."])
    answer = generated(RAGGenerator(kb.retriever(), llm=llm), "Who is Ada?", scope=ACME)
    assert (answer.is_answered, answer.citations) == (False, ())
    assert answer.text == "The documents do not answer this question."


def test_context_skips_the_retrieval() -> None:
    retriever = FakeRetriever([("n1", 0.9, "not this")])
    llm = ScriptedLLM(["Lunch is at noon [2]."])
    rag = RAGGenerator(retriever, llm=llm)
    answer = rag.generate("When is lunch?", ["Tea is at four.", "Lunch is at noon."])
    assert [each.node_id for each in answer.citations] == ["context-2"]
    assert retriever.calls == []
    with pytest.raises(ConfigurationError, match="nothing is retrieved"):
        rag.generate("When is lunch?", ["Tea"], scope=ACME)


def test_a_degraded_retrieval_degrades_the_answer(kb: KnowledgeBase) -> None:
    both = kb.retriever("vector", name="v") | FlakyRetriever(
        [("n1", 0.9)], failures=9, error=RuntimeError("down")
    )
    rag = RAGGenerator(both >> RRF(), llm=ScriptedLLM(["Annual leave is 25 days [1]."]))
    answer = rag.generate(QUESTION, scope=ACME)
    assert "down" in answer.degraded[0].reason
    assert answer.to_dict()["degraded"]


def test_a_rag_generator_is_a_query_engine_that_streams(kb: KnowledgeBase) -> None:
    said = "Annual leave is 25 days [1]."
    rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([said, said]), streaming=True)
    assert isinstance(rag, CustomQueryEngine)
    response = rag.query(Query(QUESTION, scope=ACME))
    assert isinstance(response, StreamingResponse)
    assert "".join(response.response_gen) == said

    async def streamed() -> str:
        response = await rag.aquery(Query(QUESTION, scope=ACME))
        assert isinstance(response, AsyncStreamingResponse)
        return "".join([part async for part in response.async_response_gen()])

    assert asyncio.run(streamed()) == said


def test_a_streamed_answer_is_repeated_once_after_reasoning_without_a_tag() -> None:
    said = "They say 25.</think>Annual leave is 25 days [1]."
    retriever = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.")])
    rag = RAGGenerator(retriever, llm=ScriptedLLM([said, said]), streaming=True)
    response = rag.query(QUESTION)
    assert isinstance(response, StreamingResponse)
    assert "".join(response.response_gen) == "They say\nAnnual leave is 25 days [1]."


@pytest.mark.parametrize(
    ("said", "passage"),
    [
        ("会议在2026年5月4日举行[1]。", "会议时间:2026-05-04"),
        ("年假为２５天［1］。", "年假25天"),
        ("It costs 1,000 euros [1].", "The price is 1000 euros"),
    ],
)
def test_numbers_are_equal_in_each_notation(said: str, passage: str) -> None:
    citations, problems = check_citations(said, as_hits([passage]))
    assert [each.number for each in citations] == [1], problems


def test_a_zero_before_a_decimal_comma_counts() -> None:
    assert check_citations("Es sind 0,5 Euro [1].", as_hits(["Es sind 5 Euro."]))[1]
