"""Calls of a language model with a token budget, a time limit and strict parsing."""
# ruff: noqa: ANN401, ARG002, FBT001, FBT002 - LlamaIndex's signatures

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, Final, TypeAlias, TypeVar

from llama_index.core.base.llms.types import (
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms import LLM, CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.utils import get_tokenizer
from pydantic import BaseModel

from llama_retrieval_ext.checks import check_seconds
from llama_retrieval_ext.errors import (
    ConfigurationError,
    DeadlineExceededError,
    GenerationError,
    describe,
)
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.drivers import in_thread, pool
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.running import Report, WhileOpen
from llama_retrieval_ext.llm.client import completion, has_async, note_cut_off
from llama_retrieval_ext.llm.parsing import cleaned, parse_structured, partly_structured, visible

# A function from prompt to text, sync or async.
Caller: TypeAlias = Callable[..., str] | Callable[..., Awaitable[str]]


class CallableLLM(CustomLLM):
    """A LlamaIndex LLM that calls a function.

    Args:
        caller: Takes the prompt and returns the answer; sync or async. A parameter
            ``temperature`` receives the temperature if one is set.
        context_window: Tokens of prompt and answer together.
        num_output: The part of these tokens for the answer.

    Raises:
        ConfigurationError: ``caller`` cannot be called.

    Examples:
        >>> str(CallableLLM(lambda prompt: prompt.upper()).complete("leave"))
        'LEAVE'

    """

    caller: Callable[..., Any]
    context_window: int = 8192
    num_output: int = 1024

    def __init__(
        self, caller: Caller, *, context_window: int = 8192, num_output: int = 1024, **kwargs: Any
    ) -> None:
        if not callable(caller):
            raise ConfigurationError(
                f"caller must be a function from prompt to text, got {caller!r}"
            )
        super().__init__(
            caller=caller, context_window=context_window, num_output=num_output, **kwargs
        )

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name for the class in serialised form."""
        return "CallableLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Token limits, and the function's name as the model name."""
        return LLMMetadata(
            context_window=self.context_window,
            num_output=self.num_output,
            model_name=getattr(self.caller, "__name__", type(self.caller).__name__),
        )

    @property
    def takes_temperature(self) -> bool:
        """Whether the function has a parameter ``temperature``, or takes any keyword."""
        try:
            parameters = inspect.signature(self.caller).parameters
        except (TypeError, ValueError):  # some built-in functions have no signature
            return False
        takes_any = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        return takes_any or "temperature" in parameters

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the function's answer."""
        value = self.caller(prompt, **self._options(kwargs))
        return _response(_result_of(value) if inspect.isawaitable(value) else value)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Return the function's answer; a sync function runs in a thread."""
        options = self._options(kwargs)
        if inspect.iscoroutinefunction(self.caller):
            return _response(await self.caller(prompt, **options))
        value = await in_thread(lambda: self.caller(prompt, **options))
        return _response(await value if inspect.isawaitable(value) else value)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Yield the whole answer at once."""
        whole = self.complete(prompt, formatted=formatted, **kwargs)
        yield CompletionResponse(text=whole.text, delta=whole.text)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseAsyncGen:
        """Yield the whole answer at once, without blocking the loop."""

        async def parts() -> CompletionResponseAsyncGen:
            whole = await self.acomplete(prompt, formatted=formatted, **kwargs)
            yield CompletionResponse(text=whole.text, delta=whole.text)

        return parts()

    def _options(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        names = {"temperature"} if self.takes_temperature else set()
        return {name: value for name, value in kwargs.items() if name in names}


def _response(value: object) -> CompletionResponse:
    if not isinstance(value, str):
        raise GenerationError(f"the llm_caller must return text, got {value!r}")
    return CompletionResponse(text=value)


def _result_of(value: Awaitable[object]) -> object:
    """Run an awaitable in another thread, as this one may have a running event loop."""

    async def awaited() -> object:
        return await value

    context = copy_context()
    return pool.submit(lambda: context.run(asyncio.run, awaited())).result()


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


M = TypeVar("M", bound=BaseModel)
GENERATION_TIMEOUT_S: Final = 60.0
# Tokens that chat formats add around a prompt.
_OVERHEAD: Final = 16
_SHOWN: Final = 80


class LanguageModel:
    """A language model with a time limit and a token budget."""

    def __init__(self, llm: LLM | Caller, timeout_s: float = GENERATION_TIMEOUT_S) -> None:
        self.llm = as_llm(llm)
        self.timeout_s = check_seconds(timeout_s, "timeout_s")

    def room(self, prompt: str) -> int:
        """Return how many tokens still fit beside a prompt and the answer; may be negative."""
        metadata = self.llm.metadata
        output = DEFAULT_NUM_OUTPUTS if metadata.num_output < 0 else metadata.num_output
        used = count_tokens(prompt) + count_tokens(self.llm.system_prompt or "")
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
                completion(llm, prompt, options).then(lambda response: response.text or "")
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
            value = partly_structured(second, output_cls) or partly_structured(first, output_cls)
            if value is not None:
                note_cut_off(name, second)
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


def takes_temperature(llm: LLM) -> bool:
    """Return whether a model has a temperature; only a plain function may have none."""
    return not isinstance(llm, CallableLLM) or llm.takes_temperature


def with_temperature(llm: LLM, temperature: float | None) -> tuple[LLM, dict[str, Any]]:
    """Return the LLM and the options of its calls for a temperature."""
    if temperature is None:
        return llm, {}
    if "temperature" in type(llm).model_fields:  # integrations differ in the options of calls
        return llm.model_copy(update={"temperature": temperature}), {}
    if not takes_temperature(llm):
        raise ConfigurationError(
            f"{llm.metadata.model_name} takes no temperature: give the function a parameter "
            "'temperature', or leave temperature out"
        )
    return llm, {"temperature": temperature}


def structured_prompt(prompt: str, output_cls: type[BaseModel]) -> str:
    """Return the prompt with the JSON schema of the answer appended."""
    schema = json.dumps(output_cls.model_json_schema(), ensure_ascii=False)
    return (
        f"{prompt}\n\nAnswer with one JSON object of this JSON schema and nothing else:\n{schema}"
    )


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
