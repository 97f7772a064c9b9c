"""Calls of a language model: failures, timeouts, unusable answers, kept answers, and prompts."""

import asyncio
import copy
import pickle
import time
from collections.abc import Callable
from threading import Event

import pytest
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.llms import CustomLLM

from llama_retrieval_ext import Scope
from llama_retrieval_ext.capabilities import StyleGenerator
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution import CircuitBreaker, Plan, Task, Together
from llama_retrieval_ext.execution.context import Context, Session, entered
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.llm.functions import CallableLLM
from llama_retrieval_ext.llm.model import LanguageModel, check_prompt, filled
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import cases
from tests.meeting import Meeting
from tests.patience import soon, unless_stalled
from tests.quick import is_async


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


@pytest.fixture
def written(request: pytest.FixtureRequest) -> Run:
    """Run a plan; return its result and the reasons of its degradations."""

    def carry_out(plan: Plan[list[str]]) -> tuple[list[str], list[str]]:
        session = Session()
        with entered(Context(session)):
            result = asyncio.run(arun(plan)) if is_async(request) else run(plan)
        return result, [f"{part.where}: {part.reason}" for part in session.degraded]

    return carry_out


@cases(
    ("answers", "expected", "missing"),
    [
        (["ab"], ["AB"], []),
        ([ConnectionError("no route")], [], ["X: ConnectionError: no route"]),
        (["0"], [], ["X: the LLM said nothing usable: '0'"]),
        (["a", ValueError("b"), "c"], ["A", "C"], ["X: 1 of 3 answers are missing; ValueError: b"]),
    ],
)
def test_usable_answers_are_parsed_and_all_others_reported(
    written: Run, answers: list[ScriptedAnswer], expected: list[str], missing: list[str]
) -> None:
    model = LanguageModel(ScriptedLLM(answers))
    plan = model.answers("X", "?", lambda text: text.strip("0").upper(), times=len(answers))
    result, reasons = written(plan)
    assert (sorted(result), reasons) == (expected, missing)


def test_a_late_model_costs_its_timeout(written: Run) -> None:
    model = LanguageModel(ScriptedLLM([(60.0, "late")]), timeout_s=0.05)
    with soon():
        result, missing = written(model.answers("X", "?", str.upper))
    assert result == []
    assert "did not answer within 0.05 s" in missing[0]


@unless_stalled
def test_a_late_answer_is_kept_for_the_next_call() -> None:
    llm = ScriptedLLM([(0.2, "a")])
    model = LanguageModel(llm, timeout_s=0.02)
    assert run(model.answers("X", "?", str.upper)) == []
    model.timeout_s = 5
    assert run(model.answers("X", "?", str.upper)) == ["A"]
    model.timeout_s = 0.02
    assert run(model.answers("X", "?", str.upper)) == ["A"]
    assert len(llm.prompts) == 1


def test_failures_and_unusable_answers_are_not_cached(written: Run) -> None:
    llm = ScriptedLLM([ValueError("no"), "", "a"])
    model = LanguageModel(llm)
    assert [written(model.answers("X", "?", str.upper))[0] for _ in range(4)] == [
        [],
        [],
        ["A"],
        ["A"],
    ]
    assert len(llm.prompts) == 3


@pytest.mark.slow
@unless_stalled
def test_the_model_gets_half_of_the_time_that_is_left(written: Run) -> None:
    model = LanguageModel(ScriptedLLM([(5.0, "late")]))
    ended: list[float] = []

    def within_a_limit() -> Plan[list[str]]:
        result = yield from model.answers("X", "?", str.upper)
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


def with_breaker(llm: ScriptedLLM, breaker: CircuitBreaker) -> LanguageModel:
    model = LanguageModel(llm)
    model.breaker = breaker
    return model


def test_answers_are_not_shared_between_scopes(written: Run) -> None:
    model = LanguageModel(ScriptedLLM(["a", "b"]))
    acme = written(model.answers("X", "?", str.upper, scope=Scope("acme")))[0]
    globex = written(model.answers("X", "?", str.upper, scope=Scope("globex")))[0]
    assert (acme, globex) == (["A"], ["B"])


def test_answers_are_those_of_the_model_that_is_set() -> None:
    llm = SettableLLM(model="small")
    model = LanguageModel(llm)
    assert run(model.answers("X", "?", str.upper)) == ["SMALL"]
    llm.model = "large"
    assert run(model.answers("X", "?", str.upper)) == ["LARGE"]


def test_the_circuit_breaker_opens_for_a_model_that_keeps_failing(written: Run) -> None:
    now = [0.0]
    breaker = CircuitBreaker(failures=2, reset_s=10, clock=lambda: now[0])
    llm = ScriptedLLM([ValueError("1"), ValueError("2"), "a"])
    model = with_breaker(llm, breaker)
    for _ in range(4):
        assert written(model.answers("X", "?", str.upper))[0] == []
    assert len(llm.prompts) == 2
    now[0] = 11.0
    assert written(model.answers("X", "?", str.upper)) == (["A"], [])


