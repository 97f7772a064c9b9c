import asyncio
from collections.abc import Callable
from threading import Event

import pytest

from llama_retrieval_ext.execution.context import RetrievalDegradedEvent, note_degraded
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.instrumentation import Recording, recorded
from llama_retrieval_ext.trace import Degradation

Composite = Callable[..., Retriever]


def degradations(recording: Recording, *where: str) -> list[RetrievalDegradedEvent]:
    """The events from there, and not those of legs that an earlier test gave up."""
    found = [event for event in recording.events if isinstance(event, RetrievalDegradedEvent)]
    return [event for event in found if event.where in where]


@pytest.mark.parametrize("way", ["retrieve", "aretrieve", "search"])
def test_a_leg_that_is_left_out_is_an_event_of_llama_index(fused: Composite, way: str) -> None:
    broken = Leg("broken here", FakeRetriever(error=ConnectionError("down")))
    retriever = fused(fused(broken, FakeRetriever([("a", 0.5)])), FakeRetriever())
    with recorded() as recording:
        if way == "aretrieve":
            asyncio.run(retriever.aretrieve("query"))
        else:
            getattr(retriever, way)("query")
    (event,) = degradations(recording, "leg 0/broken here")
    assert event.reason == "ConnectionError: down"


def test_an_event_belongs_to_the_span_of_the_composite_it_happened_in(fused: Composite) -> None:
    inner = fused(Leg("broken there", FakeRetriever(error=OSError("down"))), FakeRetriever())
    with recorded() as recording:
        fused(inner, FakeRetriever()).retrieve("query")
    (event,) = degradations(recording, "leg 0/broken there")
    (span,) = [each for each in recording.spans if each.id_ == event.span_id]
    assert span.instance is inner


def test_outside_an_answer_only_the_event_is_told() -> None:
    with recorded() as recording:
        note_degraded("stage", "no model")
        note_degraded("other stage", TimeoutError())
    told = degradations(recording, "stage", "other stage")
    assert [event.reason for event in told] == ["no model", "TimeoutError"]


def test_answers_do_not_share_what_they_lack(fused: Composite) -> None:
    leg = FakeRetriever([("b", 0.1)], error=ConnectionError("down"))
    retriever = fused(Leg("leg", leg), FakeRetriever([("a", 0.5)]))
    first = retriever.search("query")
    leg.error = None
    second = retriever.search("query")
    assert first.degraded == (Degradation("leg", "ConnectionError: down"),)
    assert second.degraded == ()


class ComplainsLate(Retriever):
    """Waits for something, and then says that a part is missing."""

    def __init__(self) -> None:
        super().__init__(top_k=1)
        self.released, self.complained = Event(), Event()

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield Call(self.released.wait)
        note_degraded("late leg", "too late")
        self.complained.set()
        return []


def test_a_leg_that_was_given_up_does_not_change_the_answer_later(fused: Composite) -> None:
    late = ComplainsLate()
    result = fused(Leg("late", late, timeout_s=0.05), FakeRetriever()).search("query")
    late.released.set()
    assert late.complained.wait(5)
    assert [part.where for part in result.degraded] == ["late"]
