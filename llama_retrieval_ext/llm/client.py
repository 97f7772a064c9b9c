"""Calls a language model inside a plan, with a time limit and a cache, without raising."""

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.llms import LLM

from llama_retrieval_ext.checks import check_count, check_seconds
from llama_retrieval_ext.errors import (
    CircuitOpenError,
    ConfigurationError,
    DeadlineExceededError,
    describe,
)
from llama_retrieval_ext.execution.context import current_context, note_degraded
from llama_retrieval_ext.execution.drivers import awaits
from llama_retrieval_ext.execution.legs import CircuitBreaker
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.single_flight import SingleFlight
from llama_retrieval_ext.llm.parsing import is_cut_off


class AnswerCache:
    """Cache of answers by prompt, for threads and event loops; failures are not cached.

    Concurrent requests for the same answer share one call.
    """

    def __init__(self, *, size: int = 256) -> None:
        self.size = size
        self._lock = Lock()
        self._answers: OrderedDict[Hashable, str] = OrderedDict()
        self._in_the_making: dict[Hashable, SingleFlight] = {}

    # A copy starts empty: keys contain id() of the model, which differs between processes.
    def __getstate__(self) -> dict[str, object]:
        return {"size": self.size}

    def __setstate__(self, state: dict[str, int]) -> None:
        AnswerCache.__init__(self, **state)

    def known(self, key: Hashable) -> str | None:
        """Return the cached answer; None if there is none."""
        with self._lock:
            if key not in self._answers:
                return None
            self._answers.move_to_end(key)
            return self._answers[key]

    def get(
        self,
        key: Hashable,
        call: Callable[[], Call[CompletionResponse]],
        *,
        keep: Callable[[str], bool],
    ) -> Plan[str]:
        """Return the plan for an answer; ``keep`` returns whether to cache it."""
        with self._lock:
            making = self._in_the_making.setdefault(key, SingleFlight())
        try:
            response: CompletionResponse = yield from making.get(key, call)
            text = response.text or ""
            if keep(text):
                self._keep(key, text)
        finally:
            with self._lock:
                if self._in_the_making.get(key) is making:
                    del self._in_the_making[key]
        return text

    def _keep(self, key: Hashable, text: str) -> None:
        with self._lock:
            self._answers[key] = text
            self._answers.move_to_end(key)
            while len(self._answers) > self.size:
                self._answers.popitem(last=False)


T = TypeVar("T")

# Most models write a hundred words in a few seconds; a search should not take much longer.
LLM_TIMEOUT_S = 10.0
# The retrieval that follows needs part of the remaining time.
BEFORE_RETRIEVAL = 0.5
_SHOWN = 80


class _Answer(NamedTuple, Generic[T]):
    text: str
    value: T


