"""What asks a language model, with a real client of LlamaIndex's and a server that misbehaves."""

import time
from collections.abc import Callable, Generator

import pytest
from llama_index.core.llms import LLM
from llama_index.llms.openai_like import OpenAILike

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, node_ids
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
    (Failure(429), "RateLimitError"),
    ("", "nothing usable"),
    ("<think>and then the window was full", "nothing usable"),
    (Never(), "DeadlineExceededError"),
]
bad_replies = pytest.mark.parametrize(("reply", "reason"), BAD, ids=[str(bad) for bad, _ in BAD])


def limit_s(reply: Reply) -> float:
    """Long enough for a server that answers, on a busy machine too."""
    return 0.5 if isinstance(reply, Never) else 30.0


@pytest.fixture
def connected() -> Generator[Connected]:
    """Makes an LLM of LlamaIndex's whose server gives these replies."""
    servers: list[FakeOpenAI] = []

    def connect(*replies: Reply) -> LLM:
        servers.append(FakeOpenAI(replies))
        return OpenAILike(
            model="tiny",
            api_base=servers[-1].url,
            api_key="none",
            is_chat_model=True,
            max_retries=0,
        )

    yield connect
    for server in servers:
        server.__exit__()


def found() -> FixedRetriever:
    return FixedRetriever([("a", 0.9, "lunch"), ("b", 0.5, "25 days of leave")], name="found")


def assert_degraded(result: SearchResult, where: str, reason: str) -> None:
    ((part),) = result.degraded
    assert part.where.startswith(where)
    assert reason in part.reason


def test_multi_query_asks_what_the_model_writes(searched: Searched, connected: Connected) -> None:
    base = found()
    llm = connected(f"{THOUGHT}1. days off per year\n2. annual leave")
    result = searched(MultiQueryRetriever(base, llm, num_queries=2), QUERY)
    assert result.details["generated_queries"] == ["days off per year", "annual leave"]
    assert sorted(call.query_str for call in base.calls) == sorted(
        [QUERY, "days off per year", "annual leave"]
    )
    assert result.degraded == ()


@bad_replies
def test_multi_query_goes_on_with_the_query(
    searched: Searched, connected: Connected, reply: Reply, reason: str
) -> None:
    retriever = MultiQueryRetriever(found(), connected(reply), timeout_s=limit_s(reply))
    result = searched(retriever, QUERY)
    assert node_ids(result.hits) == ["a", "b"]
    assert_degraded(result, "MultiQuery", reason)


def test_hyde_asks_with_what_the_model_imagines(searched: Searched, connected: Connected) -> None:
    base = found()
    retriever = HyDERetriever(base, connected(f"{THOUGHT}Staff have 25 days."), max_tokens=64)
    result = searched(retriever, QUERY)
    assert result.details["hyde_queries"] == ["Staff have 25 days."]
    assert {call.query_str for call in base.calls} == {QUERY, "Staff have 25 days."}


@bad_replies
def test_hyde_goes_on_with_the_query(
    searched: Searched, connected: Connected, reply: Reply, reason: str
) -> None:
    result = searched(HyDERetriever(found(), connected(reply), timeout_s=limit_s(reply)), QUERY)
    assert node_ids(result.hits) == ["a", "b"]
    assert_degraded(result, "HyDE", reason)


def test_llm_rerank_puts_what_the_model_prefers_first(
    searched: Searched, connected: Connected
) -> None:
    llm = connected(f"{THOUGHT}Doc: 2, Relevance: 9\nDoc: 1, Relevance: 2")
    result = searched(RerankRetriever(found(), LLMRerank(llm)), QUERY)
    assert [(hit.node_id, hit.score) for hit in result.hits] == [("b", 0.9), ("a", 0.2)]
    assert result.degraded == ()


@bad_replies
def test_llm_rerank_keeps_the_order_there_was(
    searched: Searched, connected: Connected, reply: Reply, reason: str
) -> None:
    reranker = LLMRerank(connected(reply), timeout_s=limit_s(reply))
    result = searched(RerankRetriever(found(), reranker), QUERY)
    assert node_ids(result.hits) == ["a", "b"]
    assert_degraded(result, "LLMRerank", reason)


def routed(llm: LLM, timeout_s: float = 30.0) -> RouterRetriever:
    return RouterRetriever(
        LLMSelector(llm, timeout_s=timeout_s),
        {
            "meals": Route(FixedRetriever([("m", 0.9)]), "what there is to eat"),
            "leave": Route(FixedRetriever([("l", 0.9)]), "days off"),
        },
        fallback="meals",
    )


def test_a_router_follows_the_model(searched: Searched, connected: Connected) -> None:
    result = searched(routed(connected(f"{THOUGHT}2")), QUERY)
    assert node_ids(result.hits) == ["l"]
    assert result.degraded == ()


@bad_replies
def test_a_router_takes_the_fallback(
    searched: Searched, connected: Connected, reply: Reply, reason: str
) -> None:
    result = searched(routed(connected(reply), limit_s(reply)), QUERY)
    assert node_ids(result.hits) == ["m"]
    assert_degraded(result, "LLMSelector", reason)


def test_the_time_of_the_query_is_kept_whatever_the_server_does(
    searched: Searched, connected: Connected
) -> None:
    retriever = MultiQueryRetriever(found(), connected(Never()))
    begun = time.perf_counter()
    result = searched(retriever, Query(QUERY, timeout_s=0.6))
    assert time.perf_counter() - begun < 3
    assert node_ids(result.hits) == ["a", "b"]
    assert_degraded(result, "MultiQuery", "DeadlineExceededError")


def test_an_answer_is_used_again_and_a_failure_is_not(
    searched: Searched, connected: Connected
) -> None:
    retriever = MultiQueryRetriever(found(), connected(Failure(), "annual leave", Failure()))
    results = [searched(retriever, QUERY) for _ in range(3)]
    assert [bool(result.degraded) for result in results] == [True, False, False]
    assert results[2].details["generated_queries"] == ["annual leave"]


def test_the_request_is_one_that_an_openai_compatible_server_knows() -> None:
    with FakeOpenAI(["Staff have 25 days."]) as server:
        llm = OpenAILike(model="tiny", api_base=server.url, api_key="none", is_chat_model=True)
        HyDERetriever(found(), llm, max_tokens=64).retrieve(QUERY)
        (request,) = server.requests
        assert (request["model"], request["max_tokens"]) == ("tiny", 64)
        assert QUERY in server.prompts[0]
