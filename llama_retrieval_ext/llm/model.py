"""`LanguageModel`: every call of a language model, with its time, budget, cache and failures."""

import json
import re
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms import LLM
from llama_index.core.utils import get_tokenizer
from pydantic import BaseModel

from llama_retrieval_ext.checks import check_count, check_seconds
from llama_retrieval_ext.errors import (
    CircuitOpenError,
    ConfigurationError,
    DeadlineExceededError,
    GenerationError,
    describe,
)
from llama_retrieval_ext.execution.context import SingleFlight, call, current_context, note_degraded
from llama_retrieval_ext.execution.drivers import awaits
from llama_retrieval_ext.execution.legs import CircuitBreaker
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.running import Report, WhileOpen
from llama_retrieval_ext.llm.functions import AnyLLM, as_llm, with_temperature
from llama_retrieval_ext.llm.parsing import cleaned, is_cut_off, parse_structured, visible

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

# Most models write a hundred words in a few seconds; a search should not take much longer.
SEARCH_TIMEOUT_S: Final = 10.0
GENERATION_TIMEOUT_S: Final = 60.0
# The retrieval that follows needs part of the remaining time.
BEFORE_RETRIEVAL: Final = 0.5
# Answers that are kept.
_ANSWERS: Final = 256
# Tokens that chat formats add around a prompt.
_OVERHEAD: Final = 16
_SHOWN: Final = 80


class _UnusableError(Exception):
    """The model answered, and the answer cannot be used."""


class LanguageModel:
    """A language model with a time limit, a token budget and a cache.

    Where only the model can answer, `text` and `structured` raise `GenerationError`. Where an
    answer without it is left, `answers` degrades that instead. After five failures in a row,
    `answers` does not call the model for half a minute.

    Args:
        llm: Any LlamaIndex LLM, or a function from prompt to text, sync or async.
        timeout_s: Seconds for an answer, within the query's remaining time.
        max_tokens: Passed to the LLM, thoughts included; None for its own limit.
        share: Share of the query's remaining time that `answers` takes at most; half if a
            retrieval follows.

    Raises:
        ConfigurationError: There is no LLM, or a limit is out of range.
    """

    def __init__(
        self,
        llm: AnyLLM,
        timeout_s: float = GENERATION_TIMEOUT_S,
        *,
        max_tokens: int | None = None,
        share: float = BEFORE_RETRIEVAL,
    ) -> None:
        self.llm = as_llm(llm)
        self.timeout_s = check_seconds(timeout_s, "timeout_s")
        self.max_tokens = None if max_tokens is None else check_count(max_tokens, "max_tokens")
        self.share = share
        self.breaker = CircuitBreaker()
        self._answers = SingleFlight(most=_ANSWERS)

    # A copy has no answers: keys contain id() of the model, which differs between processes.
    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in vars(self).items() if key != "_answers"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _answers=SingleFlight(most=_ANSWERS))

    def room(self, prompt: str) -> int:
        """Return how many tokens still fit beside a prompt and the answer; may be negative."""
        metadata = self.llm.metadata
        output = DEFAULT_NUM_OUTPUTS if metadata.num_output < 0 else metadata.num_output
        used = count_tokens(prompt) + count_tokens(self.llm.system_prompt or "")
        return metadata.context_window - output - used - _OVERHEAD

    def check_fits(self, name: str, prompt: str) -> None:
        """Raise `GenerationError` if a prompt leaves no room for the answer."""
        room = self.room(prompt)
        if room < 0:
            raise GenerationError(
                f"{name}: the prompt is {-room} tokens too long for the context window of "
                f"{self.llm.metadata.context_window} tokens; shorten the query, or use a model "
                "with a longer context"
            )

    def text(
        self,
        name: str,
        prompt: str,
        *,
        temperature: float | None = None,
        report: Report[str] | None = None,
    ) -> Plan[str]:
        """Return the plan for the answer to a prompt, without the model's reasoning.

        With ``report`` the model streams, and the answer so far is reported as it grows.
        """
        self.check_fits(name, prompt)
        llm, options = with_temperature(self.llm, temperature)
        with WhileOpen(report) as growing:
            attempt = (
                self._completion(llm, prompt, options).then(lambda response: response.text or "")
                if report is None
                else _streamed(llm, prompt, {**self._limit, **options}, growing)
            )
            outcomes: list[Outcome[str]] = yield Together(
                [Task(name, call(attempt), self.timeout_s)]
            )
        if outcomes[0].error is not None:
            raise _failure(name, outcomes[0].error)
        text = cleaned(outcomes[0].result())
        if not text:
            raise GenerationError(f"{name}: the LLM gave an empty answer")
        return text

    def structured(self, name: str, prompt: str, output_cls: type[M]) -> Plan[M]:
        """Return the plan for an answer as a pydantic object; an unreadable one is asked again."""
        whole = again = structured_prompt(prompt, output_cls)
        answer = problem = ""
        for _ in range(2):
            answer = yield from self.text(name, again if self.room(again) >= 0 else whole)
            value, problem = parse_structured(answer, output_cls)
            if value is not None:
                return value
            again = f"{whole}\n\nA first answer was not valid ({problem}). Answer with JSON only."
        raise GenerationError(
            f"{name}: the LLM gave no valid {output_cls.__name__} in two attempts: {problem}; "
            f"it said {answer[:_SHOWN]!r}"
        )

    def answers(
        self,
        where: str,
        prompt: str,
        read: Callable[[str], T],
        *,
        times: int = 1,
        scope: Hashable = None,
    ) -> Plan[list[T]]:
        """Return the plan for the usable answers, as read; missing ones are recorded as degraded.

        The model is called ``times`` times at once; ``read`` returns a false value for an answer
        that is not usable. Usable answers are kept, and not shared between scopes.
        """
        left_s = current_context().remaining_s()
        limit_s = self.timeout_s if left_s is None else min(self.timeout_s, self.share * left_s)
        outcomes: list[Outcome[str]] = yield Together(
            [
                Task(where, self._answer(prompt, read, (number, scope)), limit_s)
                for number in range(times)
            ]
        )
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        excuses: list[type[Exception]] = [CircuitOpenError, _UnusableError]  # no call, or an answer
        if limit_s < self.timeout_s:
            excuses.append(DeadlineExceededError)
        if len(errors) == times and not any(isinstance(error, tuple(excuses)) for error in errors):
            self.breaker.failed()
        if errors:
            missing = "" if times == 1 else f"{len(errors)} of {times} answers are missing; "
            first = next((e for e in errors if not isinstance(e, _UnusableError)), errors[0])
            reason = str(first) if isinstance(first, _UnusableError) else describe(first)
            note_degraded(where, missing + reason)
        return [read(outcome.result()) for outcome in outcomes if outcome.error is None]

    def _answer(self, prompt: str, read: Callable[[str], object], owner: Hashable) -> Plan[str]:
        # The application may change the model or temperature of its LLM at any time.
        options = (getattr(self.llm, name, None) for name in ("model", "temperature"))
        key = (id(self.llm), *options, prompt, owner)
        if not self._answers.has(key):
            self.breaker.check()
        usable = partial(self._usable, read)
        completion = self._completion(self.llm, prompt, {})
        return (yield from self._answers.get(key, completion.then(usable)))

    def _usable(self, read: Callable[[str], object], response: CompletionResponse) -> str:
        self.breaker.succeeded()
        text = response.text or ""
        if read(text):
            return text
        if is_cut_off(cleaned(text)):
            raise _UnusableError(f"the LLM's answer was cut off, after {text[-_SHOWN:]!r}")
        raise _UnusableError(f"the LLM said nothing usable: {text[:_SHOWN]!r}")

    @property
    def _limit(self) -> dict[str, Any]:
        return {} if self.max_tokens is None else {"max_tokens": self.max_tokens}

    def _completion(
        self, llm: LLM, prompt: str, options: dict[str, Any]
    ) -> Call[CompletionResponse]:
        """Return the call of a model; async if that does not block the event loop."""
        options = {**self._limit, **options}
        return Call(
            lambda: llm.complete(prompt, formatted=False, **options),
            (lambda: llm.acomplete(prompt, formatted=False, **options)) if has_async(llm) else None,
        )


