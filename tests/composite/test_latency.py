"""Slow legs cost as much as the slowest one, and never the event loop.

The goal is 10 ms over the slowest leg and no pause above 20 ms; the bounds here leave room for a
busy machine. Exact figures are in the benchmarks.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import IndexNode, NodeWithScore

from llama_retrieval_ext.composite.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.composite.recursive import RecursiveRetriever
from llama_retrieval_ext.composite.routing.router import Route, RouterRetriever
from llama_retrieval_ext.composite.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.stages.algebra.branches import branches
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.stages.fusions.rrf import RRF
from llama_retrieval_ext.stages.refining.top import Top
from llama_retrieval_ext.testing.fake_retrievers import FakeAsyncRetriever, FakeRetriever

LEG_S, ALL_S, PAUSE_S = 0.2, 0.35, 0.06


def fused(legs: Sequence[BaseRetriever]) -> Retriever:
    return branches(*legs) >> RRF() >> Top(3)


def fusion(legs: Sequence[BaseRetriever]) -> Retriever:
    return QueryFusionRetriever(legs, num_queries=1)


def nested(legs: Sequence[BaseRetriever]) -> Retriever:
    return (branches(*legs[:2]) >> RRF() | legs[2]) >> RRF()


def routed(legs: Sequence[BaseRetriever]) -> Retriever:
    rules = RuleSelector([RouteRule(f"leg {n}", min_length=1) for n in range(len(legs))])
    return RouterRetriever(rules, {f"leg {n}": Route(leg, "") for n, leg in enumerate(legs)})


def in_a_script(retriever: Retriever) -> int:
    return len(retriever.retrieve("query"))


def on_a_loop(retriever: Retriever) -> int:
    return len(asyncio.run(retriever.aretrieve("query")))


def in_a_notebook(retriever: Retriever) -> int:
    async def cell() -> int:
        return len(retriever.retrieve("query"))

    return asyncio.run(cell())


def slow(kind: type[FakeRetriever]) -> list[BaseRetriever]:
    return [kind([(f"n{n}", 0.9)], delay_s=LEG_S) for n in range(3)]


@pytest.mark.parametrize("ask", [in_a_script, on_a_loop, in_a_notebook])
@pytest.mark.parametrize("compose", [fused, fusion, nested, routed])
def test_f7_three_slow_legs_cost_as_much_as_one(
    compose: Callable[[Sequence[BaseRetriever]], Retriever], ask: Callable[[Retriever], int]
) -> None:
    kind = FakeAsyncRetriever if ask is on_a_loop else FakeRetriever
    retriever = compose(slow(kind))
    began = time.perf_counter()
    assert ask(retriever) >= 2
    assert time.perf_counter() - began < ALL_S


@pytest.mark.parametrize("compose", [fused, nested, routed])
def test_f7_legs_that_block_do_not_block_the_loop(
    compose: Callable[[Sequence[BaseRetriever]], Retriever],
) -> None:
    retriever = compose(slow(FakeRetriever))

    async def pauses() -> list[float]:
        task = asyncio.create_task(retriever.aretrieve("query"))
        lengths = []
        while not task.done():
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            lengths.append(time.perf_counter() - before)
        return lengths

    began = time.perf_counter()
    assert max(asyncio.run(pauses())) < PAUSE_S
    assert time.perf_counter() - began < ALL_S


def test_c2_references_to_slow_retrievers_are_followed_together() -> None:
    class Root(FakeRetriever):
        def _answer(self) -> list[NodeWithScore]:
            nodes = [IndexNode(id_=f"to {n}", text="", index_id=f"leg {n}") for n in range(3)]
            return [NodeWithScore(node=node, score=0.9) for node in nodes]

    legs = {f"leg {n}": leg for n, leg in enumerate(slow(FakeRetriever))}
    retriever = RecursiveRetriever("root", {"root": Root(), **legs})
    for ask in (in_a_script, on_a_loop):
        began = time.perf_counter()
        assert ask(retriever) == 3
        assert time.perf_counter() - began < ALL_S
