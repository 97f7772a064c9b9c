"""Slow legs are waited for together, and never on the event loop.

What that costs on top of the slowest leg is in the benchmarks.
"""

import asyncio
from collections.abc import Callable, Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import IndexNode, NodeWithScore

from llama_retrieval_ext import RRF, Retriever, Route, RouterRetriever, Top, branches
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import QueryFusionRetriever, RecursiveRetriever
from llama_retrieval_ext.retrievers.routing.selectors import RouteRule, RuleSelector
from tests.cases import cases
from tests.meeting import Meeting, Meets, MeetsAsync, met_by_the_loop
from tests.retrievers.references import finding

Compose = Callable[[Sequence[BaseRetriever]], Retriever]


def fused(legs: Sequence[BaseRetriever]) -> Retriever:
    return branches(*legs) >> RRF() >> Top(3)


def fusion(legs: Sequence[BaseRetriever]) -> Retriever:
    return QueryFusionRetriever(legs, num_queries=1, similarity_top_k=3)


def nested(legs: Sequence[BaseRetriever]) -> Retriever:
    return (branches(*legs[:2]) >> RRF() | legs[2]) >> RRF()


def routed(legs: Sequence[BaseRetriever]) -> Retriever:
    rules = RuleSelector([RouteRule(f"leg {n}", pattern=".") for n in range(len(legs))])
    return RouterRetriever(rules, {f"leg {n}": Route(leg, "") for n, leg in enumerate(legs)})


def in_a_script(retriever: Retriever) -> list[NodeWithScore]:
    return retriever.retrieve("query")


def on_a_loop(retriever: Retriever) -> list[NodeWithScore]:
    return asyncio.run(retriever.aretrieve("query"))


def in_a_notebook(retriever: Retriever) -> list[NodeWithScore]:
    async def cell() -> list[NodeWithScore]:
        return retriever.retrieve("query")

    return asyncio.run(cell())


def legs(kind: type[Meets], meeting: Meeting) -> list[BaseRetriever]:
    return [kind([(f"n{n}", 0.9)], meeting) for n in range(3)]


@cases("ask", [in_a_script, on_a_loop, in_a_notebook])
@cases("compose", [fused, fusion, nested, routed])
def test_three_legs_are_searched_at_the_same_time(
    compose: Compose, ask: Callable[[Retriever], list[NodeWithScore]]
) -> None:
    kind = MeetsAsync if ask is on_a_loop else Meets
    found = ask(compose(legs(kind, Meeting(3))))
    assert sorted(node_ids(found)) == ["n0", "n1", "n2"]


@cases("compose", [fused, nested, routed])
def test_legs_that_block_do_not_block_the_loop(compose: Compose) -> None:
    meeting = Meeting(4)
    result = asyncio.run(met_by_the_loop(compose(legs(Meets, meeting)), meeting))
    assert sorted(node_ids(result.hits)) == ["n0", "n1", "n2"]


def test_references_to_slow_retrievers_are_followed_at_the_same_time() -> None:
    nodes = [IndexNode(id_=f"to {n}", text="", index_id=f"leg {n}") for n in range(3)]
    followed = {f"leg {n}": leg for n, leg in enumerate(legs(Meets, Meeting(3)))}
    retriever = RecursiveRetriever("root", {"root": finding(*nodes), **followed})
    for ask in (in_a_script, on_a_loop):
        assert sorted(node_ids(ask(retriever))) == ["n0", "n1", "n2"]