def has_async(llm: LLM) -> bool:
    """Return whether the model has its own async method, which does not block the event loop."""
    return awaits(llm.acomplete)


def _streamed(
    llm: LLM, prompt: str, options: dict[str, Any], report: Callable[[str], bool]
) -> Call[str]:
    """Return the call that streams an answer until it is complete or its reader stops."""

    def blocking() -> str:
        text = shown = ""
        for part in llm.stream_complete(prompt, formatted=False, **options):
            text = part.text or ""
            if (grown := visible(text)) not in {"", shown} and not report(shown := grown):
                break
        return text

    async def asynchronous() -> str:
        text = shown = ""
        async for part in await llm.astream_complete(prompt, formatted=False, **options):
            text = part.text or ""
            if (grown := visible(text)) not in {"", shown} and not report(shown := grown):
                break
        return text

    return Call(blocking, asynchronous if has_async(llm) else None)


def _failure(name: str, error: BaseException) -> BaseException:
    """Return the error for an exception of an LLM; the query's own deadline error is unchanged."""
    if isinstance(error, ConfigurationError | GenerationError):
        return error
    if isinstance(error, DeadlineExceededError) and error.by_query:
        return error
    url = getattr(getattr(error, "request", None), "url", None)  # of the clients of OpenAI's API
    server = f" at {url.scheme}://{url.netloc.decode()}{url.path}" if url is not None else ""
    failure = GenerationError(f"{name}: the LLM failed: {describe(error)}{server}")
    failure.__cause__ = error
    return failure


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text, by LlamaIndex's tokenizer."""
    return len(get_tokenizer()(text))


def shortened(text: str, tokens: int) -> str:
    """Return the beginning of a text, of at most this many tokens."""
    if tokens <= 0:
        return ""
    count = count_tokens(text)
    while count > tokens:
        text = text[: min(len(text) - 1, len(text) * tokens // count)]
        count = count_tokens(text)
    return text


def structured_prompt(prompt: str, output_cls: type[BaseModel]) -> str:
    """Return the prompt with the JSON schema of the answer appended."""
    schema = json.dumps(output_cls.model_json_schema(), ensure_ascii=False)
    return (
        f"{prompt}\n\nAnswer with one JSON object of this JSON schema and nothing else:\n{schema}"
    )


def filled(template: str, **values: object) -> str:
    """Return the template with ``{name}`` replaced for each value; other braces stay.

    Examples:
        >>> filled('Answer {query} as {"a": 1}', query="{n} + {n}", n=2)
        'Answer {n} + {n} as {"a": 1}'

    """
    fields = re.compile("|".join(rf"\{{{name}\}}" for name in values))
    return fields.sub(lambda match: str(values[match[0][1:-1]]), template)


def check_prompt(template: str, *names: str) -> str:
    """Return the template, or raise ConfigurationError if it lacks a field such as ``{query}``."""
    missing = [f"{{{name}}}" for name in names if f"{{{name}}}" not in template]
    if missing:
        raise ConfigurationError(
            f"the prompt must contain {' and '.join(missing)}, got {template!r}"
        )
    return template
