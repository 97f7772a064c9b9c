"""Capabilities with a real client of LlamaIndex's, over HTTP, and a server that misbehaves."""

import asyncio
from socket import socket

import pytest
from llama_index.core.llms import LLM

from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.errors import GenerationError
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from tests.capabilities.conftest import ACME
from tests.servers.openai import Failure, FakeOpenAI, Never, Reply

pytestmark = pytest.mark.slow

SAID = "<think>25 or 44?</think>Annual leave is 25 days [1]."
FOUND = '```json\n{"findings": [{"metric": "rules", "text": "Leave.", "sources": [1]}]}\n```'


def test_each_capability_over_http(kb: KnowledgeBase) -> None:
    drawn = '{"insights": [{"title": "Rest", "evidence": [1]}]}'
    replies: list[Reply] = [SAID, SAID, SAID, "Cheers.", FOUND, drawn, "2"]
    with FakeOpenAI(replies) as server:
        factory = CapabilityFactory.of(kb, llm=client(server.url))
        rag = factory.create_rag_generator()
        assert rag.generate("How much leave?", scope=ACME).is_supported
        assert asyncio.run(rag.agenerate("How much leave?", scope=ACME)).is_supported
        style = factory.create_style_generator()
        *_, last = rag.stream("How much leave?", scope=ACME)
        assert last.text == "Annual leave is 25 days [1]."
        assert style.generate("Say hello", scope=ACME, temperature=0.9).text == "Cheers."
        assert server.requests[-1]["temperature"] == pytest.approx(0.9)
        analysis = factory.create_data_analyzer().analyze(["Leave is granted"], ["rules"])
        assert analysis.metrics["rules"][0].sources == ["documents-1"]
        report = factory.create_insight_generator().generate(analysis)
        assert report.insights[0].evidence == ["documents-1"]
        memories = factory.create_memory_manager(scope=ACME)
        memories.remember("likes red pumps")
        memories.forget_faded(below=2)
        assert factory.create_intent_recognizer().recognize("gimme 17").reason == "the LLM chose it"


@pytest.mark.parametrize("reply", [Failure(500), "", Never()], ids=str)
def test_a_server_that_fails_is_a_clear_error(kb: KnowledgeBase, reply: Reply) -> None:
    with FakeOpenAI([reply]) as server:
        factory = CapabilityFactory.of(kb, llm=client(server.url))
        with pytest.raises(GenerationError, match="rag: the LLM"):
            factory.create_rag_generator(timeout_s=5 if reply == "" else 0.5).generate(
                "How much leave?", scope=ACME
            )


def test_a_server_that_is_not_there_is_named_without_its_password(kb: KnowledgeBase) -> None:
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    llm = client(f"http://ann:secret@127.0.0.1:{port}/v1")
    with pytest.raises(GenerationError, match=f" at http://127.0.0.1:{port}/v1/") as caught:
        CapabilityFactory.of(kb, llm=llm).create_rag_generator().generate("Leave?", scope=ACME)
    assert "secret" not in str(caught.value)


def client(url: str) -> LLM:
    # It takes seconds to import, which no other worker need spend.
    from llama_index.llms.openai_like import OpenAILike  # noqa: PLC0415

    return OpenAILike(model="tiny", api_base=url, api_key="none", is_chat_model=True, max_retries=0)