def test_a_short_timeout_of_the_caller_does_not_open_the_circuit_breaker(written: Run) -> None:
    breaker = CircuitBreaker(failures=1)
    model = with_breaker(ScriptedLLM([(0.2, "late"), "a"]), breaker)

    def impatient() -> Plan[list[str]]:
        (outcome,) = yield Together([Task("all", model.answers("X", "first", str), 0.05)])
        return outcome.result() or []

    answers, missing = written(impatient())
    assert (answers, len(missing)) == ([], 1)
    assert not breaker.is_open
    assert written(model.answers("X", "second", str)) == (["a"], [])


def test_an_unusable_answer_does_not_open_the_circuit_breaker(written: Run) -> None:
    model = with_breaker(ScriptedLLM(["", "a"]), CircuitBreaker(failures=1))
    answers = [written(model.answers("X", "?", str.upper))[0] for _ in range(2)]
    assert answers == [[], ["A"]]


def test_cached_answers_are_returned_while_the_circuit_breaker_is_open(written: Run) -> None:
    breaker = CircuitBreaker(failures=1)
    model = with_breaker(ScriptedLLM(["a", ValueError("down")]), breaker)
    assert written(model.answers("X", "?", str.upper))[0] == ["A"]
    assert written(model.answers("X", "other", str.upper))[0] == []
    assert breaker.is_open
    assert written(model.answers("X", "?", str.upper)) == (["A"], [])
    assert breaker.is_open


async def test_a_model_without_async_methods_does_not_block_the_event_loop() -> None:
    class Waits(BlockingLLM):
        def complete(self, prompt: str, formatted: bool = False, **_: object) -> CompletionResponse:
            meeting.join()
            return CompletionResponse(text=prompt)

    meeting = Meeting(2)
    answer = asyncio.create_task(arun(LanguageModel(Waits()).answers("X", "a", str.upper)))
    await asyncio.sleep(0)  # it begins first
    await asyncio.to_thread(meeting.join)  # which a loop that is blocked would not come to
    assert await answer == ["A"]


def test_max_tokens_reach_the_model_only_when_they_are_set() -> None:
    llm = BlockingLLM()
    run(LanguageModel(llm, max_tokens=50).answers("X", "a", str.upper))
    run(LanguageModel(llm).answers("X", "a", str.upper))
    assert llm.seen == [{"max_tokens": 50}, {}]


def test_a_missing_model_and_impossible_limits_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="timeout_s"):
        LanguageModel(ScriptedLLM([]), timeout_s=0)
    with pytest.raises(ConfigurationError, match=r"pass a LlamaIndex LLM .* got None"):
        LanguageModel(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="max_tokens"):
        LanguageModel(ScriptedLLM([]), max_tokens=0)


@cases("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_a_model_keeps_its_own_answers(
    again: Callable[[LanguageModel], LanguageModel],
) -> None:
    model = LanguageModel(BlockingLLM())
    assert run(model.answers("X", "?", str)) == ["?"]
    assert run(again(model).answers("X", "?", str)) == ["?"]


def test_placeholders_in_a_value_are_not_filled() -> None:
    assert filled("{query} {n}", query="{n}", n=3) == "{n} 3"
    assert filled("{n} {query}", query=r"\1 {query}", n=3) == r"3 \1 {query}"


def test_a_prompt_without_the_query_placeholder_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"must contain \{query\} and \{n\}, got"):
        check_prompt("Write three {queries}.", "query", "n")


def test_temperature_is_set_for_one_answer_or_refused() -> None:
    temperatures: list[float] = []

    def caller(prompt: str, temperature: float = 0.1) -> str:
        temperatures.append(temperature)
        return prompt[:2]

    style = StyleGenerator(llm=CallableLLM(caller))
    style.generate("a task", temperature=0.9)
    style.generate("a task")
    assert temperatures == [0.9, 0.1]
    with pytest.raises(ConfigurationError, match="takes no temperature"):
        StyleGenerator(llm=lambda prompt: prompt).generate("a task", temperature=0.9)
    with pytest.raises(ConfigurationError, match="temperature must be"):
        style.generate("a task", temperature=-1)


def test_a_function_as_model_is_sync_or_async_in_any_loop() -> None:
    async def caller(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt[:5]

    style = StyleGenerator(llm=caller)

    async def both() -> tuple[str, str]:  # the sync way also inside a running loop
        return style.generate("x").text, (await style.agenerate("x")).text

    assert asyncio.run(both()) == ("Write", "Write")
    assert [each.text for each in StyleGenerator(llm=lambda p: p[:5]).stream("x")][-1] == "Write"


async def test_functions_that_hang_leave_threads_to_the_application() -> None:
    ending = Event()
    llm = CallableLLM(lambda prompt: prompt * ending.wait(20))
    hanging = [asyncio.ensure_future(llm.acomplete("x")) for _ in range(40)]
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5) == "free"
    ending.set()
    assert {each.text for each in await asyncio.gather(*hanging)} == {"x"}
