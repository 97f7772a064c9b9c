"""Calls of a language model with a token budget, a time limit and strict parsing."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms import LLM
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from llama_retrieval_ext.capabilities.generation.callable_llm import CallableLLM, Caller
from llama_retrieval_ext.capabilities.generation.passages import Tokenize, Tokens
from llama_retrieval_ext.checks import check_seconds
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DeadlineExceededError,
    GenerationError,
    describe,
)
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.running import Report, WhileOpen
from llama_retrieval_ext.llm.client import has_async
from llama_retrieval_ext.llm.parsing import cleaned, unfenced

M = TypeVar("M", bound=BaseModel)
GENERATION_TIMEOUT_S: Final = 60.0
# Tokens that chat formats add around a prompt.
_OVERHEAD: Final = 16
_SHOWN: Final = 80
_LONGEST_TAG: Final = 24


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A language model with a time limit and a token budget.

    Args:
        llm: Any LlamaIndex LLM.
        timeout_s: Seconds that one answer may take.
        tokenize: Counts tokens; None for LlamaIndex's tokenizer.

    Raises:
        ConfigurationError: There is no LLM, or the time limit is not a positive number.
    """

    llm: LLM
    timeout_s: float = GENERATION_TIMEOUT_S
    tokenize: Tokenize | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "llm", as_llm(self.llm))
        check_seconds(self.timeout_s, "timeout_s")

    @property
    def tokens(self) -> Tokens:
        """Token counter of the model."""
        return Tokens(self.tokenize)

    def room(self, prompt: str) -> int:
        """Return how many tokens still fit beside a prompt and the answer; may be negative."""
        metadata = self.llm.metadata
        output = DEFAULT_NUM_OUTPUTS if metadata.num_output < 0 else metadata.num_output
        used = self.tokens.count(prompt) + self.tokens.count(self.llm.system_prompt or "")
        return metadata.context_window - output - used - _OVERHEAD

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
                _completion(llm, prompt, options)
                if report is None
                else _streamed(llm, prompt, options, growing)
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
        """Return the plan for an answer as a pydantic object; a malformed answer is retried."""
        whole = structured_prompt(prompt, output_cls)
        first = yield from self.text(name, whole)
        value, problem = parse_structured(first, output_cls)
        if value is not None:
            return value
        again = f"{whole}\n\nA first answer was not valid ({problem}). Answer with JSON only."
        second = yield from self.text(name, again if self.room(again) >= 0 else whole)
        value, problem = parse_structured(second, output_cls)
        if value is None:  # an answer may be cut off: keep its complete entries
            value = next(
                filter(None, (_partial(each, output_cls) for each in (second, first))), None
            )
        if value is None:
            raise GenerationError(
                f"{name}: the LLM gave no valid {output_cls.__name__} in two attempts: {problem}; "
                f"it said {second[:_SHOWN]!r}"
            )
        return value

    def check_fits(self, name: str, prompt: str) -> None:
        """Raise `GenerationError` if a prompt leaves no room for the answer."""
        room = self.room(prompt)
        if room < 0:
            raise GenerationError(
                f"{name}: the prompt is {-room} tokens too long for the context window of "
                f"{self.llm.metadata.context_window} tokens; shorten the query, or use a model "
                "with a longer context"
            )


def as_llm(llm: LLM | Caller) -> LLM:
    """Return a LlamaIndex LLM; a plain function from prompt to text becomes one."""
    if isinstance(llm, LLM):
        return llm
    if callable(llm):
        return CallableLLM(llm)
    raise ConfigurationError(
        f"llm must be a LlamaIndex LLM, or a function from prompt to text, got {llm!r}; there is "
        "no default, and LlamaIndex's Settings are not used"
    )


def with_temperature(llm: LLM, temperature: float | None) -> tuple[LLM, dict[str, Any]]:
    """Return the LLM and the options of its calls for a temperature."""
    if temperature is None:
        return llm, {}
    if "temperature" in type(llm).model_fields:  # integrations differ in the options of calls
        return llm.model_copy(update={"temperature": temperature}), {}
    if isinstance(llm, CallableLLM) and not llm.takes_temperature:
        raise ConfigurationError(
            f"{llm.caller!r} takes no temperature: give it a parameter 'temperature', or leave "
            "temperature out"
        )
    return llm, {"temperature": temperature}


