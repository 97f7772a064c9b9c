"""Calls of a language model: failures, timeouts, unusable answers, the cache, and prompts."""

import asyncio
import copy
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.llms import CustomLLM

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import Context, Session, entered
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.legs import CircuitBreaker
from llama_retrieval_ext.execution.plan import Call, Plan, Task, Together
from llama_retrieval_ext.llm.client import AnswerCache, LLMWriter, check_prompt, filled
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.meeting import Meeting
from tests.patience import unless_stalled


class BlockingLLM(CustomLLM):
    """Has blocking methods only, as models that run in the process, and records its options."""

    seen: list[dict[str, object]] = []  # noqa: RUF012 - pydantic copies it

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> CompletionResponse:
        self.seen.append(kwargs)
        return CompletionResponse(text=prompt)

    def stream_complete(
        self, prompt: str, formatted: bool = False, **_: object
    ) -> CompletionResponseGen:
        raise NotImplementedError


class SettableLLM(BlockingLLM):
    """Answers with the name of the model."""

    model: str

    def complete(self, prompt: str, formatted: bool = False, **_: object) -> CompletionResponse:
        return CompletionResponse(text=self.model)


Run = Callable[[Plan[list[str]]], tuple[list[str], list[str]]]


@pytest.fixture(params=["sync", "async"])
def written(request: pytest.FixtureRequest) -> Run:
    """Run a plan; return its result and the reasons of its degradations."""

    def carry_out(plan: Plan[list[str]]) -> tuple[list[str], list[str]]:
        session = Session()
        with entered(Context(session)):
            result = run(plan) if request.param == "sync" else asyncio.run(arun(plan))
        return result, [f"{part.where}: {part.reason}" for part in session.degraded]

    return carry_out


@pytest.mark.parametrize(
    ("answers", "expected", "missing"),
    [
        (["ab"], ["AB"], []),
        ([ConnectionError("no route")], [], ["X: ConnectionError: no route"]),
        (["0"], [], ["X: the LLM said nothing usable: '0'"]),
        (["a", ValueError("b"), "c"], ["A", "C"], ["X: 1 of 3 answers are missing; ValueError: b"]),
    ],
    ids=["usable", "failure", "unusable", "partly"],
)
def test_usable_answers_are_parsed_and_all_others_reported(
    written: Run, answers: list[ScriptedAnswer], expected: list[str], missing: list[str]
) -> None:
    writer = LLMWriter(ScriptedLLM(answers))
    plan = writer.written("X", "?", lambda text: text.strip("0").upper(), times=len(answers))
    result, reasons = written(plan)
    assert (sorted(result), reasons) == (expected, missing)


def test_a_late_model_costs_its_timeout(written: Run) -> None:
    writer = LLMWriter(ScriptedLLM([(5.0, "late")]), timeout_s=0.05)
    started = time.perf_counter()
    result, missing = written(writer.written("X", "?", str.upper))
    assert time.perf_counter() - started < 4
    assert result == []
    assert "did not answer within 0.05 s" in missing[0]


@unless_stalled
def test_a_late_answer_is_cached_for_the_next_call() -> None:
    llm, cache = ScriptedLLM([(0.2, "a")]), AnswerCache()
    hasty = LLMWriter(llm, timeout_s=0.02, cache=cache)
    patient = LLMWriter(llm, timeout_s=5, cache=cache)
    assert run(hasty.written("X", "?", str.upper)) == []
    assert run(patient.written("X", "?", str.upper)) == ["A"]
    assert run(hasty.written("X", "?", str.upper)) == ["A"]
    assert len(llm.prompts) == 1


def test_failures_and_unusable_answers_are_not_cached(written: Run) -> None:
    llm = ScriptedLLM([ValueError("no"), "", "a"])
    writer = LLMWriter(llm)
    assert [written(writer.written("X", "?", str.upper))[0] for _ in range(4)] == [
        [],
        [],
        ["A"],
        ["A"],
    ]
    assert len(llm.prompts) == 3


@pytest.mark.slow
def test_the_model_gets_half_of_the_time_that_is_left(written: Run) -> None:
    writer = LLMWriter(ScriptedLLM([(5.0, "late")]))
    ended: list[float] = []

    def within_a_limit() -> Plan[list[str]]:
        result = yield from writer.written("X", "?", str.upper)
        ended.append(time.perf_counter())
        return result

    def limited() -> Plan[list[str]]:
        (outcome,) = yield Together([Task("all", within_a_limit(), 1.2)])
        result: list[str] = outcome.result()
        return result

    started = time.perf_counter()
    result, missing = written(limited())
    assert result == []
    assert len(missing) == 1
    assert 0.5 < ended[0] - started < 1.1


