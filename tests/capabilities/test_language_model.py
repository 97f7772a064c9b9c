"""Calls of a language model: its window, its time, its failures, functions as models."""

import asyncio
import time
from itertools import count
from threading import Event
from typing import Any

import pytest
from llama_index.core.base.llms.types import CompletionResponse
from pydantic import PrivateAttr

from llama_retrieval_ext.capabilities import RAGGenerator, StyleGenerator
from llama_retrieval_ext.llm.functions import CallableLLM
from llama_retrieval_ext.errors import ConfigurationError, DeadlineExceededError, GenerationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.samples.regulations import zh_safety_laws
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, ScriptedLLM
from tests.capabilities.conftest import ACME, QUESTION


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


def test_temperature_is_set_for_one_answer_or_refused() -> None:
    temperatures: list[float] = []

    def caller(prompt: str, temperature: float = 0.1) -> str:
        temperatures.append(temperature)
        return prompt[:2]

    style = StyleGenerator(llm=CallableLLM(caller))
    style.generate("a task", temperature=0.9)
    style.generate("a task")
    assert temperatures == [0.9, 0.1]
    with pytest.raises(ConfigurationError, match="takes no temperature"):
        StyleGenerator(llm=lambda prompt: prompt).generate("a task", temperature=0.9)
    with pytest.raises(ConfigurationError, match="temperature must be"):
        style.generate("a task", temperature=-1)


def test_a_function_as_model_is_sync_or_async_in_any_loop() -> None:
    async def caller(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt[:5]

    style = StyleGenerator(llm=caller)

    async def both() -> tuple[str, str]:  # the sync way also inside a running loop
        return style.generate("x").text, (await style.agenerate("x")).text

    assert asyncio.run(both()) == ("Write", "Write")
    assert [each.text for each in StyleGenerator(llm=lambda p: p[:5]).stream("x")][-1] == "Write"


async def test_functions_that_hang_leave_threads_to_the_application() -> None:
    ending = Event()
    llm = CallableLLM(lambda prompt: prompt * ending.wait(20))
    hanging = [asyncio.ensure_future(llm.acomplete("x")) for _ in range(40)]
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5) == "free"
    ending.set()
    assert {each.text for each in await asyncio.gather(*hanging)} == {"x"}
