"""Functions made from plans: what they show to readers and tools."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from threading import Event, Thread
from typing import get_type_hints

from llama_retrieval_ext import Retriever, SearchResult
from llama_retrieval_ext.execution.running import astream, stream
from llama_retrieval_ext.pipeline import Explanation
from tests.cases import cases


@cases(
    ("name", "result"),
    [
        ("search", SearchResult),
        ("asearch", SearchResult),
        ("explain", Explanation),
        ("aexplain", Explanation),
        ("search_many", list[SearchResult]),
        ("asearch_many", list[SearchResult]),
        ("stream", Iterator[SearchResult]),
        ("astream", AsyncIterator[SearchResult]),
    ],
)
def test_methods_made_from_plans_have_their_own_name_and_result_type(
    name: str, result: object
) -> None:
    method = getattr(Retriever, name)
    assert method.__name__ == name
    assert inspect.signature(method).return_annotation == result
    assert get_type_hints(method)["return"] == result
    assert inspect.iscoroutinefunction(method) is (name.startswith("a") and name != "astream")


Report = Callable[[str], object]
USER: ContextVar[str] = ContextVar("user", default="nobody")


def test_stream_yields_a_report_at_once() -> None:
    def slow(report: Report) -> str:
        report("early")
        assert reporting.wait(10)
        return "late"

    reporting = Event()
    reports = stream(slow)
    assert next(reports) == "early"
    reporting.set()
    assert next(reports) == "late"


def test_stream_passes_context_variables_to_the_work() -> None:
    token = USER.set("ada")
    try:
        assert list(stream(lambda report: USER.get())) == ["ada"]
    finally:
        USER.reset(token)


async def test_astream_yields_reports_of_threads() -> None:
    async def threaded(report: Report) -> str:
        thread = Thread(target=report, args=("from a thread",))
        thread.start()
        await asyncio.to_thread(thread.join)
        return "last"

    assert [value async for value in astream(threaded)] == ["from a thread", "last"]
