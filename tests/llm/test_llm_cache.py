"""Answers are kept, within bounds, and asked for once."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from llama_index.core.base.llms.types import CompletionResponse

from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.llm.client import AnswerCache


def saying(text: str, asked: list[str]) -> Call[CompletionResponse]:
    def complete() -> CompletionResponse:
        asked.append(text)
        return CompletionResponse(text=text)

    return Call(complete)


def wanted(cache: AnswerCache, text: str, asked: list[str], *, keep: bool = True) -> Plan[str]:
    known = cache.known(text)
    if known is not None:
        return known
    return (yield from cache.get(text, lambda: saying(text, asked), keep=lambda _: keep))


def test_an_answer_is_asked_for_once() -> None:
    cache, asked = AnswerCache(), list[str]()
    assert [run(wanted(cache, "a", asked)) for _ in range(3)] == ["a"] * 3
    assert asked == ["a"]


def test_what_was_not_wanted_for_longest_is_forgotten() -> None:
    cache, asked = AnswerCache(size=2), list[str]()
    for text in "abacab":
        assert run(wanted(cache, text, asked)) == text
    assert asked == ["a", "b", "c", "b"]


def test_what_is_not_worth_keeping_is_not_kept() -> None:
    cache, asked = AnswerCache(), list[str]()
    assert run(wanted(cache, "a", asked, keep=False)) == "a"
    assert cache.known("a") is None


def test_a_failure_is_not_kept() -> None:
    cache, asked = AnswerCache(), list[str]()

    def fail() -> CompletionResponse:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        run(cache.get("a", lambda: Call(fail), keep=bool))
    assert run(wanted(cache, "a", asked)) == "a"


def test_who_asks_the_same_meanwhile_waits_for_the_same_answer() -> None:
    cache, asked, go = AnswerCache(), list[str](), Event()

    def complete() -> CompletionResponse:
        asked.append("a")
        go.wait(5)
        return CompletionResponse(text="a")

    with ThreadPoolExecutor(4) as threads:
        plans = [cache.get("a", lambda: Call(complete), keep=bool) for _ in range(4)]
        answers = [threads.submit(run, plan) for plan in plans]
        go.set()
        assert [answer.result(5) for answer in answers] == ["a"] * 4
    assert cache.known("a") == "a"
    assert len(asked) < 4


async def test_one_who_gives_up_does_not_take_the_others_along() -> None:
    cache, asked = AnswerCache(), list[str]()

    async def slow() -> CompletionResponse:
        asked.append("a")
        await asyncio.sleep(0.05)
        return CompletionResponse(text="a")

    def plan() -> Plan[str]:
        return cache.get("a", lambda: Call(lambda: CompletionResponse(text=""), slow), keep=bool)

    first, second = asyncio.create_task(arun(plan())), asyncio.create_task(arun(plan()))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second == "a"
    assert cache.known("a") == "a"
