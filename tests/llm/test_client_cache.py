"""The cache of answers, and how prompts are filled."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from llama_index.core.base.llms.types import CompletionResponse

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.llm.client import AnswerCache, check_prompt, filled


def saying(text: str, calls: list[str]) -> Call[CompletionResponse]:
    def complete() -> CompletionResponse:
        calls.append(text)
        return CompletionResponse(text=text)

    return Call(complete)


def answer(cache: AnswerCache, text: str, calls: list[str], *, keep: bool = True) -> Plan[str]:
    known = cache.known(text)
    if known is not None:
        return known
    return (yield from cache.get(text, lambda: saying(text, calls), keep=lambda _: keep))


def test_the_least_recently_used_answer_is_evicted() -> None:
    cache, calls = AnswerCache(size=2), list[str]()
    for text in "abacab":
        assert run(answer(cache, text, calls)) == text
    assert calls == ["a", "b", "c", "b"]


def test_concurrent_calls_share_one_answer() -> None:
    cache, calls, go = AnswerCache(), list[str](), Event()

    def complete() -> CompletionResponse:
        calls.append("a")
        go.wait(5)
        return CompletionResponse(text="a")

    with ThreadPoolExecutor(4) as threads:
        plans = [cache.get("a", lambda: Call(complete), keep=bool) for _ in range(4)]
        answers = [threads.submit(run, plan) for plan in plans]
        go.set()
        assert [answer.result(5) for answer in answers] == ["a"] * 4
    assert cache.known("a") == "a"
    assert len(calls) < 4


async def test_a_cancelled_call_does_not_cancel_the_others() -> None:
    cache, calls = AnswerCache(), list[str]()

    async def slow() -> CompletionResponse:
        calls.append("a")
        await asyncio.sleep(0.05)
        return CompletionResponse(text="a")

    def plan() -> Plan[str]:
        return cache.get("a", lambda: Call(lambda: CompletionResponse(text=""), slow), keep=bool)

    first, second = asyncio.create_task(arun(plan())), asyncio.create_task(arun(plan()))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second == "a"
    assert cache.known("a") == "a"


def test_placeholders_in_a_value_are_not_filled() -> None:
    assert filled("{query} {n}", query="{n}", n=3) == "{n} 3"
    assert filled("{n} {query}", query=r"\1 {query}", n=3) == r"3 \1 {query}"


def test_a_prompt_without_the_query_placeholder_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\{query\}"):
        check_prompt("Write three queries.")
