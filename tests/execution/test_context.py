"""The context of an answer: its trace, its degradations, its deadline."""

import asyncio
import json
from collections.abc import Callable
from threading import Event

import pytest
from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext import Hit, Query, Retriever, SearchResult
from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.execution import Call, Leg, Plan, Task, Together
from llama_retrieval_ext.execution.context import (
    Context,
    RetrievalDegradedEvent,
    Session,
    current_context,
    entered,
    note_degraded,
    step,
)
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.trace import Trace
from tests.cases import cases
from tests.execution.conftest import Composite, Search
from tests.instrumentation import Recording, recorded
from tests.patience import unless_stalled

Shape = tuple[str, list["Shape"]]


def shape(trace: Trace | None) -> Shape:
    assert trace is not None
    return trace.name, [shape(child) for child in trace.children]


def part(result: SearchResult, *path: str) -> Trace:
    found = result.trace
    for name in path:
        assert found is not None
        found = next(child for child in found.children if child.name == name)
    assert found is not None
    return found


def call(function: Callable[[], object]) -> Plan[object]:
    value: object = yield Call(function)
    return value


class Stepwise(Retriever):
    """Does its work in named steps, one of which has tasks of its own."""

    def __init__(self, *, error: Exception | None = None) -> None:
        super().__init__(top_k=1, name="stepwise")
        self.error = error

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from step("prepare", self._tasks())
        yield from step("look up", call(self._look_up))
        return []

    def _tasks(self) -> Plan[object]:
        yield Together([Task("left", call(str)), Task("right", step("deep", call(str)))])
        return None

    def _look_up(self) -> list[NodeWithScore]:
        if self.error is not None:
            raise self.error
        return FakeRetriever([("one", 0.5), ("two", 0.4)]).hits


STEPS: list[Shape] = [("prepare", [("left", []), ("right", [("deep", [])])]), ("look up", [])]


def test_the_trace_has_the_shape_of_the_retriever(
    fused: Composite, search_anywhere: Search
) -> None:
    inner = fused(Leg("c", FakeRetriever()), Leg("d", FakeRetriever()), name="inner")
    result = search_anywhere(fused(Leg("a", FakeRetriever()), Leg("b", inner)), "query")
    assert shape(result.trace) == ("fused", [("a", []), ("b", [("c", []), ("d", [])])])


def test_steps_are_children_of_their_leg_in_the_trace(fused: Composite, search: Search) -> None:
    result = search(fused(Leg("a", Stepwise()), Leg("b", Stepwise())), "query")
    assert shape(result.trace) == ("fused", [("a", STEPS), ("b", STEPS)])


def test_each_part_of_the_trace_counts_its_hits(fused: Composite, search: Search) -> None:
    legs = [Leg("a", FakeRetriever([("x", 0.5), ("y", 0.4)])), Leg("b", FakeRetriever())]
    result = search(fused(*legs), "query")
    assert (part(result).count, part(result, "a").count, part(result, "b").count) == (2, 2, 0)
    stepwise = search(Stepwise(), "query")
    assert part(stepwise, "look up").count == 2
    assert part(stepwise, "prepare").count is None


@unless_stalled
def test_each_part_of_the_trace_has_start_and_duration(fused: Composite, search: Search) -> None:
    legs = [Leg("slow", FakeRetriever(delay_s=0.05)), Leg("fast", FakeRetriever())]
    trace = search(fused(*legs), "query").trace
    assert trace is not None
    slow, fast = (child["duration_ms"] for child in trace.to_dict()["children"])  # type: ignore[attr-defined]
    assert 50 <= slow < 400
    assert fast < slow
    assert all(0 <= child["start_ms"] < 200 for child in trace.to_dict()["children"])  # type: ignore[attr-defined]
    assert (trace.duration_s or 0) * 1e3 >= slow


def test_the_trace_holds_an_error_at_the_part_that_failed(fused: Composite, search: Search) -> None:
    result = search(fused(Leg("a", Stepwise(error=OSError("gone"))), FakeRetriever()), "query")
    assert part(result, "a").error == "OSError: gone"
    assert part(result, "a", "look up").error == "OSError: gone"
    assert part(result, "a", "prepare").error is None
    assert part(result).error is None


