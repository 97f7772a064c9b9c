"""A part that is missing is named with the legs on the way to it."""

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.schema import IndexNode

from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.llm_queries import MultiQueryRetriever
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.fakes import FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.instrumentation import recorded
from tests.retrievers.references import finding

Places = Callable[[Retriever, Query | str], list[str]]


def named(result: SearchResult) -> list[str]:
    return [part.where for part in result.degraded]


@pytest.fixture(params=["sync", "async"])
def places(request: pytest.FixtureRequest) -> Places:
    if request.param == "sync":
        return lambda retriever, query: named(retriever.search(query))
    return lambda retriever, query: named(asyncio.run(retriever.asearch(query)))


def half_down() -> Retriever:
    down = FixedRetriever(error=ConnectionError("down"))
    return branches(up=FixedRetriever([("a", 0.9)]), down=down) >> RRF()


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_a_failed_leg_of_the_outermost_composite_is_named_without_a_path(
    places: Places, timeout_s: float | None
) -> None:
    query = Query("q", timeout_s=timeout_s)
    assert places(half_down() >> Top(3), query) == ["down"]
    assert places(RerankRetriever(half_down(), RuleRerank()), query) == ["down"]


def test_legs_inside_legs_are_named_from_the_outside_in(places: Places) -> None:
    middle = branches(inner=half_down() >> Top(3), other=FixedRetriever([("b", 0.9)])) >> RRF()
    outer = branches(outer=middle, down=half_down()) >> RRF()
    assert sorted(places(outer, "q")) == ["down/down", "outer/inner/down"]


def test_a_stage_inside_a_leg_is_named_with_the_leg(places: Places) -> None:
    silent = MultiQueryRetriever(FixedRetriever([("a", 0.9)]), ScriptedLLM([""]))
    retriever = FallbackRetriever(silent, half_down(), enough=2)
    assert places(retriever, "q") == ["multi_query/MultiQuery", "fusion/down"]


def test_a_failure_behind_an_index_node_is_named_with_the_id_of_the_reference(
    places: Places,
) -> None:
    link = finding(IndexNode(text="more", index_id="more"))
    retriever = RecursiveRetriever("root", {"root": link, "more": half_down()})
    assert places(retriever, "q") == ["more/down"]


def test_the_event_of_a_degraded_leg_names_the_path_to_it() -> None:
    with recorded() as recording:
        (branches(outer=half_down()) >> RRF()).retrieve("q")
    assert [getattr(event, "where", None) for event in recording.events].count("outer/down") == 1
