"""The settings of retrievers and of single calls, and what `explain` notes."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import RRF, Query, Retriever, RuleRerank, Scope, Top, branches
from llama_retrieval_ext.errors import ConfigurationError, TooFewLegsError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import (
    FakeBackend,
    FakeEmbedding,
    FakeRetriever,
    FixedRetriever,
    HangingRetriever,
)
from llama_retrieval_ext.trace import Trace
from tests.cases import cases
from tests.patience import unless_stalled
from tests.pipeline.parts import Each, Say


def test_hits_without_scores_get_scores_in_their_order() -> None:
    unscored = FakeRetriever([("b", None), ("a", None), ("c", None)])
    hits = (unscored >> Top(2)).retrieve("query")
    assert node_ids(hits) == ["b", "a"]
    assert all(isinstance(hit.score, float) for hit in hits)


@cases("scope", [None, "acme", {"tenant_id": "acme"}])
def test_for_scope_refuses_anything_but_a_scope(scope: Any) -> None:
    retriever = FixedRetriever([("a", 0.9)])
    with pytest.raises(ConfigurationError, match="write Scope"):
        retriever.for_scope(scope)


EN = MetadataFilters(filters=[MetadataFilter(key="lang", value="en")])


ROWS = [
    ("a-en", 0.9, "text", {"tenant_id": "acme", "lang": "en"}),
    ("a-zh", 0.8, "text", {"tenant_id": "acme", "lang": "zh"}),
    ("g-en", 0.7, "text", {"tenant_id": "globex", "lang": "en"}),
]


tenants = FixedRetriever(ROWS, name="tenants")


SETTINGS: Mapping[str, tuple[Callable[[], Retriever], list[str]]] = {
    "a scope": (lambda: (tenants >> Top(9)).for_scope(Scope("globex")), ["g-en"]),
    "filters": (lambda: Pipeline(tenants, filters=EN), ["a-en", "g-en"]),
    "a limit": (lambda: Pipeline(tenants, top_k=1), ["a-en"]),
    "a scope of a fusion": (
        lambda: ((tenants | tenants) >> RRF()).for_scope(Scope("globex")),
        ["g-en"],
    ),
    "filters of a fusion": (
        lambda: FusionRetriever(tenants | tenants, RRF(), filters=EN),
        ["a-en", "g-en"],
    ),
    "a limit of a fusion": (lambda: FusionRetriever(tenants | tenants, RRF(), top_k=1), ["a-en"]),
}


@cases(("make", "expected"), SETTINGS.values())
def test_scope_filters_and_top_k_of_a_retriever_hold_in_every_composition(
    make: Callable[[], Retriever], expected: list[str]
) -> None:
    bound = make()
    for composed in (
        bound,
        bound >> Top(9),
        Say() >> bound,
        Say() >> bound >> Top(9),
        Say() >> (bound >> Top(9)),
        (bound | bound) >> RRF(),
        Each(("x", "y")) >> bound >> RRF() >> Top(9),
    ):
        assert node_ids(composed.retrieve("query")) == expected


def test_a_retriever_that_requires_a_scope_still_does_in_a_pipeline() -> None:
    closed = FixedRetriever([("a", 1.0)]) >> Top(3)
    closed.requires_scope = True
    with pytest.raises(PermissionError):
        (closed >> Top(2)).retrieve("query")


Explain = Callable[..., SearchResult]


def vector() -> VectorRetriever:
    model = FakeEmbedding()
    return VectorRetriever(FakeBackend(sample_nodes(model)), embed_model=model)


def of_tenant(tenant: str) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key="tenant_id", value=tenant)])


def explain(retriever: Retriever, query: str, **options: object) -> SearchResult:
    return retriever.explain(query, **options)  # type: ignore[arg-type]


def aexplain(retriever: Retriever, query: str, **options: object) -> SearchResult:
    return asyncio.run(retriever.aexplain(query, **options))  # type: ignore[arg-type]


@pytest.fixture(params=[explain, aexplain])
def explained(request: pytest.FixtureRequest) -> Explain:
    way: Explain = request.param
    return way


@cases(
    "options",
    [
        {"top_k": 1},
        {"scope": ACME},
        {"filters": of_tenant("globex")},
        {"timeout_s": 60, "context": {"user": "u"}},
    ],
)
def test_explain_takes_the_arguments_of_search(
    explained: Explain, options: dict[str, object]
) -> None:
    retriever = vector()
    expected = retriever.search("leave", **options).hits  # type: ignore[arg-type]
    assert expected
    assert explained(retriever, "leave", **options).hits == expected


def top_of(trace: Trace | None) -> dict[str, object]:
    assert trace is not None
    tops = {trace.name: trace.notes.get("top")}
    for child in trace.children:
        tops |= top_of(child)
    return tops


def test_an_explanation_notes_the_best_hits_of_every_refinement(explained: Explain) -> None:
    found = FakeRetriever([("a", 0.9, "sick leave"), ("b", 0.8, "annual leave"), ("c", 0.1, "x")])
    rules, top = RuleRerank(), Top(2)
    result = explained(found >> rules >> top, "annual leave")
    assert top_of(result.trace) == {
        "pipeline": ["b", "a"],
        "FakeRetriever": ["a", "b", "c"],
        repr(rules): ["b", "a", "c"],
        repr(top): ["b", "a"],
    }


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
@unless_stalled
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
