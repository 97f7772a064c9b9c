"""Answers that get better while they come, and many queries at once."""

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, node_ids
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fake_backend import FakeBackend
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FixedRetriever, HangingRetriever
from tests.meeting import Meeting, MeetsAsync

Streamed = Callable[[Retriever, Query | str], list[SearchResult]]


def streamed(retriever: Retriever, query: Query | str) -> list[SearchResult]:
    return list(retriever.stream(query))


def astreamed(retriever: Retriever, query: Query | str) -> list[SearchResult]:
    async def collected() -> list[SearchResult]:
        return [result async for result in retriever.astream(query)]

    return asyncio.run(collected())


both_ways = pytest.mark.parametrize("stream", [streamed, astreamed])


def one_after_another() -> Retriever:
    a = FixedRetriever([("a", 0.9), ("x", 0.1)], name="a")
    b = FixedRetriever([("b", 0.9), ("x", 0.1)], name="b", delay_s=0.04)
    c = FixedRetriever([("x", 0.9)], name="c", delay_s=0.08)
    return (a | b | c) >> RRF() >> Top(2)


@both_ways
def test_the_fused_ranking_comes_after_each_leg_and_the_answer_last(stream: Streamed) -> None:
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


@both_ways
@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_a_limit_on_the_time_takes_no_partial_answers_away(
    stream: Streamed, timeout_s: float | None
) -> None:
    assert len(stream(one_after_another(), Query("query", timeout_s=timeout_s))) == 4


@both_ways
def test_only_the_outermost_fusion_reports(stream: Streamed) -> None:
    inner = branches(FixedRetriever([("a", 1.0)]), FixedRetriever([("b", 1.0)])) >> RRF()
    outer = (inner | FixedRetriever([("c", 1.0)])) >> RRF()
    assert len(stream(outer, "query")) == 2 + 1


@both_ways
def test_a_retriever_without_a_fusion_streams_its_answer(stream: Streamed) -> None:
    (only,) = stream(FixedRetriever([("a", 0.9)]), "query")
    assert node_ids(only.hits) == ["a"]
    assert stream(FixedRetriever([("a", 0.9)]), " ")[0].hits == []


@both_ways
def test_a_leg_that_fails_is_told_with_the_final_answer(stream: Streamed) -> None:
    broken = FixedRetriever(name="broken", error=ConnectionError("down"))
    *partial, final = stream((FixedRetriever([("a", 0.9)]) | broken) >> RRF(), "query")
    assert [node_ids(each.hits) for each in partial] == [["a"]]
    assert [part.where for part in final.degraded] == ["broken"]


@both_ways
def test_an_error_comes_out_of_the_stream(stream: Streamed) -> None:
    broken = FixedRetriever(name="broken", error=ConnectionError("down"))
    with pytest.raises(TooFewLegsError):
        stream(branches(broken) >> RRF(), "query")


def test_a_stream_that_is_left_early_lets_the_work_finish_alone() -> None:
    hanging = HangingRetriever([("late", 1.0)])
    stream = ((FixedRetriever([("a", 0.9)]) | hanging) >> RRF()).stream("query")
    assert node_ids(next(stream).hits) == ["a"]
    stream.close()  # type: ignore[attr-defined]  # a generator
    hanging.release()


def test_an_async_stream_that_is_left_early_cancels_the_work() -> None:
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


def vectors(model: FakeEmbedding) -> VectorRetriever:
    backend = FakeBackend(sample_nodes(model))
    model.calls.clear()
    return VectorRetriever(backend, embed_model=model, top_k=3)


def many(retriever: Retriever, queries: list[Query | str], at_once: int = 8) -> list[list[str]]:
    return [node_ids(hits) for hits in retriever.retrieve_many(queries, at_once=at_once)]


def amany(retriever: Retriever, queries: list[Query | str], at_once: int = 8) -> list[list[str]]:
    answers = asyncio.run(retriever.aretrieve_many(queries, at_once=at_once))
    return [node_ids(hits) for hits in answers]


many_ways = pytest.mark.parametrize("retrieve_many", [many, amany])


@many_ways
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_many_answers_come_in_the_order_of_the_queries(
    retrieve_many: Callable[..., list[list[str]]], at_once: int
) -> None:
    retriever = vectors(FakeEmbedding())
    queries = [*SAMPLE_QUERIES, "", *reversed(SAMPLE_QUERIES)]
    expected = [node_ids(retriever.retrieve(query)) for query in queries]
    assert retrieve_many(retriever, queries, at_once=at_once) == expected


@many_ways
def test_each_text_is_embedded_once_for_many_queries(
    retrieve_many: Callable[..., list[list[str]]],
) -> None:
    model = FakeEmbedding()
    retriever = vectors(model)
    fused = (retriever | retriever) >> RRF()
    queries: list[Query | str] = ["leave", "lunch", "leave", Query("lunch", top_k=1), "leave"]
    retrieve_many(fused, queries, at_once=2)
    assert sorted(model.calls) == ["leave", "lunch"]


@many_ways
def test_each_of_many_queries_keeps_its_own_settings(
    retrieve_many: Callable[..., list[list[str]]],
) -> None:
    retriever = FixedRetriever([("a", 0.9), ("b", 0.5)])
    answers = retrieve_many(retriever, [Query("q", top_k=1), "q", Query("q", timeout_s=9)])
    assert answers == [["a"], ["a", "b"], ["a", "b"]]


@many_ways
def test_no_queries_have_no_answers(retrieve_many: Callable[..., list[list[str]]]) -> None:
    assert retrieve_many(FixedRetriever(), []) == []


@many_ways
def test_the_error_of_one_of_many_is_raised(retrieve_many: Callable[..., list[list[str]]]) -> None:
    with pytest.raises(ConnectionError, match="down"):
        retrieve_many(FixedRetriever(error=ConnectionError("down")), ["x", "y"])


@many_ways
def test_none_at_once_is_refused(retrieve_many: Callable[..., list[list[str]]]) -> None:
    with pytest.raises(ConfigurationError, match="at_once must be a whole number"):
        retrieve_many(FixedRetriever(), ["x"], at_once=0)


@many_ways
def test_many_queries_are_answered_side_by_side(
    retrieve_many: Callable[..., list[list[str]]],
) -> None:
    together = MeetsAsync([("a", 1.0)], Meeting(8)) >> Top(1)
    assert retrieve_many(together, ["x"] * 8) == [["a"]] * 8
