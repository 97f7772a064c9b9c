"""A language model over HTTP, and a server that misbehaves."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from socket import socket

import pytest
from llama_index.core.llms import LLM
from llama_index.llms.openai_like import OpenAILike

from llama_retrieval_ext import KnowledgeBase, Retriever, Route, RouterRetriever
from llama_retrieval_ext.capabilities import CapabilityFactory
from llama_retrieval_ext.errors import GenerationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import LLMSelector, RerankRetriever
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.stages import LLMRerank
from llama_retrieval_ext.testing import FixedRetriever
from tests.capabilities.conftest import ACME
from tests.searching import Searched
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


Connected = Callable[..., LLM]

THOUGHT = "<think>The user asks about leave.\n1. Or lunch?\nDoc: 2, Relevance: 1</think>\n"
QUERY = "How many days of leave?"
BAD: list[tuple[Reply, str]] = [
    (Failure(500), "InternalServerError"),
    ("<think>and then the window was full", "nothing usable"),
    (Never(), "DeadlineExceededError"),
]


def found() -> FixedRetriever:
    return FixedRetriever([("a", 0.9, "lunch"), ("b", 0.5, "25 days of leave")], name="found")


def router(llm: LLM, timeout_s: float) -> RouterRetriever:
    routes = {
        "a": Route(FixedRetriever([("a", 0.9)]), "what there is to eat"),
        "b": Route(FixedRetriever([("b", 0.9)]), "days off"),
    }
    return RouterRetriever(LLMSelector(llm, timeout_s=timeout_s), routes, fallback="a")


@dataclass(frozen=True)
class Case:
    """A retriever that calls a model: a good reply with its hits, the hits without a reply."""

    make: Callable[[LLM, float], Retriever]
    reply: str
    hits: list[str]
    where: str
    details: dict[str, object] = field(default_factory=dict)
    hits_without_reply: list[str] = field(default_factory=lambda: ["a", "b"])


CASES = {
    "multi-query": Case(
        lambda llm, limit: MultiQueryRetriever(found(), llm, num_queries=2, timeout_s=limit),
        "1. days off per year\n2. annual leave",
        ["a", "b"],
        "MultiQuery",
        {"generated_queries": ["days off per year", "annual leave"]},
    ),
    "hyde": Case(
        lambda llm, limit: HyDERetriever(found(), llm, max_tokens=64, timeout_s=limit),
        "Staff have 25 days.",
        ["a", "b"],
        "HyDE",
        {"hyde_queries": ["Staff have 25 days."]},
    ),
    "rerank": Case(
        lambda llm, limit: RerankRetriever(found(), LLMRerank(llm, timeout_s=limit)),
        "Doc: 2, Relevance: 9\nDoc: 1, Relevance: 2",
        ["b", "a"],
        "LLMRerank",
    ),
    "router": Case(router, "2", ["b"], "LLMSelector", hits_without_reply=["a"]),
}
each_retriever = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture
def connected() -> Generator[Connected]:
    """Makes an LLM of LlamaIndex's whose server gives these replies."""
    servers: list[FakeOpenAI] = []

    def connect(*replies: Reply) -> LLM:
        servers.append(FakeOpenAI(replies))
        url = servers[-1].url
        return OpenAILike(
            model="tiny", api_base=url, api_key="none", is_chat_model=True, max_retries=0
        )

    yield connect
    for server in servers:
        server.__exit__()


@each_retriever
def test_a_reply_after_thoughts_is_used(
    case: Case, searched: Searched, connected: Connected
) -> None:
    result = searched(case.make(connected(THOUGHT + case.reply), 30.0), QUERY)
    assert node_ids(result.hits) == case.hits
    assert case.details.items() <= result.details.items()
    assert result.degraded == ()


@pytest.mark.parametrize(("reply", "reason"), BAD, ids=[str(bad) for bad, _ in BAD])
@each_retriever
def test_a_failing_server_degrades_the_answer_of_the_query_alone(
    case: Case, reply: Reply, reason: str, searched: Searched, connected: Connected
) -> None:
    # Long enough for a server that answers, on a busy machine too.
    limit = 0.5 if isinstance(reply, Never) else 30.0
    result = searched(case.make(connected(reply), limit), QUERY)
    assert node_ids(result.hits) == case.hits_without_reply
    (part,) = result.degraded
    assert part.where.startswith(case.where)
    assert reason in part.reason


def test_the_request_is_one_that_an_openai_compatible_server_knows() -> None:
    with FakeOpenAI(["Staff have 25 days."]) as server:
        llm = OpenAILike(model="tiny", api_base=server.url, api_key="none", is_chat_model=True)
        HyDERetriever(found(), llm, max_tokens=64).retrieve(QUERY)
        (request,) = server.requests
        assert (request["model"], request["max_tokens"]) == ("tiny", 64)
        assert QUERY in server.prompts[0]
