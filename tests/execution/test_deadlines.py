import time
from collections.abc import Callable
from threading import Event
from typing import Self

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext import Hit, Query, Retriever
from llama_retrieval_ext.errors import DeadlineExceededError, TooFewLegsError
from llama_retrieval_ext.execution import Leg
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call, Plan, Sleep, Task, Together
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.testing.fakes import FakeAsyncRetriever, FakeRetriever, HangingRetriever
from tests.execution.conftest import Composite, Search
from tests.patience import SOON_S, unless_stalled

Hanging = Callable[[], HangingRetriever]


class Alone(Retriever):
    """A retriever that is no composite: its plan makes calls."""

    def __init__(self, *calls: Callable[[], object]) -> None:
        super().__init__(top_k=1, name="alone")
        self.calls = calls

    def plan(self, query: Query) -> Plan[list[Hit]]:
        for function in self.calls:
            yield Call(function)
        return []


class Passes(BaseRetriever):
    """A composite of LlamaIndex that passes the query to its child."""

    def __init__(self, child: BaseRetriever) -> None:
        super().__init__()
        self.child = child

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.child.retrieve(query_bundle)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self.child.aretrieve(query_bundle)


class Clock:
    """Measures a block, in seconds."""

    def __enter__(self) -> Self:
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.took = time.perf_counter() - self.began


def test_a_leg_that_hangs_costs_its_timeout(
    fused: Composite, search_anywhere: Search, hanging: Hanging
) -> None:
    late = Leg("late", hanging(), timeout_s=0.1)
    with Clock() as clock:
        result = search_anywhere(fused(late, FakeRetriever([("a", 0.5)])), "query")
    assert 0.1 <= clock.took < SOON_S
    assert node_ids(result.hits) == ["a"]
    assert [(part.where, part.reason) for part in result.degraded] == [
        ("late", "DeadlineExceededError: 'late' did not answer within 0.1 s")
    ]


@pytest.mark.slow
@unless_stalled  # a level keeps 0.05 s at most for itself
def test_the_timeout_of_a_query_bounds_a_tree_of_composites(
    fused: Composite, search_anywhere: Search, hanging: Hanging
) -> None:
    tree = fused(hanging(), fused(hanging(), fused(hanging(), FakeRetriever([("a", 0.5)]))))
    with Clock() as clock:
        result = search_anywhere(tree, Query("query", timeout_s=0.4))
    assert clock.took < 1.15  # three levels with the whole time each would take 1.2
    assert node_ids(result.hits) == ["a"]  # every level still had time for what it got
    assert len(result.degraded) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leg_s", "query_s", "reason"),
    [
        (None, 0.3, "'late' did not answer within the time of the query"),
        (60, 0.3, "'late' did not answer within the time of the query"),
        (0.05, 60, "'late' did not answer within 0.05 s"),
    ],
)
@unless_stalled
def test_a_leg_gets_the_shorter_of_its_timeout_and_the_time_of_the_query(
    fused: Composite,
    search: Search,
    hanging: Hanging,
    leg_s: float | None,
    query_s: float,
    reason: str,
) -> None:
    legs = [Leg("late", hanging(), timeout_s=leg_s), FakeRetriever([("b", 0.4)])]
    with Clock() as clock:
        result = search(fused(*legs), Query("query", timeout_s=query_s))
    assert clock.took < SOON_S
    assert node_ids(result.hits) == ["b"]
    (missing,) = result.degraded
    assert missing.reason.endswith(reason)


@unless_stalled  # a thread that starts after the deadline says only that the time is over
def test_the_timeout_of_a_query_bounds_a_retriever_without_legs(search: Search) -> None:
    released = Event()
    try:
        with Clock() as clock, pytest.raises(TimeoutError, match=r"'alone'.*0\.25 s") as caught:
            search(Alone(released.wait), Query("query", timeout_s=0.25))
    finally:
        released.set()
    assert isinstance(caught.value, DeadlineExceededError)
    assert clock.took < SOON_S


@unless_stalled  # the first call must begin in time
def test_no_call_begins_after_the_deadline() -> None:
    release, ended, called = Event(), Event(), Event()

    def first() -> None:
        release.wait()
        ended.set()

    with pytest.raises(DeadlineExceededError):
        Alone(first, called.set).search("query", timeout_s=0.1)
    release.set()
    assert ended.wait(SOON_S)
    assert not called.wait(0.05)


@unless_stalled
def test_the_timeout_of_a_query_passes_through_a_composite_of_llama_index(
    fused: Composite, search: Search, hanging: Hanging
) -> None:
    inner = fused(hanging(), FakeRetriever([("a", 0.5)]))
    with Clock() as clock:
        result = search(fused(Passes(inner)), Query("query", timeout_s=0.15))
    assert clock.took < SOON_S
    assert node_ids(result.hits) == ["a"]
    assert [part.where for part in result.degraded] == ["leg 0/leg 0"]


def test_a_nested_query_has_no_more_time_than_the_outer_one(
    fused: Composite, hanging: Hanging
) -> None:
    inner = fused(hanging())
    outer = Alone(lambda: inner.search("inner", timeout_s=60))
    with Clock() as clock, pytest.raises((DeadlineExceededError, TooFewLegsError)):
        outer.search("query", timeout_s=0.1)
    assert clock.took < SOON_S


@pytest.mark.slow
@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
@unless_stalled
def test_a_late_leg_is_late_in_every_position(
    fused: Composite, search: Search, order: slice
) -> None:
    late = Leg("late", FakeAsyncRetriever([("late", 1.0)], delay_s=0.15), timeout_s=0.03)
    slow = Leg("slow", FakeAsyncRetriever([("slow", 0.5)], delay_s=0.2))
    result = search(fused(*[late, slow][order]), "query")
    assert node_ids(result.hits) == ["slow"]
    assert [part.where for part in result.degraded] == ["late"]


@pytest.mark.slow
@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
@unless_stalled
def test_the_trace_shows_how_long_a_late_leg_was_waited_for(
    fused: Composite, search: Search, hanging: Hanging, order: slice
) -> None:
    legs = [Leg("late", hanging(), timeout_s=0.05), Leg("slow", FakeRetriever(delay_s=0.25))]
    result = search(fused(*legs[order]), "query")
    assert result.trace is not None
    parts = {part.name: part for part in result.trace.children}
    late, slow = parts["late"], parts["slow"]
    assert late.duration_s is not None
    assert slow.duration_s is not None
    assert 0.04 < late.duration_s < slow.duration_s - 0.05
    assert late.error is not None
    assert late.error.startswith("DeadlineExceededError")


def test_a_sleep_ends_with_the_deadline() -> None:
    ended = Event()

    def plan() -> Plan[None]:
        yield Sleep(60)
        ended.set()

    def limited() -> Plan[BaseException | None]:
        (outcome,) = yield Together([Task("waits", plan(), 0.05)])
        return outcome.error  # type: ignore[no-any-return]

    with Clock() as clock:
        run(limited())
    assert clock.took < SOON_S
    assert ended.wait(SOON_S)  # its thread does not linger
