"""`stream` and `astream`: partial results of a fusion, then the final one."""

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.fakes import FixedRetriever, HangingRetriever

Streamed = Callable[[Retriever, Query | str], list[SearchResult]]


def streamed(retriever: Retriever, query: Query | str) -> list[SearchResult]:
    return list(retriever.stream(query))


def astreamed(retriever: Retriever, query: Query | str) -> list[SearchResult]:
    async def collected() -> list[SearchResult]:
        return [result async for result in retriever.astream(query)]

    return asyncio.run(collected())


drivers = pytest.mark.parametrize("stream", [streamed, astreamed])


def one_after_another() -> Retriever:
    a = FixedRetriever([("a", 0.9), ("x", 0.1)], name="a")
    b = FixedRetriever([("b", 0.9), ("x", 0.1)], name="b", delay_s=0.04)
    c = FixedRetriever([("x", 0.9)], name="c", delay_s=0.08)
    return (a | b | c) >> RRF() >> Top(2)


@drivers
def test_a_stream_yields_the_fused_ranking_after_each_leg_and_then_the_answer(
    stream: Streamed,
) -> None:
    retriever = one_after_another()
    *partial, final = stream(retriever, "query")
    assert [node_ids(each.hits) for each in partial] == [
        ["a", "x"],
        ["x", "a", "b"],
        ["x", "a", "b"],
    ]
    assert [each.trace for each in partial] == [None, None, None]
    assert final.trace is not None
    assert final.hits == retriever.retrieve("query")
    assert node_ids(final.hits) == ["x", "a"]


@drivers
def test_a_timeout_does_not_suppress_partial_results(stream: Streamed) -> None:
    assert len(stream(one_after_another(), Query("query", timeout_s=5.0))) == 4


@drivers
def test_only_the_outermost_fusion_streams_partial_results(stream: Streamed) -> None:
    inner = branches(FixedRetriever([("a", 1.0)]), FixedRetriever([("b", 1.0)])) >> RRF()
    outer = (inner | FixedRetriever([("c", 1.0)])) >> RRF()
    assert len(stream(outer, "query")) == 2 + 1


@drivers
def test_a_retriever_without_a_fusion_streams_its_answer(stream: Streamed) -> None:
    (only,) = stream(FixedRetriever([("a", 0.9)]), "query")
    assert node_ids(only.hits) == ["a"]
    assert stream(FixedRetriever([("a", 0.9)]), " ")[0].hits == []


@drivers
def test_a_failing_leg_is_reported_with_the_final_result(stream: Streamed) -> None:
    broken = FixedRetriever(name="broken", error=ConnectionError("down"))
    *partial, final = stream((FixedRetriever([("a", 0.9)]) | broken) >> RRF(), "query")
    assert [node_ids(each.hits) for each in partial] == [["a"]]
    assert [part.where for part in final.degraded] == ["broken"]


@drivers
def test_an_error_comes_out_of_the_stream(stream: Streamed) -> None:
    broken = FixedRetriever(name="broken", error=ConnectionError("down"))
    with pytest.raises(TooFewLegsError):
        stream(branches(broken) >> RRF(), "query")


def test_closing_a_stream_early_leaves_the_work_to_its_thread() -> None:
    hanging = HangingRetriever([("late", 1.0)])
    stream = ((FixedRetriever([("a", 0.9)]) | hanging) >> RRF()).stream("query")
    assert node_ids(next(stream).hits) == ["a"]
    stream.close()  # type: ignore[attr-defined]  # a generator
    hanging.release()


def test_closing_an_async_stream_early_cancels_the_work() -> None:
    cancelled: list[bool] = []

    class Patient(FixedRetriever):
        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
            return []

    async def first_only() -> list[str]:
        retriever = (FixedRetriever([("a", 0.9)]) | Patient()) >> RRF()
        stream = retriever.astream("query")
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator
        await asyncio.sleep(0.01)
        assert cancelled == [True]  # before the loop ends, which would cancel it too
        return node_ids(first.hits)

    assert asyncio.run(first_only()) == ["a"]
