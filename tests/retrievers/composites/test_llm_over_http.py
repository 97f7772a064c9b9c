"""Retrievers that call a language model, with a client of LlamaIndex and a server that fails."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import pytest
from llama_index.core.llms import LLM
from llama_index.llms.openai_like import OpenAILike

from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.stages.rerank.llm import LLMRerank
from llama_retrieval_ext.testing.fakes import FixedRetriever
from tests.searching import Searched
from tests.servers.openai import Failure, FakeOpenAI, Never, Reply

pytestmark = pytest.mark.slow

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
