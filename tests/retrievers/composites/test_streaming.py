"""What hands the query to a child streams what the child streams."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext import RRF, Query, Retriever, RuleRerank, Scope, Top, branches
from llama_retrieval_ext.execution import Call, Leg, Plan
from llama_retrieval_ext.execution.retrieval import retrieval
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.stages import Refine, Rewrite
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.retrievers import FallbackRetriever, RerankRetriever, RetrievalPipeline
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever
from llama_retrieval_ext.retrievers.intent import IntentAdaptiveRetriever, IntentProfile
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.selectors import Choice, Selection, Selector
from llama_retrieval_ext.stages import HyDE
from llama_retrieval_ext.testing import FakeRetriever, FixedRetriever, ScriptedLLM
from tests.patience import unless_stalled

Streamed = Callable[[Retriever, Query | str], list[list[str]]]


def streamed(retriever: Retriever, query: Query | str) -> list[list[str]]:
    return [node_ids(result.hits) for result in retriever.stream(query)]


def astreamed(retriever: Retriever, query: Query | str) -> list[list[str]]:
    async def collected() -> list[SearchResult]:
        return [result async for result in retriever.astream(query)]

    return [node_ids(result.hits) for result in asyncio.run(collected())]


both_ways = pytest.mark.parametrize("stream", [streamed, astreamed])


@dataclass
class Picks(Selector):
    """Picks these."""

    found: Sequence[str]

    def select(self, query: Query, choices: Sequence[Choice]) -> list[Selection]:
        return [Selection(name) for name in self.found]


def late(name: str, delay_s: float, *, error: Exception | None = None) -> FixedRetriever:
    rows = [] if error else [(name, 0.9)]
    return FixedRetriever(rows, name=name, delay_s=delay_s, error=error)


def two_legs() -> Retriever:
    return (late("a", 0.0) | late("b", 0.1)) >> RRF()


STEPS = [["a"], ["a", "b"], ["a", "b"]]


def routed(picks: Sequence[str], **routes: BaseRetriever | Leg) -> RouterRetriever:
    named: Mapping[str, Route] = {name: Route(part, name) for name, part in routes.items()}
    return RouterRetriever(Picks(picks), named)


HANDING_ON: dict[str, Callable[[], Retriever]] = {
    "router": lambda: routed(["x"], x=two_legs(), y=late("y", 0.0)),
    "intent": lambda: IntentAdaptiveRetriever(
        {"x": late("a", 0.0), "y": late("b", 0.04)}, profiles={"general": IntentProfile("any")}
    ),
    "fallback": lambda: FallbackRetriever(two_legs(), late("y", 0.0)),
    "rerank": lambda: RerankRetriever(two_legs(), RuleRerank()),
    "recursive": lambda: RecursiveRetriever("root", {"root": two_legs()}),
    "auto-merging": lambda: AutoMergingRetriever(two_legs(), SimpleDocumentStore()),
    "pipeline": lambda: two_legs() >> Top(5),
    "step by step": lambda: RetrievalPipeline("named").add_stage(two_legs()),
    "hyde of the mean": lambda: HyDE(ScriptedLLM(["Two weeks."])) >> two_legs(),
    "five deep": lambda: FallbackRetriever(
        routed(["x"], x=routed(["x"], x=two_legs() >> Top(5))), late("y", 0.0)
    ),
}


@pytest.mark.slow
@both_ways
@unless_stalled
def test_the_childs_fused_ranking_comes_after_each_leg(stream: Streamed) -> None:
    def steps(make: Callable[[], Retriever]) -> list[list[list[str]]]:
        return [stream(make(), Query("leave", timeout_s=limit)) for limit in (None, 30.0)]

    with ThreadPoolExecutor(len(HANDING_ON)) as threads:
        found = dict(zip(HANDING_ON, threads.map(steps, HANDING_ON.values()), strict=True))
    assert found == {name: [STEPS, STEPS] for name in HANDING_ON}


@both_ways
@unless_stalled
def test_a_router_of_several_routes_streams_its_own_fusion(stream: Streamed) -> None:
    inner = branches(late("b", 0.04), late("c", 0.04)) >> RRF()
    retriever = routed(["x", "y"], x=late("a", 0.0), y=inner, z=late("z", 0.0))
    assert stream(retriever, "q") == [["a"], ["a", "b", "c"], ["a", "b", "c"]]


@both_ways
@unless_stalled
def test_the_other_routes_are_streamed_if_the_picked_route_fails(stream: Streamed) -> None:
    halting = branches(
        late("a", 0.0), Leg("broken", late("b", 0.04, error=ConnectionError("down")), required=True)
    )
    retriever = routed(["x"], x=halting >> RRF(), y=late("y", 0.0))
    assert stream(retriever, "q") == [["a"], ["y"]]


class Wavers(Retriever):
    """Tells something, takes too long, and tells something else."""

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from retrieval(branches(late("a", 0.0)) >> RRF(), query)
        yield Call(lambda: time.sleep(0.6))  # nothing can interrupt it
        yield from retrieval(branches(late("x", 0.0)) >> RRF(), query)
        return []


@pytest.mark.slow
@unless_stalled
def test_a_route_that_timed_out_streams_no_further_partial_answers() -> None:
    others = branches(late("c", 0.0), late("d", 0.6)) >> RRF()
    retriever = routed(["x"], x=Leg("x", Wavers(top_k=None), timeout_s=0.3), y=others)
    assert streamed(retriever, "q") == [["a"], ["c"], ["c", "d"], ["c", "d"]]


@both_ways
@unless_stalled
def test_a_fallback_streams_one_retriever_after_the_other(stream: Streamed) -> None:
    retriever = FallbackRetriever(two_legs(), branches(late("c", 0.0)) >> RRF(), enough=3)
    assert stream(retriever, "q") == [["a"], ["a", "b"], ["c"], ["a", "b"]]


@both_ways
def test_partial_answers_have_at_most_top_k_hits(stream: Streamed) -> None:
    long = branches(FixedRetriever([(id_, 0.9) for id_ in "abcdef"])) >> RRF()
    retriever = FallbackRetriever(long, late("y", 0.0), top_k=3)
    assert stream(retriever, "q") == [["a", "b", "c"], ["a", "b", "c"]]
    assert stream(retriever, Query("q", top_k=2)) == [["a", "b"], ["a", "b"]]


def in_tenants() -> FakeRetriever:
    mine, theirs = {"tenant_id": "acme"}, {"tenant_id": "globex"}
    return FakeRetriever([("mine", 0.9, "mine", mine), ("theirs", 0.8, "theirs", theirs)])


@both_ways
def test_partial_answers_keep_to_the_scope_of_the_router(stream: Streamed) -> None:
    retriever = routed(["x", "y"], x=branches(in_tenants()) >> RRF(), y=in_tenants())
    bound = retriever.for_scope(Scope("acme"))
    assert stream(bound, "q") == [["mine"], ["mine"], ["mine"]]


class Foreign(BaseRetriever):
    """A composite of somebody else's: it hands on the text alone."""

    def __init__(self, inside: BaseRetriever) -> None:
        super().__init__()
        self.inside = inside

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.inside.retrieve(query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self.inside.aretrieve(query_bundle)


@both_ways
def test_partial_answers_inside_a_foreign_composite_are_not_streamed(stream: Streamed) -> None:
    # It knows no scope: what its parts find is checked only when it answers.
    retriever = Foreign(branches(in_tenants()) >> RRF()) >> Top(5)
    assert stream(retriever, Query("q", scope=Scope("acme"))) == [["mine"]]


class LooksUp(Rewrite):
    """Asks a retriever on the way."""

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        yield from retrieval(branches(late("seen", 0.0)) >> RRF(), query)
        return query


class Expands(Refine):
    """Asks a retriever on the way, and keeps the hits."""

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        yield from retrieval(branches(late("more", 0.0)) >> RRF(), query)
        return list(hits)


@both_ways
def test_partial_answers_of_retrievers_inside_stages_are_not_streamed(stream: Streamed) -> None:
    assert stream(LooksUp() >> two_legs() >> Expands(), "q") == STEPS
    assert stream(RerankRetriever(LooksUp() >> two_legs(), Expands()), "q") == STEPS