@dataclass(frozen=True, slots=True, eq=False)
class LLMWriter:
    """A language model whose failures degrade the answer instead of raising.

    Usable answers are cached. After five failures in a row the model is not called for half a
    minute. ``timeout_s`` is at most the ``share`` of the query's remaining time: half if a
    retrieval follows. ``max_tokens`` includes the thoughts of a reasoning model.
    """

    llm: LLM
    timeout_s: float = LLM_TIMEOUT_S
    max_tokens: int | None = None
    cache: AnswerCache = field(default_factory=AnswerCache)
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    share: float = BEFORE_RETRIEVAL

    def __post_init__(self) -> None:
        if not isinstance(self.llm, LLM):
            raise ConfigurationError(f"pass a LlamaIndex LLM, got {self.llm!r}")
        check_seconds(self.timeout_s, "timeout_s")
        if self.max_tokens is not None:
            check_count(self.max_tokens, "max_tokens")

    def written(
        self,
        where: str,
        prompt: str,
        read: Callable[[str], T],
        *,
        times: int = 1,
        scope: Hashable = None,
    ) -> Plan[list[T]]:
        """Return the plan for the model's usable answers; missing ones are recorded as degraded.

        The model is called ``times`` times at once; ``read`` returns a false value for an answer
        that is not usable. Answers are not shared between scopes.
        """
        limit_s = self._limit_s()
        keys = [(_identity(self.llm), prompt, number, scope) for number in range(times)]
        tasks = [Task(where, self._answer(key, prompt, read), limit_s) for key in keys]
        outcomes: list[Outcome[_Answer[T]]] = yield Together(tasks)
        answers = [outcome.result() for outcome in outcomes if outcome.error is None]
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if not answers and not any(self._excused(error, limit_s) for error in errors):
            self.breaker.failed()
        _note_missing(where, answers, errors)
        for answer in answers:
            if answer.value and is_cut_off(answer.text):
                note_cut_off(where, answer.text)
        return [answer.value for answer in answers if answer.value]

    def _excused(self, error: BaseException, limit_s: float) -> bool:
        """Return whether the model did not cause the error: not called, or given less time."""
        late = isinstance(error, DeadlineExceededError) and limit_s < self.timeout_s
        return late or isinstance(error, CircuitOpenError)

    def _limit_s(self) -> float:
        left_s = current_context().remaining_s()
        return self.timeout_s if left_s is None else min(self.timeout_s, self.share * left_s)

    def _answer(self, key: Hashable, prompt: str, read: Callable[[str], T]) -> Plan[_Answer[T]]:
        text = self.cache.known(key)
        if text is None:
            self.breaker.check()
            text = yield from self.cache.get(
                key,
                lambda: self._call(prompt),
                keep=lambda answer: bool(read(answer) and not is_cut_off(answer)),
            )
            self.breaker.succeeded()
        return _Answer(text, read(text))

    def _call(self, prompt: str) -> Call[CompletionResponse]:
        options = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return completion(self.llm, prompt, options)


def completion(llm: LLM, prompt: str, options: Mapping[str, Any]) -> Call[CompletionResponse]:
    """Return the call of a model; async if that does not block the event loop."""
    return Call(
        lambda: llm.complete(prompt, formatted=False, **options),
        (lambda: llm.acomplete(prompt, formatted=False, **options)) if has_async(llm) else None,
    )


def has_async(llm: LLM) -> bool:
    """Return whether the model has its own async method, which does not block the event loop."""
    return awaits(llm.acomplete)


def _identity(llm: LLM) -> Hashable:
    # The application may change the model or temperature of its LLM at any time.
    return id(llm), getattr(llm, "model", None), getattr(llm, "temperature", None)


def note_cut_off(where: str, answer: str) -> None:
    """Record that only the complete part of a model's answer is used."""
    note_degraded(where, f"the LLM's answer was cut off, after {answer[-_SHOWN:]!r}")


def _note_missing(
    where: str, answers: Sequence[_Answer[T]], errors: Sequence[BaseException]
) -> None:
    unusable = [answer.text for answer in answers if not answer.value]
    problems = [describe(error) for error in errors] + [
        f"the LLM said nothing usable: {text[:_SHOWN]!r}" for text in unusable
    ]
    if problems:
        calls = len(answers) + len(errors)
        times = "" if calls == 1 else f"{len(problems)} of {calls} answers are missing; "
        note_degraded(where, times + problems[0])


def filled(template: str, **values: object) -> str:
    """Return the template with ``{name}`` replaced for each value; other braces stay.

    Examples:
        >>> filled('Answer {query} as {"a": 1}', query="{n} + {n}", n=2)
        'Answer {n} + {n} as {"a": 1}'

    """
    fields = re.compile("|".join(rf"\{{{name}\}}" for name in values))
    return fields.sub(lambda match: str(values[match[0][1:-1]]), template)


def check_prompt(template: str) -> str:
    """Return the template, or raise ConfigurationError if it does not contain ``{query}``."""
    if "{query}" not in template:
        raise ConfigurationError(
            f"the prompt must say where the query goes: write {{query}} in it, got {template!r}"
        )
    return template
