"""SingleFlight runs equal calls once."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from threading import Barrier, Event, Thread

import pytest

from llama_retrieval_ext.errors import DeadlineExceededError
from llama_retrieval_ext.execution.context import SingleFlight
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Plan, Task, Together
from tests.patience import unless_stalled


class Maker:
    """Makes a value slowly and counts how often; fails while `error` is set."""

    def __init__(self, *, delay_s: float = 0.02) -> None:
        self.made = 0
        self.delay_s = delay_s
        self.error: Exception | None = None

    def call(self) -> Call[str]:
        return Call(self.make, self.amake)

    def make(self) -> str:
        time.sleep(self.delay_s)
        return self._value()

    async def amake(self) -> str:
        await asyncio.sleep(self.delay_s)
        return self._value()

    def _value(self) -> str:
        self.made += 1
        if self.error is not None:
            raise self.error
        return f"value {self.made}"


@pytest.fixture
def memo() -> SingleFlight:
    return SingleFlight()


@pytest.fixture
def maker() -> Maker:
    return Maker()


def concurrent(memo: SingleFlight, maker: Maker, number: int = 5) -> Plan[list[object]]:
    tasks = [Task(str(place), memo.get("key", maker.call())) for place in range(number)]
    outcomes = yield Together(tasks)
    return [outcome.value or outcome.error for outcome in outcomes]


def in_threads(plan: Plan[list[object]]) -> list[object]:
    return run(plan)


def on_a_loop(plan: Plan[list[object]]) -> list[object]:
    return asyncio.run(arun(plan))


Drive = Callable[[Plan[list[object]]], list[object]]
both_drivers = pytest.mark.parametrize("drive", [in_threads, on_a_loop])


@both_drivers
def test_concurrent_calls_of_a_key_share_one_value(
    memo: SingleFlight, maker: Maker, drive: Drive
) -> None:
    assert drive(concurrent(memo, maker)) == ["value 1"] * 5
    assert maker.made == 1


@both_drivers
def test_a_failure_reaches_every_waiting_call_and_is_not_kept(
    memo: SingleFlight, maker: Maker, drive: Drive
) -> None:
    maker.error, maker.delay_s = ConnectionError("down"), 0.1  # all five ask meanwhile
    assert set(drive(concurrent(memo, maker))) == {maker.error}
    failures, maker.error = maker.made, None
    assert failures == 1
    assert drive(concurrent(memo, maker)) == ["value 2"] * 5


@unless_stalled
def test_a_waiting_call_takes_over_when_the_first_is_cancelled(
    memo: SingleFlight, maker: Maker
) -> None:
    async def cancel_the_first() -> tuple[bool, list[str]]:
        first = asyncio.create_task(arun(memo.get("key", maker.call())))
        await asyncio.sleep(0)
        others = [asyncio.create_task(arun(memo.get("key", maker.call()))) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        values = await asyncio.gather(*others)
        return first.cancelled(), values

    assert asyncio.run(cancel_the_first()) == (True, ["value 1"] * 3)


@unless_stalled
def test_cancelling_a_waiting_call_cancels_no_other(memo: SingleFlight, maker: Maker) -> None:
    async def cancel_the_second() -> list[str | BaseException]:
        tasks = [asyncio.create_task(arun(memo.get("key", maker.call()))) for _ in range(3)]
        await asyncio.sleep(0.001)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third = asyncio.run(cancel_the_second())
    assert (first, third) == ("value 1", "value 1")
    assert isinstance(second, asyncio.CancelledError)


def test_a_waiting_call_takes_over_when_the_first_runs_out_of_time(memo: SingleFlight) -> None:
    maker, begun, waits = Maker(delay_s=0), Event(), Event()

    def out_of_time() -> Call[str]:
        def function() -> str:
            begun.set()
            waits.wait()
            raise DeadlineExceededError("the time of the leg ran out")

        return Call(function)

    def both() -> Plan[list[object]]:
        first = Task("first", memo.get("key", out_of_time()))
        second = Task("second", second_plan())
        outcomes = yield Together([first, second])
        return [outcome.value or type(outcome.error) for outcome in outcomes]

    def second_plan() -> Plan[str]:
        yield Call(begun.wait)
        waits.set()
        return (yield from memo.get("key", maker.call()))

    assert run(both()) == [DeadlineExceededError, "value 1"]


def test_threads_and_event_loops_share_a_value(memo: SingleFlight) -> None:
    maker, start, values = Maker(delay_s=0.05), Barrier(4), []

    def in_a_thread() -> None:
        start.wait()
        values.append(run(memo.get("key", maker.call())))

    def in_a_loop() -> None:
        start.wait()
        values.append(asyncio.run(arun(memo.get("key", maker.call()))))

    threads = [Thread(target=target) for target in (in_a_thread, in_a_loop) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == ["value 1"] * 4


def test_a_sync_call_on_a_loop_does_not_wait_for_a_task_of_that_loop(memo: SingleFlight) -> None:
    """Another retriever may call ours in this way; waiting would block both for ever."""
    maker = Maker()

    async def call_on_the_loop() -> list[str]:
        task = asyncio.create_task(arun(memo.get("key", maker.call())))
        await asyncio.sleep(0)  # it has begun, and needs the loop to go on
        blocking = run(memo.get("key", maker.call()))
        return [blocking, await task, run(memo.get("key", maker.call()))]

    assert asyncio.run(asyncio.wait_for(call_on_the_loop(), 30)) == [
        "value 1",
        "value 2",
        "value 2",
    ]


def test_beyond_its_size_single_flight_drops_the_oldest_values() -> None:
    memo, made = SingleFlight(most=2), list[int]()
    for key in (1, 2, 1, 3, 2, 1):
        run(memo.get(key, Call(partial(made.append, key))))
    assert made == [1, 2, 3, 1]
