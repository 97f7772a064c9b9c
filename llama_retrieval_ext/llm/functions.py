"""`CallableLLM`: a function from prompt to text as a LlamaIndex LLM."""
# ruff: noqa: ANN401, ARG002, FBT001, FBT002 - LlamaIndex's signatures

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeAlias

from llama_index.core.base.llms.types import (
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.llms import LLM, CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback

from llama_retrieval_ext.errors import ConfigurationError, GenerationError
from llama_retrieval_ext.execution.drivers import either_way, in_thread
from llama_retrieval_ext.parameters import Advice

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
        takes_any = any(value.kind is value.VAR_KEYWORD for value in parameters.values())
        return takes_any or "temperature" in parameters

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the function's answer."""
        blocking, _ = self._calls(prompt, kwargs)
        return _response(blocking())

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Return the function's answer; a sync function runs in a thread."""
        blocking, attempt = self._calls(prompt, kwargs)
        return _response(await (in_thread(blocking) if attempt is None else attempt()))

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

    def _calls(
        self, prompt: str, options: dict[str, Any]
    ) -> tuple[Callable[[], Any], Callable[[], Awaitable[Any]] | None]:
        if self.takes_temperature and "temperature" in options:
            return either_way(partial(self.caller, temperature=options["temperature"]), prompt)
        return either_way(self.caller, prompt)


def _response(value: object) -> CompletionResponse:
    if not isinstance(value, str):
        raise GenerationError(f"the llm_caller must return text, got {value!r}")
    return CompletionResponse(text=value)


def as_llm(llm: LLM | Caller) -> LLM:
    """Return a LlamaIndex LLM; a plain function from prompt to text becomes one."""
    if isinstance(llm, LLM):
        return llm
    if callable(llm):
        return CallableLLM(llm)
    raise ConfigurationError(
        f"pass a LlamaIndex LLM as llm, or a function from prompt to text, got {llm!r}; there is "
        "no default, and LlamaIndex's Settings are not used"
    )


# Any LlamaIndex LLM, or a function from prompt to text, sync or async.
AnyLLM: TypeAlias = Annotated[
    LLM | Caller,
    Advice(
        "pass a LlamaIndex LLM, or a function from prompt to text; there is no default, and "
        "LlamaIndex's Settings are not used"
    ),
]


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
