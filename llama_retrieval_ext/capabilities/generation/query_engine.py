"""Base class of capabilities that write a text from passages, as a LlamaIndex query engine."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters
from pydantic import PrivateAttr

from llama_retrieval_ext.capabilities.generation.language_model import LanguageModel
from llama_retrieval_ext.capabilities.generation.passages import Passages, fitted
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import degraded_count, degraded_since, note_degraded
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.running import Report, apartials, partials, within
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.trace import Degradation

R = TypeVar("R", bound=Response)


class RequestOptions(TypedDict, total=False):
    """Options of one text; see ``generate``."""

    scope: Scope | None
    filters: MetadataFilters | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Request:
    """The request for one text.

    Attributes:
        query: The question or task, with scope and filters.
        passages: The caller's passages; None to retrieve some.
        temperature: None for the model's own.
    """

    query: Query
    passages: tuple[Hit, ...] | None = None
    temperature: float | None = None


class GeneratingQueryEngine(CustomQueryEngine, Generic[R]):
    """A query engine that fills a prompt with passages and calls a model.

    Attributes:
        streaming: Whether ``query`` and ``aquery`` return LlamaIndex's streaming responses.
    """

    fields_of_prompt: ClassVar[tuple[str, ...]] = ()
    task: ClassVar[str] = "generate"

    streaming: bool = False
    _model: LanguageModel = PrivateAttr()
    _prompt: str = PrivateAttr()

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - pydantic's
        super().__init__(**fields)

    @abstractmethod
    def _candidates(self, request: Request) -> Plan[list[Hit]]:
        """Return the plan for the candidate passages, best first."""

    @abstractmethod
    def _filled(self, request: Request, passages: Passages) -> str:
        """Return the prompt."""

    @abstractmethod
    def _finished(self, text: str, passages: Passages, degraded: tuple[Degradation, ...]) -> R:
        """Return the answer for a whole text; the text is empty if no model was called."""

    @abstractmethod
    def _partial(self, text: str, passages: Passages) -> R | None:
        """Return the answer for an unfinished text; None if it cannot be shown yet."""

    def _needs_passages(self) -> bool:
        """Return whether the model is called only if there are passages."""
        return False

    @property
    def llm(self) -> LLM:
        """The language model."""
        return self._model.llm

    def custom_query(self, query_str: str) -> R:
        """Implement LlamaIndex's hook; ``query`` also uses the options of a `Query`."""
        return run(self._answered(Request(Query.of(query_str))))

    async def acustom_query(self, query_str: str) -> R:
        """Implement LlamaIndex's hook; ``aquery`` also uses the options of a `Query`."""
        return await arun(self._answered(Request(Query.of(query_str))))

    def query(self, str_or_query_bundle: QueryType) -> RESPONSE_TYPE:
        """Return the answer, or a streaming response if ``streaming`` is set."""
        answer: RESPONSE_TYPE = BaseQueryEngine.query(self, Query.of(str_or_query_bundle))
        return answer

    async def aquery(self, str_or_query_bundle: QueryType) -> RESPONSE_TYPE:
        """`query` without blocking the event loop."""
        answer: RESPONSE_TYPE = await BaseQueryEngine.aquery(self, Query.of(str_or_query_bundle))
        return answer

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        request = Request(Query.of(query_bundle))
        if not self.streaming:
            return run(self._answered(request))
        parts = self._stream(request)
        first = next(parts)
        return StreamingResponse(_deltas(first, parts), source_nodes=first.source_nodes)

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        request = Request(Query.of(query_bundle))
        if not self.streaming:
            return await arun(self._answered(request))
        parts = self._astream(request)
        first = await anext(parts)
        return AsyncStreamingResponse(_adeltas(first, parts), source_nodes=first.source_nodes)

    def _get_prompts(self) -> dict[str, Any]:
        return {"prompt": PromptTemplate(self._prompt)}

    def _update_prompts(self, prompts: dict[str, Any]) -> None:
        if "prompt" in prompts:
            self._prompt = self._checked_prompt(prompts["prompt"].get_template())

    @classmethod
    def _checked_prompt(cls, prompt: str) -> str:
        missing = [f"{{{name}}}" for name in cls.fields_of_prompt if f"{{{name}}}" not in prompt]
        if missing:
            raise ConfigurationError(
                f"the prompt must contain {' and '.join(missing)}, got {prompt!r}"
            )
        return prompt

    def _answered(self, request: Request, report: Report[R] | None = None) -> Plan[R]:
        """Return the plan for the answer within the time limit; report partial answers."""
        return within(self.task, self._answer(request, report), request.query.timeout_s)

    def _stream(self, request: Request) -> Iterator[R]:
        return partials(lambda report: self._answered(request, report))

    def _astream(self, request: Request) -> AsyncIterator[R]:
        return apartials(lambda report: self._answered(request, report))

    def _answer(self, request: Request, report: Report[R] | None) -> Plan[R]:
        before = degraded_count()
        empty = self._filled(request, Passages("", ()))
        self._model.check_fits(self.task, empty)
        hits = yield from self._candidates(request)
        passages = fitted(hits, self._model.tokens, room=self._model.room(empty))
        if hits and not passages.hits:
            note_degraded(self.task, "no passage fits into the context window of the LLM")
        degraded, text = degraded_since(before), ""
        if passages.hits or not self._needs_passages():
            text = yield from self._model.text(
                self.task,
                self._filled(request, passages),
                temperature=request.temperature,
                report=None if report is None else self._partials(passages, report),
            )
        return self._finished(text, passages, degraded)

    def _partials(self, passages: Passages, report: Report[R]) -> Report[str]:
        """Report unfinished texts as answers."""

        def reported(text: str) -> object:
            partial = self._partial(text, passages)
            return True if partial is None else report(partial)

        return reported


def _deltas(first: Response, rest: Iterator[Response]) -> Generator[str, None, None]:
    shown = first.response or ""
    yield shown
    for each in rest:
        delta = _delta(each.response or "", shown)
        shown += delta
        if delta:
            yield delta


async def _adeltas(first: Response, rest: AsyncIterator[Response]) -> AsyncGenerator[str, None]:
    shown = first.response or ""
    yield shown
    async for each in rest:
        delta = _delta(each.response or "", shown)
        shown += delta
        if delta:
            yield delta


def _delta(text: str, shown: str) -> str:
    """Return the new part; an answer that changed is repeated on a new line."""
    return text[len(shown) :] if text.startswith(shown) else f"\n{text}"
