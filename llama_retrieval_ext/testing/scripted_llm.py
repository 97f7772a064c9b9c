"""An LLM for tests with scripted answers."""
# ruff: noqa: ARG002, FBT001, FBT002 - the signatures are LlamaIndex's

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from llama_index.core.base.llms.generic_utils import (
    completion_response_to_chat_response,
    messages_to_prompt,
    stream_completion_response_to_chat_response,
)
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.utils import get_tokenizer
from pydantic import PrivateAttr

T = TypeVar("T")
ScriptedAnswer: TypeAlias = str | BaseException | tuple[float, str]


class ScriptedLLM(CustomLLM):
    """LLM that gives its answers in order, one per prompt, and records the prompts.

    An answer is a text, an exception to raise, or a pair of delay in seconds and text. Chat and
    streaming, sync and async, use the same answers.

    A prompt that leaves no room for ``num_output`` tokens, by LlamaIndex's tokenizer, raises an
    ``AssertionError``.

    Args:
        answers: The answers; when they run out, the next prompt raises a ``LookupError``. Or a
            function of the prompt, for prompts in unknown order.
        context_window: Number of tokens of prompt and answer together.
        num_output: Number of these tokens for the answer.

    Examples:
        >>> llm = ScriptedLLM(["two", (0.01, "late")])
        >>> str(llm.complete("1 + 1?"))
        'two'
        >>> llm.prompts
        ['1 + 1?']

    """

    context_window: int = 32_000
    num_output: int = 1_000
    _left: deque[ScriptedAnswer] = PrivateAttr()
    _answer: Callable[[str], ScriptedAnswer] | None = PrivateAttr(default=None)
    _prompts: list[str] = PrivateAttr(default_factory=list)

    def __init__(
        self,
        answers: Sequence[ScriptedAnswer] | Callable[[str], ScriptedAnswer],
        *,
        context_window: int = 32_000,
        num_output: int = 1_000,
    ) -> None:
        super().__init__(context_window=context_window, num_output=num_output)
        if callable(answers):
            self._answer, answers = answers, ()
        self._left = deque(answers)

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name of the class in serialised form."""
        return "ScriptedLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """Metadata of a completion model; by default with room for long prompts."""
        return LLMMetadata(
            context_window=self.context_window, num_output=self.num_output, model_name="scripted"
        )

    @property
    def prompts(self) -> list[str]:
        """All received prompts, oldest first."""
        return self._prompts

    def _next(self, prompt: str) -> tuple[float, str | BaseException]:
        self._prompts.append(prompt)
        self._check_budget(prompt)
        try:
            answer = self._left.popleft() if self._answer is None else self._answer(prompt)
        except IndexError:
            raise LookupError(
                f"the script has no answer left for prompt {len(self._prompts)}: {prompt[:80]!r}"
            ) from None
        return answer if isinstance(answer, tuple) else (0.0, answer)

    def _check_budget(self, prompt: str) -> None:
        if len(prompt.encode()) + self.num_output <= self.context_window:
            return  # a token has at least one byte
        tokens = len(get_tokenizer()(prompt))
        if tokens + self.num_output > self.context_window:
            raise AssertionError(
                f"a prompt of {tokens} tokens leaves no room for {self.num_output} in "
                f"{self.context_window}: {prompt[:80]!r}"
            )

    def _prompt(self, messages: Sequence[ChatMessage]) -> str:
        return (self.messages_to_prompt or messages_to_prompt)(messages)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: object) -> CompletionResponse:
        """Return the next answer."""
        delay_s, answer = self._next(prompt)
        if delay_s:  # even a sleep of 0 s yields the processor
            time.sleep(delay_s)
        return _said(answer)

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **_: object
    ) -> CompletionResponse:
        """Return the next answer, without blocking the loop."""
        delay_s, answer = self._next(prompt)
        await asyncio.sleep(delay_s)
        return _said(answer)

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **_: object
    ) -> CompletionResponseGen:
        """Return the next answer, word by word."""
        return _streamed(self.complete(prompt, formatted=formatted))

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **_: object
    ) -> CompletionResponseAsyncGen:
        """Return the next answer, word by word, without blocking the loop."""
        return _awaited(_streamed(await self.acomplete(prompt, formatted=formatted)))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **_: object) -> ChatResponse:
        """Return the next answer as a message, without blocking the loop."""
        whole = await self.acomplete(self._prompt(messages), formatted=True)
        return completion_response_to_chat_response(whole)

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **_: object
    ) -> ChatResponseAsyncGen:
        """Return the next answer as a message, word by word, without blocking the loop."""
        words = _streamed(await self.acomplete(self._prompt(messages), formatted=True))
        return _awaited(stream_completion_response_to_chat_response(words))


def _said(answer: str | BaseException) -> CompletionResponse:
    if isinstance(answer, BaseException):
        raise answer
    return CompletionResponse(text=answer)


async def _awaited(parts: Iterable[T]) -> AsyncGenerator[T, None]:
    for part in parts:
        yield part


def _streamed(whole: CompletionResponse) -> CompletionResponseGen:
    text = ""
    for index, word in enumerate(whole.text.split(" ")):
        delta = f" {word}" if index else word
        text += delta
        yield CompletionResponse(text=text, delta=delta)