def structured_prompt(prompt: str, output_cls: type[BaseModel]) -> str:
    """Return the prompt with the JSON schema of the answer appended."""
    schema = json.dumps(output_cls.model_json_schema(), ensure_ascii=False)
    return (
        f"{prompt}\n\nAnswer with one JSON object of this JSON schema and nothing else:\n{schema}"
    )


def parse_structured(answer: str, output_cls: type[M]) -> tuple[M | None, str]:
    r"""Return the first valid JSON value in an answer, or the error of the last one.

    Fences, reasoning and text around the JSON are ignored; a bare list becomes the only list field
    of the class.

    Examples:
        >>> class Facts(BaseModel):
        ...     facts: list[str]
        >>> parse_structured('<think>{}</think>Here:\n```json\n["leave"]\n```', Facts)[0]
        Facts(facts=['leave'])
        >>> parse_structured("none", Facts)
        (None, 'no JSON')

    """
    text = unfenced(cleaned(answer))
    problem, position, decoder = "no JSON", 0, json.JSONDecoder()
    while (start := _next_json(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, start)
            return output_cls.model_validate(_as_object(value, output_cls)), ""
        except ValidationError as error:
            problem = "; ".join(f"{each['loc']}: {each['msg']}" for each in error.errors()[:3])
        except (ValueError, RecursionError) as error:
            problem, position = f"not JSON: {error}", start + 1
    return None, problem


def _partial(answer: str, output_cls: type[M]) -> M | None:
    """Return the complete entries of an answer that was cut off; None if there are none."""
    text = unfenced(cleaned(answer))
    start = _next_json(text, 0)
    if start is None:
        return None
    try:
        value = from_json(text[start:], allow_partial=True)
    except ValueError:
        return None
    for candidate in (value, _without_last(value)):
        try:
            return output_cls.model_validate(_as_object(candidate, output_cls))
        except ValidationError:
            continue
    return None


def _without_last(value: object) -> object:
    """Return a value that was cut off, without the last entry of each of its lists."""
    if isinstance(value, dict):
        return {k: each[:-1] if isinstance(each, list) else each for k, each in value.items()}
    return value[:-1] if isinstance(value, list) else value


def _next_json(text: str, start: int) -> int | None:
    starts = [at for sign in "{[" if (at := text.find(sign, start)) >= 0]
    return min(starts, default=None)


def _as_object(value: object, output_cls: type[BaseModel]) -> object:
    if isinstance(value, list) and len(output_cls.model_fields) == 1:
        return {next(iter(output_cls.model_fields)): value}
    return value


def _failure(name: str, error: BaseException) -> BaseException:
    """Return the error for an exception of an LLM; the query's own deadline error is unchanged."""
    if isinstance(error, ConfigurationError | GenerationError):
        return error
    if isinstance(error, DeadlineExceededError) and error.by_query:
        return error
    failure = GenerationError(f"{name}: the LLM failed: {describe(error)}")
    failure.__cause__ = error
    return failure


def _completion(llm: LLM, prompt: str, options: dict[str, Any]) -> Call[str]:
    completion = Call(
        lambda: llm.complete(prompt, formatted=False, **options),
        (lambda: llm.acomplete(prompt, formatted=False, **options)) if has_async(llm) else None,
    )
    return completion.then(lambda response: response.text or "")


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


def visible(answer: str) -> str:
    """Return an unfinished answer without reasoning and without a possible incomplete tag.

    Examples:
        >>> visible("<think>25?</think>25 days <th")
        '25 days'

    """
    text = cleaned(answer)
    for sign in "<[◁":
        start = text.rfind(sign)
        if start >= 0 and len(text) - start < _LONGEST_TAG and not _is_closed(text[start:]):
            text = text[:start].rstrip()
    return text


def _is_closed(tag: str) -> bool:
    return any(sign in tag for sign in ">]▷")
