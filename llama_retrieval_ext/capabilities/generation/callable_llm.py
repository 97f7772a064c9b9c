"""`CallableLLM`: a plain function from prompt to text as a LlamaIndex LLM."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeAlias

from llama_index.core.base.llms.types import (
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback

from llama_retrieval_ext.errors import ConfigurationError, GenerationError
from llama_retrieval_ext.execution.drivers import pool

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
        self,
        caller: Caller,
        *,
        context_window: int = 8192,
        num_output: int = 1024,
        **kwargs: Any,  # noqa: ANN401 - LlamaIndex's
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
        """Whether the function has a parameter ``temperature``."""
        try:
            parameters = inspect.signature(self.caller).parameters
        except (TypeError, ValueError):  # some built-in functions have no signature
            return False
        return "temperature" in parameters

    @llm_completion_callback()
    def complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: ARG002, FBT001, FBT002 - LlamaIndex's
        **kwargs: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> CompletionResponse:
        """Return the function's answer."""
        value = self.caller(prompt, **self._options(kwargs))
        return _response(_waited(value) if inspect.isawaitable(value) else value)

    @llm_completion_callback()
    async def acomplete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: ARG002, FBT001, FBT002 - LlamaIndex's
        **kwargs: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> CompletionResponse:
        """Return the function's answer; a sync function runs in a thread."""
        options = self._options(kwargs)
        if inspect.iscoroutinefunction(self.caller):
            return _response(await self.caller(prompt, **options))
        value = await asyncio.to_thread(self.caller, prompt, **options)
        return _response(await value if inspect.isawaitable(value) else value)

    @llm_completion_callback()
    def stream_complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        **kwargs: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> CompletionResponseGen:
        """Yield the whole answer at once."""
        whole = self.complete(prompt, formatted=formatted, **kwargs)
        yield CompletionResponse(text=whole.text, delta=whole.text)

    @llm_completion_callback()
    async def astream_complete(
        self,
        prompt: str,
        formatted: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        **kwargs: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> CompletionResponseAsyncGen:
        """Yield the whole answer at once, without blocking the loop."""

        async def parts() -> CompletionResponseAsyncGen:
            whole = await self.acomplete(prompt, formatted=formatted, **kwargs)
            yield CompletionResponse(text=whole.text, delta=whole.text)

        return parts()

    def _options(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if "temperature" in kwargs and self.takes_temperature:
            return {"temperature": kwargs["temperature"]}
        return {}


def _response(value: object) -> CompletionResponse:
    if not isinstance(value, str):
        raise GenerationError(f"the llm_caller must return text, got {value!r}")
    return CompletionResponse(text=value)


def _waited(value: Awaitable[object]) -> object:
    """Run an awaitable in another thread, as this one may have a running event loop."""

    async def awaited() -> object:
        return await value

    context = copy_context()
    return pool.submit(lambda: context.run(asyncio.run, awaited())).result()
