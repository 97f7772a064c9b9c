"""Several queries in one call: each has its own result, and fails alone."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext import RRF, Query, Retriever, SearchResult, Top, VectorRetriever, branches
from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.stages import MultiQuery
from llama_retrieval_ext.testing import ScriptedLLM
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.fakes import (
    FakeBackend,
    FakeEmbedding,
    FakeRetriever,
    FixedRetriever,
)
from tests.cases import cases
from tests.meeting import Meeting, MeetsAsync

Many = Callable[[Retriever, Sequence[str | Query]], list[SearchResult]]


def in_threads(retriever: Retriever, queries: Sequence[str | Query]) -> list[SearchResult]:
    return retriever.search_many(queries, at_once=6)


def on_a_loop(retriever: Retriever, queries: Sequence[str | Query]) -> list[SearchResult]:
    return asyncio.run(retriever.asearch_many(queries, at_once=6))


@pytest.fixture(params=[in_threads, on_a_loop])
def search_many(request: pytest.FixtureRequest) -> Many:
    way: Many = request.param
    return way


class FailsOnBad(FakeRetriever):
    """Fails for one query."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = super()._retrieve(query_bundle)
        if query_bundle.query_str == "bad":
            raise OSError("not this one")
        return hits


def picky() -> FailsOnBad:
    return FailsOnBad([("a", 0.9), ("b", 0.5)])


def test_a_failing_query_fails_alone_and_its_result_has_the_reason(search_many: Many) -> None:
    source = picky()
    results = search_many(source >> Top(1), ["one", "bad", "three", "four"])
    assert [node_ids(result.hits) for result in results] == [["a"], [], ["a"], ["a"]]
    assert [len(result.degraded) for result in results] == [0, 1, 0, 0]
    (missing,) = results[1].degraded
    assert (missing.where, missing.reason) == ("pipeline", "OSError: not this one")
    assert results[1].trace is not None
    assert results[1].trace.error == "OSError: not this one"
    assert len(source.calls) == 4


def test_an_invalid_query_leaves_the_results_of_the_others(search_many: Many) -> None:
    backend = FakeBackend(sample_nodes(FakeEmbedding()))
    retriever = VectorRetriever(backend, embed_model=FakeEmbedding())
    good, bad = search_many(retriever, ["annual leave", Query("x", embedding=[1.0])])
    assert good.hits
    assert not good.degraded
    assert "DimensionMismatchError" in bad.degraded[0].reason


def test_each_result_has_only_its_own_degraded_parts(search_many: Many) -> None:
    fused = branches(bad=picky(), other=FakeRetriever([("c", 0.4)])) >> RRF()
    results = search_many(fused, ["one", "bad", "three"])
    assert [[part.where for part in result.degraded] for result in results] == [[], ["bad"], []]
    assert all(result.trace and result.trace.children for result in results)


def test_each_result_has_its_own_details(search_many: Many) -> None:
    llm = ScriptedLLM(["days off", "holidays"])
    rewritten = MultiQuery(llm, n=1) >> picky() >> RRF()
    results = search_many(rewritten, ["annual leave", "sick leave"])
    assert [result.details["queries_count"] for result in results] == [2, 2]


def test_many_results_are_those_of_each_query(search_many: Many) -> None:
    retriever = VectorRetriever(
        FakeBackend(sample_nodes(FakeEmbedding())), embed_model=FakeEmbedding()
    )
    queries: list[str | Query] = [*SAMPLE_QUERIES, "", Query(SAMPLE_QUERIES[0], top_k=1)]
    assert [result.hits for result in search_many(retriever, queries)] == [
        retriever.search(query).hits for query in queries
    ]


def test_retrieve_many_raises_the_first_failure_when_the_parallel_queries_are_done() -> None:
    source = picky()
    with pytest.raises(OSError, match="not this one") as raised:
        (source >> Top(1)).retrieve_many(["one", "bad", "three", "four"], at_once=3)
    assert "in query 2 of 4" in raised.value.__notes__
    assert sorted(call.query_str for call in source.calls) == ["bad", "one", "three"]
    with pytest.raises(DimensionMismatchError):
        VectorRetriever(FakeBackend(sample_nodes(FakeEmbedding()))).retrieve_many(
            [Query("x", embedding=[1.0])]
        )


@cases("queries", ["one", [None], [3]])
def test_search_many_refuses_anything_but_a_list_of_queries(
    search_many: Many, queries: list[str]
) -> None:
    with pytest.raises(ConfigurationError):
        search_many(picky() >> Top(1), queries)


def vectors(model: FakeEmbedding) -> VectorRetriever:
    backend = FakeBackend(sample_nodes(model))
    model.calls.clear()
    return VectorRetriever(backend, embed_model=model, top_k=3)


def many(retriever: Retriever, queries: list[Query | str], at_once: int = 8) -> list[list[str]]:
    return [node_ids(hits) for hits in retriever.retrieve_many(queries, at_once=at_once)]


def amany(retriever: Retriever, queries: list[Query | str], at_once: int = 8) -> list[list[str]]:
    answers = asyncio.run(retriever.aretrieve_many(queries, at_once=at_once))
    return [node_ids(hits) for hits in answers]


drivers = pytest.mark.parametrize("retrieve_many", [many, amany])


@drivers
@cases("at_once", [1, 3])
def test_results_of_many_queries_are_in_the_order_of_the_queries(
    retrieve_many: Callable[..., list[list[str]]], at_once: int
) -> None:
    retriever = vectors(FakeEmbedding())
    queries = [*SAMPLE_QUERIES, "", *reversed(SAMPLE_QUERIES)]
    expected = [node_ids(retriever.retrieve(query)) for query in queries]
    assert retrieve_many(retriever, queries, at_once=at_once) == expected


@drivers
def test_each_text_is_embedded_once_for_many_queries(
    retrieve_many: Callable[..., list[list[str]]],
) -> None:
    model = FakeEmbedding()
    retriever = vectors(model)
    fused = (retriever | retriever) >> RRF()
    queries: list[Query | str] = ["leave", "lunch", "leave", Query("lunch", top_k=1), "leave"]
    retrieve_many(fused, queries, at_once=2)
    assert sorted(model.calls) == ["leave", "lunch"]


@drivers
def test_at_once_below_one_is_refused(retrieve_many: Callable[..., list[list[str]]]) -> None:
    with pytest.raises(ConfigurationError, match="at_once must be a whole number"):
        retrieve_many(FixedRetriever(), ["x"], at_once=0)


@drivers
def test_many_queries_run_concurrently(retrieve_many: Callable[..., list[list[str]]]) -> None:
    together = MeetsAsync([("a", 1.0)], Meeting(8)) >> Top(1)
    assert retrieve_many(together, ["x"] * 8) == [["a"]] * 8
