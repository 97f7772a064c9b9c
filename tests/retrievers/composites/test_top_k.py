"""How many hits composites ask their children for, and how many they return."""

from collections.abc import Callable

import pytest
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.intent import IntentAdaptiveRetriever, IntentProfile
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.fakes import FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.searching import Searched


def deep(top_k: int = 10) -> FixedRetriever:
    return FixedRetriever([(f"n{place:02}", 1 / (1 + place)) for place in range(80)], top_k=top_k)


def routed(leg: Retriever | Leg) -> Retriever:
    rules = RuleSelector([RouteRule("x", pattern="leave")])
    return RouterRetriever(rules, {"x": Route(leg, "x"), "y": Route(deep(), "y")})


COMPOSITES: dict[str, Callable[[FixedRetriever], Retriever]] = {
    "fusion": lambda leg: branches(leg, leg) >> RRF(),
    "query fusion": lambda leg: QueryFusionRetriever([leg], num_queries=1),
    "pipeline": lambda leg: leg >> RuleRerank(),
    "step by step": lambda leg: RetrievalPipeline("named").add_stage(leg),
    "rerank": lambda leg: RerankRetriever(leg, RuleRerank()),
    "router": routed,
    "fallback": lambda leg: FallbackRetriever(leg, deep()),
    "hyde": lambda leg: HyDERetriever(leg, ScriptedLLM(["Two weeks."])),
    "multi-query": lambda leg: MultiQueryRetriever(leg, ScriptedLLM(["days off"])),
    "recursive": lambda leg: RecursiveRetriever("root", {"root": leg}),
    "auto-merging": lambda leg: AutoMergingRetriever(leg, SimpleDocumentStore()),
    "intent": lambda leg: IntentAdaptiveRetriever(
        {"x": leg}, profiles={"general": IntentProfile("any")}
    ),
    "nested": lambda leg: routed(
        RerankRetriever(branches(leg >> RuleRerank()) >> RRF() >> RuleRerank(), RuleRerank())
    ),
}
every_composite = pytest.mark.parametrize("make", COMPOSITES.values(), ids=COMPOSITES.keys())


@every_composite
def test_a_larger_top_k_of_the_query_reaches_the_legs_and_a_smaller_one_does_not(
    searched: Searched, make: Callable[[FixedRetriever], Retriever]
) -> None:
    for top_k, of_legs in ((50, 50), (3, 10)):
        leg = deep()
        assert len(searched(make(leg), Query("leave", top_k=top_k)).hits) == top_k
        assert {call.top_k for call in leg.calls} == {of_legs}


def test_the_top_k_of_a_composite_does_not_change_that_of_its_legs(searched: Searched) -> None:
    leg = deep()
    assert (
        len(
            searched(
                QueryFusionRetriever([leg], num_queries=1, similarity_top_k=50), Query("q")
            ).hits
        )
        == 10
    )
    assert len(searched(RerankRetriever(leg, RuleRerank(), top_k=50), Query("q")).hits) == 10


def test_the_top_k_of_a_composite_leg_reaches_the_legs_inside(searched: Searched) -> None:
    inner = deep()
    fused = QueryFusionRetriever([inner], num_queries=1)
    assert (
        len(searched(branches(Leg("many", fused, top_k=30)) >> RRF(), Query("q", top_k=20)).hits)
        == 20
    )
    assert {call.top_k for call in inner.calls} == {30}


def test_a_cut_inside_a_leg_holds_whatever_the_query_requests(searched: Searched) -> None:
    assert len(searched(branches(deep() >> Top(5)) >> RRF(), Query("q", top_k=50)).hits) == 5


def test_fetch_k_grows_with_the_top_k_of_the_query(searched: Searched) -> None:
    leg = deep()
    retriever = RerankRetriever(leg, RuleRerank(), top_k=5, fetch_k=20)
    assert len(searched(retriever, Query("q")).hits) == 5
    assert len(searched(retriever, Query("q", top_k=50)).hits) == 50
    assert [call.top_k for call in leg.calls] == [20, 50]
