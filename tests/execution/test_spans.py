import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent

from llama_retrieval_ext import Query, Retriever
from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.testing.fakes import FakeAsyncRetriever, FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.execution.conftest import Composite, Search
from tests.instrumentation import Recording, SeenSpan, recorded

LEVELS = ("retrieve", "aretrieve")


def spans_of(recording: Recording, *retrievers: BaseRetriever) -> list[SeenSpan]:
    """Their spans, and not those of legs that an earlier test gave up."""
    return [span for span in recording.spans if span.instance in retrievers]


def parents(recording: Recording, *retrievers: BaseRetriever) -> dict[object, object]:
    """Which retriever stands around each; each must have one span."""
    spans = [span for span in spans_of(recording, *retrievers) if span.method in LEVELS]
    assert len(spans) == len(retrievers)
    found: dict[object, object] = {}
    for span in spans:
        around = recording.parent_of(span, *LEVELS)
        found[span.instance] = None if around is None else around.instance
    return found


@cases("timeout_s", [None, 60])
def test_every_level_is_one_span_within_the_span_of_its_parent(
    fused: Composite, search_anywhere: Search, timeout_s: float | None
) -> None:
    leaves: list[BaseRetriever] = [FakeRetriever(), FakeAsyncRetriever(), FakeRetriever()]
    innermost = fused(leaves[0], leaves[1])
    inner = fused(Leg("limited", innermost, timeout_s=60), leaves[2])
    outer = fused(inner)
    with recorded() as recording:
        search_anywhere(outer, Query("query", timeout_s=timeout_s))
    assert parents(recording, outer, inner, innermost, *leaves) == {
        outer: None,
        inner: outer,
        innermost: inner,
        leaves[0]: innermost,
        leaves[1]: innermost,
        leaves[2]: inner,
    }


def test_a_level_has_the_spans_of_llama_index_and_no_others(fused: Composite) -> None:
    leg = FakeRetriever()
    retriever = fused(leg)
    with recorded() as recording:
        retriever.retrieve("query")
    assert [span.method for span in spans_of(recording, retriever)] == ["retrieve"]
    assert [span.method for span in spans_of(recording, leg)] == ["retrieve", "_retrieve"]


def test_every_span_ends_when_legs_fail(fused: Composite, search: Search) -> None:
    legs = [FakeRetriever(error=OSError("down")), FakeAsyncRetriever(error=OSError("down"))]
    inner = fused(*legs, FakeRetriever())
    outer = fused(inner)
    with recorded() as recording:
        search(outer, "query")
    spans = spans_of(recording, outer, inner, *legs)
    assert len(spans) >= 4
    assert all(span.ended for span in spans)


def test_every_retrieval_start_event_has_an_end_event(fused: Composite, search: Search) -> None:
    text = "a query of this test alone"
    with recorded() as recording:
        search(fused(fused(FakeRetriever()), FakeAsyncRetriever()), text)
    events = [
        type(event)
        for event in recording.events
        if isinstance(event, RetrievalStartEvent | RetrievalEndEvent)
        and str(event.str_or_query_bundle) == text
    ]
    assert events.count(RetrievalStartEvent) == events.count(RetrievalEndEvent) == 4


def test_a_failing_retrieval_ends_once_at_each_level(fused: Composite, search: Search) -> None:
    text = "a query of a test that fails"
    inner = fused(FakeRetriever(error=OSError("down")))
    outer = fused(Leg("inner", inner, required=True))
    with recorded() as recording, pytest.raises(TooFewLegsError):
        search(outer, text)
    for level in (outer, inner):
        (span,) = spans_of(recording, level)
        events = [event for event in recording.events if event.span_id == span.id_]
        kinds = (RetrievalStartEvent, ExceptionEvent, RetrievalEndEvent)
        assert [type(event) for event in events if isinstance(event, kinds)] == [*kinds]
        (ended,) = (event for event in events if isinstance(event, RetrievalEndEvent))
        assert (str(ended.str_or_query_bundle), ended.nodes) == (text, [])
        assert span.ended


def test_a_cancelled_retrieval_has_an_end_event(fused: Composite) -> None:
    retriever = fused(FakeAsyncRetriever(delay_s=60))

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(retriever.aretrieve("a query that is cancelled"), 0.05)

    with recorded() as recording:
        asyncio.run(give_up())
    (span,) = spans_of(recording, retriever)
    ended = [event for event in recording.events if isinstance(event, RetrievalEndEvent)]
    assert span.id_ in {event.span_id for event in ended}


def test_the_embedding_belongs_to_the_leg_that_computes_it(
    fused: Composite, embedded: Callable[..., Retriever], search: Search
) -> None:
    models = [FakeEmbedding(delay_s=0.01), FakeEmbedding(delay_s=0.01)]
    legs = [embedded(model) for model in models]
    with recorded() as recording:
        search(fused(*legs), "query")
    for model, leg in zip(models, legs, strict=True):
        calls = recording.of_methods("get_query_embedding", "aget_query_embedding")
        (span,) = [span for span in calls if span.instance is model]
        around = recording.parent_of(span, *LEVELS)
        assert around is not None
        assert around.instance is leg


def test_concurrent_queries_have_separate_spans(fused: Composite) -> None:
    legs = [FakeRetriever(delay_s=0.01) for _ in "abc"]
    trees = [fused(leg, FakeAsyncRetriever(delay_s=0.01)) for leg in legs]

    async def all_at_once() -> None:
        await asyncio.gather(*(tree.aretrieve("query") for tree in trees))

    with recorded() as recording:
        asyncio.run(all_at_once())
    found = parents(recording, *trees, *legs)
    assert [found[tree] for tree in trees] == [None] * 3
    assert [found[leg] for leg in legs] == trees