def test_answers_are_not_shared_between_scopes(written: Run) -> None:
    writer = LLMWriter(ScriptedLLM(["a", "b"]))
    acme = written(writer.written("X", "?", str.upper, scope=Scope("acme")))[0]
    globex = written(writer.written("X", "?", str.upper, scope=Scope("globex")))[0]
    assert (acme, globex) == (["A"], ["B"])


def test_answers_are_those_of_the_model_that_is_set() -> None:
    llm = SettableLLM(model="small")
    writer = LLMWriter(llm)
    assert run(writer.written("X", "?", str.upper)) == ["SMALL"]
    llm.model = "large"
    assert run(writer.written("X", "?", str.upper)) == ["LARGE"]


def test_the_circuit_breaker_opens_for_a_model_that_keeps_failing(written: Run) -> None:
    now = [0.0]
    breaker = CircuitBreaker(failures=2, reset_s=10, clock=lambda: now[0])
    llm = ScriptedLLM([ValueError("1"), ValueError("2"), "a"])
    writer = LLMWriter(llm, breaker=breaker)
    for _ in range(4):
        assert written(writer.written("X", "?", str.upper))[0] == []
    assert len(llm.prompts) == 2
    now[0] = 11.0
    assert written(writer.written("X", "?", str.upper)) == (["A"], [])


def test_a_short_timeout_of_the_caller_does_not_open_the_circuit_breaker(written: Run) -> None:
    breaker = CircuitBreaker(failures=1)
    writer = LLMWriter(ScriptedLLM([(0.2, "late"), "a"]), breaker=breaker)

    def impatient() -> Plan[list[str]]:
        (outcome,) = yield Together([Task("all", writer.written("X", "first", str), 0.05)])
        return outcome.result() or []

    answers, missing = written(impatient())
    assert (answers, len(missing)) == ([], 1)
    assert not breaker.is_open
    assert written(writer.written("X", "second", str)) == (["a"], [])


def test_an_unusable_answer_does_not_open_the_circuit_breaker(written: Run) -> None:
    writer = LLMWriter(ScriptedLLM(["", "a"]), breaker=CircuitBreaker(failures=1))
    answers = [written(writer.written("X", "?", str.upper))[0] for _ in range(2)]
    assert answers == [[], ["A"]]


def test_cached_answers_are_returned_while_the_circuit_breaker_is_open(written: Run) -> None:
    breaker = CircuitBreaker(failures=1)
    writer = LLMWriter(ScriptedLLM(["a", ValueError("down")]), breaker=breaker)
    assert written(writer.written("X", "?", str.upper))[0] == ["A"]
    assert written(writer.written("X", "other", str.upper))[0] == []
    assert breaker.is_open
    assert written(writer.written("X", "?", str.upper)) == (["A"], [])
    assert breaker.is_open


async def test_a_model_without_async_methods_does_not_block_the_event_loop() -> None:
    class Waits(BlockingLLM):
        def complete(self, prompt: str, formatted: bool = False, **_: object) -> CompletionResponse:
            meeting.join()
            return CompletionResponse(text=prompt)

    meeting = Meeting(2)
    answer = asyncio.create_task(arun(LLMWriter(Waits()).written("X", "a", str.upper)))
    await asyncio.sleep(0)  # it begins first
    await asyncio.to_thread(meeting.join)  # which a loop that is blocked would not come to
    assert await answer == ["A"]


def test_max_tokens_reach_the_model_only_when_they_are_set() -> None:
    llm = BlockingLLM()
    run(LLMWriter(llm, max_tokens=50).written("X", "a", str.upper))
    run(LLMWriter(llm).written("X", "a", str.upper))
    assert llm.seen == [{"max_tokens": 50}, {}]


def test_a_missing_model_and_impossible_limits_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="timeout_s"):
        LLMWriter(ScriptedLLM([]), timeout_s=0)
    with pytest.raises(ConfigurationError, match="pass a LlamaIndex LLM, got None"):
        LLMWriter(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="max_tokens"):
        LLMWriter(ScriptedLLM([]), max_tokens=0)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_a_writer_has_its_own_cache(again: Callable[[LLMWriter], LLMWriter]) -> None:
    writer = LLMWriter(BlockingLLM())
    assert run(writer.written("X", "?", str)) == ["?"]
    assert run(again(writer).written("X", "?", str)) == ["?"]


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
