"""Capabilities that write a text: their prompts, the model's window, its time and failures."""

import asyncio
import time
from itertools import count
from threading import Event
from typing import Any

import pytest
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.schema import TextNode
from pydantic import PrivateAttr

from llama_retrieval_ext import KnowledgeBase, Query, Scope
from llama_retrieval_ext.capabilities import DataAnalyzer, RAGGenerator
from llama_retrieval_ext.capabilities.insight import Insight
from llama_retrieval_ext.errors import ConfigurationError, DeadlineExceededError, GenerationError
from llama_retrieval_ext.samples.regulations import zh_safety_laws
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, ScriptedLLM
from tests.capabilities.conftest import ACME, QUESTION
from tests.cases import cases

INSIGHTS = [Insight(title="Leave grows", explanation="It was 20.", evidence=["2024"])]


def test_a_mapping_as_context_adds_sections_to_the_prompt() -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    retriever = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.", {"tenant_id": "acme"})])
    context = {"insights": INSIGHTS, "style": "formal", "case": TextNode(text="Case 7")}
    answer = RAGGenerator(retriever, llm=llm).generate("How much?", context, scope=Scope("acme"))
    (prompt,) = llm.prompts
    assert "[1]\nAnnual leave is 25 days." in prompt
    assert 'insights:\n[{"title": "Leave grows"' in prompt
    assert "style:\nformal" in prompt
    assert "case:\nCase 7" in prompt
    assert "[2]" not in prompt.partition("Passages:")[2]
    assert [citation.node_id for citation in answer.citations] == ["leave"]


def test_a_shortened_passage_ends_where_the_prompt_does() -> None:
    text = "Annual leave is 25 days. " * 400
    node = TextNode(id_="leave", text=text, start_char_idx=100, end_char_idx=100 + len(text))
    llm = ScriptedLLM(["Annual leave is 25 days [1]."], context_window=500, num_output=100)
    rag = RAGGenerator(FakeRetriever([]), llm=llm)
    (cited,) = rag.generate("How much?", [node]).citations
    shown = cited.hit.node.get_content()
    assert shown in llm.prompts[0]
    assert 100 < len(shown) < len(text)
    assert (cited.start, cited.end) == (100, 100 + len(shown))
    assert (node.text, node.end_char_idx) == (text, 100 + len(text))


def test_sections_are_no_passages_that_an_answer_can_cite() -> None:
    llm = ScriptedLLM(["Leave grows [1]."])
    answer = RAGGenerator(FakeRetriever([]), llm=llm).generate("How much?", {"insights": INSIGHTS})
    assert answer.text == "Leave grows [1]."
    assert answer.citations == ()
    assert "there is no passage [1]" in answer.problems[0]


def test_documents_to_analyse_are_no_mapping() -> None:
    with pytest.raises(ConfigurationError, match="documents takes texts, nodes and hits"):
        DataAnalyzer(llm=ScriptedLLM([])).analyze({"insights": "x"})  # type: ignore[arg-type]


@cases(
    ("metadata", "head"),
    [
        ({"title": "Handbook", "heading_path": "Leave > Sick"}, "[1] Handbook > Leave > Sick\n"),
        ({"file_path": "/hr/leave.md", "heading_path": "Leave"}, "[1] leave.md > Leave\n"),
        ({"title": ""}, "[1]\n"),
    ],
)
def test_a_passage_in_the_prompt_has_its_title_and_headings(
    metadata: dict[str, object], head: str
) -> None:
    llm = ScriptedLLM(["Annual leave is 25 days [1]."])
    hits = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.", metadata)])
    RAGGenerator(hits, llm=llm).generate("How much?")
    assert f"{head}Annual leave is 25 days." in llm.prompts[0]


@pytest.mark.slow
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


@cases("answer", ["", "<think>and then the window was full", RuntimeError("503"), (60.0, "late")])
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
    rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([(60.0, "late")] * 3))

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
