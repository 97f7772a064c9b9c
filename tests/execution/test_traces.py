import asyncio
import json
from collections.abc import Callable
from threading import Event

import pytest
from llama_index.core.schema import NodeWithScore, QueryType

from llama_retrieval_ext.errors import TooFewLegsError
from llama_retrieval_ext.execution.context import Context, Session, current_context, entered, step
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Call, Plan, Task, Together
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.trace import Trace

Search = Callable[[Retriever, QueryType], SearchResult]
Composite = Callable[..., Retriever]
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


def test_the_trace_has_the_shape_of_the_tree(fused: Composite, search_anywhere: Search) -> None:
    inner = fused(Leg("c", FakeRetriever()), Leg("d", FakeRetriever()), name="inner")
    result = search_anywhere(fused(Leg("a", FakeRetriever()), Leg("b", inner)), "query")
    assert shape(result.trace) == ("fused", [("a", []), ("b", [("c", []), ("d", [])])])


def test_steps_stand_where_they_happened(fused: Composite, search: Search) -> None:
    result = search(fused(Leg("a", Stepwise()), Leg("b", Stepwise())), "query")
    assert shape(result.trace) == ("fused", [("a", STEPS), ("b", STEPS)])


def test_a_limit_of_time_adds_only_the_task_that_it_bounds(search: Search) -> None:
    assert shape(search(Stepwise(), Query("query", timeout_s=60)).trace) == (
        "stepwise",
        [("stepwise", STEPS)],
    )


def test_each_part_counts_its_hits(fused: Composite, search: Search) -> None:
    legs = [Leg("a", FakeRetriever([("x", 0.5), ("y", 0.4)])), Leg("b", FakeRetriever())]
    result = search(fused(*legs), "query")
    assert (part(result).count, part(result, "a").count, part(result, "b").count) == (2, 2, 0)
    stepwise = search(Stepwise(), "query")
    assert part(stepwise, "look up").count == 2
    assert part(stepwise, "prepare").count is None


def test_each_part_says_when_it_began_and_how_long_it_took(
    fused: Composite, search: Search
) -> None:
    legs = [Leg("slow", FakeRetriever(delay_s=0.05)), Leg("fast", FakeRetriever())]
    told = search(fused(*legs), "query").trace
    assert told is not None
    slow, fast = (child["duration_ms"] for child in told.to_dict()["children"])  # type: ignore[attr-defined]
    assert 50 <= slow < 400
    assert fast < slow
    assert all(0 <= child["start_ms"] < 200 for child in told.to_dict()["children"])  # type: ignore[attr-defined]
    assert (told.duration_s or 0) * 1e3 >= slow


def test_errors_stand_with_the_part_they_ended(fused: Composite, search: Search) -> None:
    result = search(fused(Leg("a", Stepwise(error=OSError("gone"))), FakeRetriever()), "query")
    assert part(result, "a").error == "OSError: gone"
    assert part(result, "a", "look up").error == "OSError: gone"
    assert part(result, "a", "prepare").error is None
    assert part(result).error is None


def test_every_part_of_a_whole_answer_is_finished(fused: Composite, search: Search) -> None:
    def finished(trace: Trace) -> bool:
        return trace.duration_s is not None and all(map(finished, trace.children))

    assert finished(part(search(fused(Stepwise(), fused(Stepwise())), "query")))


def test_an_explanation_notes_the_best_hits_of_every_retriever(fused: Composite) -> None:
    rows = [(f"n{place}", 1 - place / 10) for place in range(8)]
    inner = fused(Leg("leaf", FakeRetriever(rows)), name="inner")
    result = fused(Leg("inner", inner)).explain("query")
    best = ["n0", "n1", "n2", "n3", "n4"]
    assert part(result).notes == {"top": best}
    assert part(result, "inner").notes == {"top": best}
    plain = fused(Leg("inner", inner)).search("query")
    assert part(plain, "inner").notes == {}


def test_an_embedding_is_a_step_of_the_leg_that_computes_it(
    fused: Composite, embedded: Callable[..., Retriever]
) -> None:
    query = Query("leave", custom_embedding_strs=["annual leave", "sick leave"])
    result = fused(Leg("vector", embedded(FakeEmbedding()))).search(query)
    assert shape(part(result, "vector"))[1] == [("embedding", []), ("embedding", [])]


class GoesOn(Retriever):
    """Goes on with more steps after it was given up."""

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


def test_a_leg_that_was_given_up_does_not_change_the_trace_later(fused: Composite) -> None:
    late = GoesOn()
    result = fused(Leg("late", late, timeout_s=0.2), FakeRetriever()).search("query")
    before = json.dumps(result.to_dict())
    late.released.set()
    assert late.ended.wait(5)
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


def test_after_an_answer_its_context_is_left(fused: Composite, search_anywhere: Search) -> None:
    search_anywhere(fused(FakeRetriever()), "query")
    with pytest.raises(TooFewLegsError):
        search_anywhere(fused(FakeRetriever(error=OSError("down"))), "query")
    assert not current_context().session.degraded
    assert current_context() is not current_context()


def test_a_step_outside_an_answer_is_the_plan_itself() -> None:
    assert run(step("step", call(lambda: "value"))) == "value"
    assert asyncio.run(arun(step("step", call(lambda: "value")))) == "value"
    with pytest.raises(OSError, match="gone"):
        run(step("step", Stepwise(error=OSError("gone")).plan(Query("query"))))
