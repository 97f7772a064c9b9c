import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from functools import partial, partialmethod
from threading import get_ident
from typing import Any
from unittest.mock import AsyncMock

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_retrieval_ext.execution.drivers import DaemonPool, arun, awaits, run
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Call, Effect, Plan, Sleep, Task, Together
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.stores.engine.connection import LoopThread
from llama_retrieval_ext.testing.fakes import FakeAsyncRetriever, FakeRetriever, HangingRetriever
from tests.cases import cases
from tests.execution.conftest import Composite, Search
from tests.meeting import Meeting, Meets, MeetsAsync, met_by_the_loop
from tests.patience import soon
from tests.programs import run_program


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


@cases("kind", [Meets, MeetsAsync])
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


@cases("leg", [FakeRetriever, FakeAsyncRetriever])
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


@pytest.fixture
def pool() -> DaemonPool:
    return DaemonPool()


def script(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-u", "-W", "error", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_pool_reuses_an_idle_thread(pool: DaemonPool) -> None:
    idents = set()
    for _ in range(20):
        idents.add(pool.submit(threading.get_ident).result(30))
        time.sleep(0.001)  # its thread is idle again
    assert len(idents) <= 2


def test_an_idle_thread_of_the_pool_keeps_no_reference(pool: DaemonPool) -> None:
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    pool.submit(partial(id, big)).result(30)
    del big
    give_up_at = time.monotonic() + 30
    while gone() is not None and time.monotonic() < give_up_at:
        time.sleep(0.005)
    assert gone() is None


def test_the_pool_does_not_run_a_cancelled_function(pool: DaemonPool) -> None:
    called = threading.Event()
    future = pool.submit(called.set)
    cancelled = future.cancel()  # or it has begun
    assert cancelled is not called.wait(0.05)


@pytest.mark.parametrize("way", ["threads", "loop"])
def test_composites_ten_deep_and_four_wide_do_not_deadlock(fused: Composite, way: str) -> None:
    tree: Retriever = fused(*(FakeRetriever([("bottom", 1.0)]) for _ in range(4)))
    for depth in range(9):
        tree = fused(tree, *(FakeRetriever([(f"n{depth}", 0.5)]) for _ in range(3)))
    in_threads = way == "threads"
    hits = tree.retrieve("query") if in_threads else asyncio.run(tree.aretrieve("query"))
    assert node_ids(hits)[0] == "bottom"
    assert len(hits) == 10


@pytest.mark.slow
def test_a_forked_child_has_its_own_threads() -> None:
    done = run_program(
        """
        import os
        from llama_retrieval_ext.execution.drivers import pool
        assert pool.submit(lambda: 1).result(30) == 1  # its thread is idle, and stays behind
        child = os.fork()
        if child == 0:
            os._exit(pool.submit(lambda: 42).result(30))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), pool.submit(lambda: 1).result(30))
        """
    )
    assert done.stdout.split() == ["42", "1"], done.stderr


@pytest.mark.slow
def test_a_hanging_function_does_not_delay_the_end_of_the_program() -> None:
    done = script(
        """
        import threading
        from llama_retrieval_ext.execution.drivers import pool
        begun = threading.Event()
        pool.submit(lambda: begun.set() or threading.Event().wait())
        print(begun.wait(30))
        """
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


def test_a_loop_thread_can_be_closed_from_its_own_thread() -> None:
    loop = LoopThread("own")

    async def close() -> threading.Thread:
        loop.close()
        return threading.current_thread()

    thread = asyncio.run(asyncio.wait_for(loop.run(close()), 30))
    thread.join(30)
    assert not thread.is_alive()


def test_closing_a_loop_thread_cancels_those_who_wait() -> None:
    loop = LoopThread("waiting")

    async def waiting() -> None:
        task = asyncio.create_task(loop.run(asyncio.sleep(60)))
        await asyncio.sleep(0.05)
        loop.close()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)

    with soon():
        asyncio.run(waiting())


def test_an_error_while_closing_a_loop_thread_is_raised() -> None:
    async def failing() -> None:
        raise ConnectionError("not closed")

    with pytest.raises(ConnectionError, match="not closed"):
        LoopThread("failing").close(failing())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_a_forked_child_makes_its_own_loop_thread() -> None:
    code = """
    import asyncio, os, signal
    from llama_retrieval_ext.stores.engine.connection import AsyncClient

    class Client:
        async def answer(self):
            return os.getpid()

        async def close(self):
            print("closed")

    def answered(client):
        assert asyncio.run(client.run(lambda each: each.answer())) == os.getpid()

    used, other = (AsyncClient(Client, ValueError) for _ in range(2))
    answered(used), answered(other)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # otherwise it could hang
        answered(used), used.close(), other.close()
    else:
        assert os.waitpid(child, 0)[1] == 0
        answered(used), used.close(), other.close()
    """
    done = run_program(code)
    assert (done.stderr, done.returncode, done.stdout) == ("", 0, "closed\n" * 3)


def test_an_error_after_the_caller_was_cancelled_is_not_logged() -> None:
    loop = LoopThread("late")
    logged: list[object] = []
    ended = threading.Event()

    async def fails_when_cancelled() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise ConnectionError("the answer came too late") from None

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.run(fails_when_cancelled()), 0.05)

    asyncio.run(impatient())
    assert ended.wait(30)
    loop.close()
    gc.collect()
    assert logged == []
