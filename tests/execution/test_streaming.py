import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from threading import Event, Thread

import pytest

from llama_retrieval_ext.execution.running import astream, stream

Report = Callable[[str], object]
USER: ContextVar[str] = ContextVar("user", default="nobody")


def work(report: Report) -> str:
    report("first")
    report("second")
    return "last"


async def awork(report: Report) -> str:
    report("first")
    await asyncio.sleep(0)
    report("second")
    return "last"


def test_reports_come_in_order_and_the_result_comes_last() -> None:
    assert list(stream(work)) == ["first", "second", "last"]


def test_a_report_comes_when_it_is_made() -> None:
    def slow(report: Report) -> str:
        report("early")
        assert reporting.wait(10)
        return "late"

    reporting = Event()
    reports = stream(slow)
    assert next(reports) == "early"
    reporting.set()
    assert next(reports) == "late"


def test_context_variables_reach_the_work() -> None:
    token = USER.set("ada")
    try:
        assert list(stream(lambda report: USER.get())) == ["ada"]
    finally:
        USER.reset(token)


def test_an_error_comes_after_what_was_reported_before_it() -> None:
    def fails(report: Report) -> str:
        report("first")
        raise ConnectionError("down")

    reports = stream(fails)
    assert next(reports) == "first"
    with pytest.raises(ConnectionError, match="down"):
        next(reports)


async def test_on_a_loop_reports_come_in_order_and_the_result_last() -> None:
    assert [value async for value in astream(awork)] == ["first", "second", "last"]


async def test_on_a_loop_a_thread_may_report() -> None:
    async def threaded(report: Report) -> str:
        thread = Thread(target=report, args=("from a thread",))
        thread.start()
        await asyncio.to_thread(thread.join)
        return "last"

    assert [value async for value in astream(threaded)] == ["from a thread", "last"]


async def test_on_a_loop_an_error_comes_after_what_was_reported_before_it() -> None:
    async def fails(report: Report) -> str:
        report("first")
        raise ConnectionError("down")

    reports = astream(fails)
    assert await anext(reports) == "first"
    with pytest.raises(ConnectionError, match="down"):
        await anext(reports)


async def test_on_a_loop_the_work_ends_when_nobody_wants_more() -> None:
    ended = asyncio.Event()

    async def endless(report: Report) -> str:
        report("first")
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "never"

    reports = astream(endless)
    assert await anext(reports) == "first"
    await reports.aclose()  # type: ignore[attr-defined]
    await asyncio.wait_for(ended.wait(), 1)
