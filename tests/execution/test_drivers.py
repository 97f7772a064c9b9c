import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from functools import partialmethod
from threading import get_ident
from typing import Any
from unittest.mock import AsyncMock

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.execution.drivers import arun, awaits, run
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Call, Effect, Plan, Sleep, Task, Together
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.testing.fakes import FakeAsyncRetriever, FakeRetriever, HangingRetriever
from tests.cases import cases
from tests.execution.conftest import Composite, Search
from tests.meeting import Meeting, Meets, MeetsAsync, met_by_the_loop


async def numbers() -> AsyncIterator[int]:
    yield 1


class Methods:
    """Methods of a model or retriever."""

    async def blocks(self) -> None:
        time.sleep(0)  # noqa: ASYNC251 - as LlamaIndex's default methods do

    async def waits(self) -> None:
        await asyncio.sleep(0)

    async def iterates(self) -> None:
        async for _ in numbers():
            pass

    async def locks(self) -> None:
        async with asyncio.Lock():
            pass

    async def delegates(self) -> None:
        async def later() -> None:
            await asyncio.sleep(0)

        later().close()

    mocked = AsyncMock()
    bound = partialmethod(waits)


USER: ContextVar[str] = ContextVar("user", default="nobody")


def plan_of(*effects: Effect) -> Plan[list[object]]:
    answers = []
    for effect in effects:
        answers.append((yield effect))  # noqa: PERF401 - a comprehension cannot yield
    return answers


def raising(error: BaseException) -> Call[object]:
    def function() -> object:
        raise error

    return Call(function)


def drive_on_a_loop(plan: Plan[Any]) -> Any:
    return asyncio.run(arun(plan))


Driver = Callable[[Plan[Any]], Any]
both_drivers = pytest.mark.parametrize("drive", [run, drive_on_a_loop], ids=["run", "arun"])


@cases(
    ("name", "expected"),
    [
        ("blocks", False),
        ("waits", True),
        ("iterates", True),
        ("locks", True),
        ("delegates", False),
        ("mocked", True),
        ("bound", True),
    ],
)
def test_an_async_method_without_an_await_of_its_own_blocks_the_event_loop(
    name: str, expected: bool
) -> None:
    assert awaits(getattr(Methods(), name)) is expected


class TellsWhere(BaseRetriever):
    """A foreign leg, sync only, that notes the thread it runs in and a context variable."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.users: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.threads.append(get_ident())
        self.users.append(USER.get())
        return []


class TellsWhereAsync(TellsWhere):
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._retrieve(query_bundle)


@both_drivers
def test_outcomes_of_tasks_are_in_the_order_of_the_tasks(drive: Driver) -> None:
    def slow() -> Plan[str]:
        yield Sleep(0.05)
        return "slow"

    tasks = [
        Task("slow", slow()),
        Task("fails", plan_of(raising(ValueError("no")))),
        Task("none", plan_of()),
    ]
    (outcomes,) = drive(plan_of(Together(tasks)))
    assert [outcome.value for outcome in outcomes] == ["slow", None, []]
    assert str(outcomes[1].error) == "no"
    with pytest.raises(ValueError, match="no"):
        outcomes[1].result()


def test_the_async_driver_prefers_the_coroutine_of_a_call() -> None:
    async def coroutine() -> str:
        return "async"

    call = Call(lambda: "sync", coroutine)
    assert run(plan_of(call)) == ["sync"]
    assert asyncio.run(arun(plan_of(call))) == ["async"]


@pytest.mark.parametrize("kind", [Meets, MeetsAsync])
def test_legs_are_searched_concurrently(
    fused: Composite, search_anywhere: Search, kind: type[Meets]
) -> None:
    meeting = Meeting(3)
    result = search_anywhere(fused(*(kind([(name, 0.5)], meeting) for name in "abc")), "query")
    assert node_ids(result.hits) == ["a", "b", "c"]


def test_legs_without_async_never_block_the_event_loop(fused: Composite) -> None:
    meeting = Meeting(4)
    retriever = fused(*(Meets([(name, 0.5)], meeting) for name in "abc"))
    result = asyncio.run(met_by_the_loop(retriever, meeting))
    assert node_ids(result.hits) == ["a", "b", "c"]


def test_context_variables_reach_every_leg(fused: Composite, search_anywhere: Search) -> None:
    legs = [TellsWhere(), TellsWhereAsync(), TellsWhere()]
    token = USER.set("ada")
    try:
        search_anywhere(fused(*legs[:2], fused(legs[2])), "query")
    finally:
        USER.reset(token)
    assert [leg.users for leg in legs] == [["ada"]] * 3


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_leg_ends_the_query(
    fused: Composite, search_anywhere: Search, error: type[BaseException], place: int
) -> None:
    legs = [FakeRetriever([("a", 0.5)]), FakeRetriever([("b", 0.5)])]
    legs[place].error = error()
    with pytest.raises(error):
        search_anywhere(fused(*legs), "query")


def test_a_cancelled_query_ends_at_once_while_its_legs_hang(
    fused: Composite, hanging: Callable[[], HangingRetriever]
) -> None:
    leg = hanging()
    retriever = fused(leg, fused(hanging()))

    async def cancel_it() -> float:
        answer = asyncio.create_task(retriever.aretrieve("query"))
        await asyncio.to_thread(leg.asked.wait)
        answer.cancel()
        began = time.perf_counter()
        with pytest.raises(asyncio.CancelledError):
            await answer
        return time.perf_counter() - began

    assert asyncio.run(cancel_it()) < 30


class Waits(FakeRetriever):
    """Never answers; records that it was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = asyncio.Event()

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return []


async def test_a_cancelled_query_cancels_its_async_legs(fused: Composite) -> None:
    legs = [Waits(), Waits()]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await fused(legs[0], fused(legs[1])).aretrieve("query")
    for leg in legs:
        await asyncio.wait_for(leg.cancelled.wait(), 30)


async def test_a_late_async_leg_is_cancelled_with_the_answer(fused: Composite) -> None:
    late = Waits()
    await fused(Leg("late", late, timeout_s=0.1), FakeRetriever()).aretrieve("query")
    await asyncio.wait_for(late.cancelled.wait(), 30)


def test_a_leg_that_raises_stop_iteration_fails_like_any_other(
    fused: Composite, search: Search
) -> None:
    legs = [FakeRetriever(error=StopIteration("empty")), FakeRetriever([("a", 0.5)])]
    result = search(fused(*legs), "query")
    assert node_ids(result.hits) == ["a"]
    assert "StopIteration" in result.degraded[0].reason


@pytest.mark.parametrize("leg", [FakeRetriever, FakeAsyncRetriever])
def test_a_leg_that_is_cancelled_from_inside_fails_like_any_other(
    fused: Composite, search_anywhere: Search, leg: type[FakeRetriever]
) -> None:
    own = leg(error=asyncio.CancelledError("a connection was closed"))
    result = search_anywhere(fused(Leg("own", own), FakeRetriever([("a", 0.9)])), "query")
    assert node_ids(result.hits) == ["a"]
    assert [part.where for part in result.degraded] == ["own"]
    assert "was cancelled" in result.degraded[0].reason


def test_a_loop_can_be_closed_while_a_late_leg_runs(
    fused: Composite, hanging: Callable[[], HangingRetriever]
) -> None:
    leg = hanging()
    retriever = fused(Leg("late", leg, timeout_s=0.02), FakeRetriever([("a", 0.5)]))
    hits = asyncio.run(retriever.aretrieve("query"))
    leg.release()  # its thread ends after the loop has gone
    assert node_ids(hits) == ["a"]