def test_an_embedding_is_a_step_of_its_leg_in_the_trace(
    fused: Composite, embedded: Callable[..., Retriever]
) -> None:
    query = Query("leave", custom_embedding_strs=["annual leave", "sick leave"])
    result = fused(Leg("vector", embedded(FakeEmbedding()))).search(query)
    assert shape(part(result, "vector"))[1] == [("embedding", []), ("embedding", [])]


class GoesOn(Retriever):
    """Runs more steps after its leg was abandoned."""

    def __init__(self) -> None:
        super().__init__(top_k=1)
        self.released, self.ended = Event(), Event()

    def plan(self, query: Query) -> Plan[list[Hit]]:
        yield from step("hangs", call(self.released.wait))
        frame = current_context()
        assert frame is not None
        assert frame.trace is not None
        frame.trace.notes["late"] = True
        with entered(Context(Session(), trace=frame.trace)):  # without the deadline
            yield from step("more", call(self.ended.set))
        return []


@unless_stalled
def test_an_abandoned_leg_does_not_change_the_trace_later(fused: Composite) -> None:
    late = GoesOn()
    result = fused(Leg("late", late, timeout_s=0.2), FakeRetriever()).search("query")
    before = json.dumps(result.to_dict())
    late.released.set()
    assert late.ended.wait(30)
    assert json.dumps(result.to_dict()) == before
    assert shape(part(result, "late")) == ("late", [("hangs", [])])
    assert part(result, "late", "hangs").duration_s is None


def test_plain_retrieval_keeps_no_trace(fused: Composite) -> None:
    frames: list[Context | None] = []

    class Looks(Stepwise):
        def _look_up(self) -> list[NodeWithScore]:
            frames.append(current_context())
            return []

    retriever = fused(Looks())
    retriever.retrieve("query")
    asyncio.run(retriever.aretrieve("query"))
    assert [frame and frame.trace for frame in frames] == [None, None]


def test_the_context_ends_with_the_answer(fused: Composite, search_anywhere: Search) -> None:
    search_anywhere(fused(FakeRetriever()), "query")
    with pytest.raises(TooFewLegsError):
        search_anywhere(fused(FakeRetriever(error=OSError("down"))), "query")
    assert not current_context().session.degraded
    assert current_context() is not current_context()


def test_a_task_is_due_shortly_before_its_parent() -> None:
    outer = Context(Session()).within(1.0)
    inner = outer.within(None)
    assert outer.deadline is not None
    assert inner.deadline is not None
    assert 0.04 < outer.deadline - inner.deadline < 0.06
    assert (inner.within(0.1).remaining_s() or 1) < 0.11


def degradations(recording: Recording, *where: str) -> list[RetrievalDegradedEvent]:
    """The events from there, and not those of legs that an earlier test gave up."""
    found = [event for event in recording.events if isinstance(event, RetrievalDegradedEvent)]
    return [event for event in found if event.where in where]


@cases("way", ["retrieve", "aretrieve", "search"])
def test_a_leg_that_is_left_out_emits_an_event_of_llama_index(fused: Composite, way: str) -> None:
    broken = Leg("broken here", FakeRetriever(error=ConnectionError("down")))
    retriever = fused(fused(broken, FakeRetriever([("a", 0.5)])), FakeRetriever())
    with recorded() as recording:
        if way == "aretrieve":
            asyncio.run(retriever.aretrieve("query"))
        else:
            getattr(retriever, way)("query")
    (event,) = degradations(recording, "leg 0/broken here")
    assert event.reason == "ConnectionError: down"


def test_a_degradation_event_belongs_to_the_span_of_its_composite(fused: Composite) -> None:
    inner = fused(Leg("broken there", FakeRetriever(error=OSError("down"))), FakeRetriever())
    with recorded() as recording:
        fused(inner, FakeRetriever()).retrieve("query")
    (event,) = degradations(recording, "leg 0/broken there")
    (span,) = [span for span in recording.spans if span.id_ == event.span_id]
    assert span.instance is inner


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


@unless_stalled
def test_an_abandoned_leg_does_not_change_the_answer_later(fused: Composite) -> None:
    late = ComplainsLate()
    result = fused(Leg("late", late, timeout_s=0.05), FakeRetriever()).search("query")
    late.released.set()
    assert late.complained.wait(5)
    assert [part.where for part in result.degraded] == ["late"]
