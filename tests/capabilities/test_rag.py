"""Cited answers: what the model is sent, and what becomes of what it says."""

import asyncio
import time
from collections.abc import Callable
from itertools import count
from threading import Event
from typing import Any

import pytest
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.query_engine import CustomQueryEngine
from pydantic import PrivateAttr

from llama_retrieval_ext.capabilities import RAGGenerator
from llama_retrieval_ext.capabilities.rag import RAGAnswer
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DeadlineExceededError,
    GenerationError,
    ScopeRequiredError,
)
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.samples.regulations import zh_safety_laws
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FlakyRetriever, ScriptedLLM
from tests.capabilities.conftest import ACME, BETA

QUESTION = "How many days of annual leave?"
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


def test_the_prompt_stays_within_the_context_window() -> None:
    laws = zh_safety_laws()[:60]
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add(laws, show_progress=False)
        llm = ScriptedLLM(["NOT_IN_PASSAGES"], context_window=1200, num_output=200)  # it checks
        rag = RAGGenerator(kb.retriever(top_k=40), llm=llm)
        answer = rag.generate("生产经营单位的主要负责人")
    assert 1 <= len(answer.source_nodes) < 40
    with pytest.raises(GenerationError, match="too long for the context window of 1200"):
        rag.generate("word " * 1100, ["passage"])


@pytest.mark.parametrize(
    "answer", ["", "<think>and then the window was full", RuntimeError("503"), (1.0, "late")]
)
def test_a_failing_model_is_a_clear_error(
    kb: KnowledgeBase, answer: str | BaseException | tuple[float, str]
) -> None:
    rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([answer]), timeout_s=0.05)
    with pytest.raises(GenerationError, match="rag: the LLM"):
        rag.generate(QUESTION, scope=ACME)

    async def streamed() -> None:
        async for _ in rag.astream(QUESTION, scope=ACME):
            pass

    rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([answer, answer]), timeout_s=0.05)
    with pytest.raises(GenerationError, match="rag: the LLM"):
        list(rag.stream(QUESTION, scope=ACME))
    with pytest.raises(GenerationError, match="rag: the LLM"):
        asyncio.run(streamed())


def test_the_time_of_a_call_bounds_everything(kb: KnowledgeBase) -> None:
    rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([(1.0, "late")] * 3))

    async def streamed() -> None:
        async for _ in rag.astream(QUESTION, scope=ACME, timeout_s=0.1):
            pass

    with pytest.raises(DeadlineExceededError):
        rag.generate(QUESTION, scope=ACME, timeout_s=0.1)
    with pytest.raises(DeadlineExceededError):
        list(rag.stream(Query(QUESTION, timeout_s=0.1), scope=ACME))
    with pytest.raises(DeadlineExceededError):
        asyncio.run(streamed())


class EndlessLLM(ScriptedLLM):
    """Streams a text without an end until it is closed."""

    _stopped: Event = PrivateAttr(default_factory=Event)

    def __init__(self) -> None:
        super().__init__([])

    def stream_complete(self, prompt: str, *_: Any, **__: Any) -> Any:
        try:
            for number in count():
                yield CompletionResponse(text="so " * number)
                time.sleep(0.001)
        finally:
            self._stopped.set()


def test_a_stream_that_is_closed_stops_the_model() -> None:
    llm = EndlessLLM()
    answers = RAGGenerator(FakeRetriever([("a", 1.0)]), llm=llm).stream(QUESTION)
    next(answers)
    answers.close()  # type: ignore[attr-defined]  # a generator
    assert llm._stopped.wait(20)


def test_a_degraded_retrieval_degrades_the_answer(kb: KnowledgeBase) -> None:
    both = kb.retriever("vector", name="v") | FlakyRetriever(
        [("n1", 0.9)], failures=9, error=RuntimeError("down")
    )
    from llama_retrieval_ext import RRF  # noqa: PLC0415

    rag = RAGGenerator(both >> RRF(), llm=ScriptedLLM(["Annual leave is 25 days [1]."]))
    answer = rag.generate(QUESTION, scope=ACME)
    assert "down" in answer.degraded[0].reason
    assert answer.to_dict()["degraded"]


def test_a_stream_has_no_reasoning_of_the_model(kb: KnowledgeBase) -> None:
    said = "<think>secret plan</think>Annual leave is 25 days [1]."
    shown = [
        each.text
        for each in RAGGenerator(kb.retriever(), llm=ScriptedLLM([said])).stream(
            QUESTION, scope=ACME
        )
    ]
    assert shown[-1] == "Annual leave is 25 days [1]."
    assert all(shown[-1].startswith(each) for each in shown)
    assert len(shown) > 3


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


def test_a_required_scope_is_required() -> None:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), require_scope=True
    ) as kb:
        rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([]))
        with pytest.raises(ScopeRequiredError):
            rag.generate(QUESTION)
        assert not rag.generate(QUESTION, scope=BETA).is_answered
