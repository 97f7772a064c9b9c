"""Base class of capabilities that write a text from passages, as a LlamaIndex query engine."""

import json
from abc import abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack

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
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, QueryType, TextNode
from llama_index.core.vector_stores.types import MetadataFilters
from pydantic import BaseModel, PrivateAttr

from llama_retrieval_ext.capabilities.output_texts import check_language
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import degraded_count, degraded_since, note_degraded
from llama_retrieval_ext.execution.drivers import arun, asynchronous, blocking, run, within
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.running import Report, Reporting, async_streamed, streamed
from llama_retrieval_ext.hits import as_hit
from llama_retrieval_ext.llm.model import (
    LanguageModel,
    check_prompt,
    count_tokens,
    filled,
    shortened,
)
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.pipeline.retriever import listed
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import Scope, source_in
from llama_retrieval_ext.trace import Degradation
from llama_retrieval_ext.wording import on_one_line

# Accepted as passages: texts, nodes, hits.
PassageLike: TypeAlias = str | BaseNode | NodeWithScore
PassagesLike: TypeAlias = PassageLike | Sequence[PassageLike]
# Passages, or sections of the prompt by name.
ContextLike: TypeAlias = PassagesLike | Mapping[str, object]

# Minimum number of tokens of a shortened passage.
_LEAST_TOKENS: Final = 24


@dataclass(frozen=True, slots=True)
class Excerpts:
    """Numbered passages of a prompt, and the hits in their order."""

    text: str
    hits: tuple[Hit, ...]


def fitted(hits: Sequence[Hit], *, room: int) -> Excerpts:
    """Return the first passages that fit into a number of tokens.

    A passage that is too long is shortened, as its hit is, if a good part of it fits. All passages
    after it are dropped, so that a worse hit never replaces a better one.
    """
    texts: list[str] = []
    shown: list[Hit] = []
    for number, hit in enumerate(hits, start=1):
        head, body = f"[{number}]{_title(hit.node)}\n", hit.node.get_content().strip()
        cost = count_tokens(f"{head}{body}\n\n")
        if cost > room:
            body = shortened(body, room - count_tokens(f"{head}\n\n") - 1)
            if count_tokens(body) >= min(_LEAST_TOKENS, cost):
                texts.append(head + body)
                shown.append(_ended(hit, body))
            break
        texts.append(head + body)
        shown.append(hit)
        room -= cost
    return Excerpts("\n\n".join(texts), tuple(shown))


def _ended(hit: Hit, body: str) -> Hit:
    """Return a hit that ends after a part of its text, also by its position in the document."""
    node, whole = hit.node.model_copy(), hit.node.get_content()
    text = whole[: whole.index(body) + len(body)]
    node.set_content(text)
    if isinstance(node, TextNode) and hit.start is not None and hit.end is not None:
        is_slice = hit.end - hit.start == len(whole)
        node.end_char_idx = hit.start + len(text) if is_slice else None
    return hit.model_copy(update={"node": node})


def as_hits(passages: PassagesLike, *, name: str = "context") -> list[Hit]:
    """Return hits for texts, nodes and hits; a text gets an id with its number."""
    if isinstance(passages, Mapping):
        raise ConfigurationError(f"{name} takes texts, nodes and hits, got {passages!r}")
    several = isinstance(passages, Iterable) and not isinstance(
        passages, str | BaseNode | NodeWithScore
    )
    items = list(passages) if several else [passages]
    return [_as_hit(item, f"{name}-{number}", name) for number, item in enumerate(items, start=1)]


def _as_hit(item: object, node_id: str, name: str) -> Hit:
    if isinstance(item, NodeWithScore):
        scored = item if item.score is not None else NodeWithScore(node=item.node, score=1.0)
        return as_hit(scored, source=name)
    if isinstance(item, BaseNode):
        return Hit(node=item, score=1.0, source=name)
    if isinstance(item, str):
        return Hit(node=TextNode(id_=node_id, text=item), score=1.0, source=name)
    raise ConfigurationError(f"{name} takes texts, nodes and hits, got {item!r}")


def text_of(value: object) -> str:
    """Return a value as text for a prompt: nodes by their content, other structures as JSON.

    Examples:
        >>> text_of({"days": [25, 30], "of": TextNode(text="leave")})
        '{"days": [25, 30], "of": "leave"}'

    """
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    """Return a value in types of JSON, as far as it itself is of another type."""
    if isinstance(value, BaseNode | NodeWithScore):
        return value.get_content()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return value if isinstance(value, dict | list | tuple | int | float | None) else str(value)


_LONGEST_TITLE: Final = 300
_SECTIONS: Final = "Further context from the application; use it, but do not cite it."


def _title(node: BaseNode) -> str:
    """Return the title of a node, or else its file name, and its headings, after a space."""
    title, path = (node.metadata.get(key) for key in ("title", "heading_path"))
    named = title if isinstance(title, str) and title else PurePath(source_in(node.metadata)).name
    shown = [part for part in (named, path) if part and isinstance(part, str)]
    return f" {on_one_line(' > '.join(shown), longest=_LONGEST_TITLE)}" if shown else ""


class RequestOptions(TypedDict, total=False):
    """Options of one text; see ``generate``."""

    scope: Scope | None
    filters: MetadataFilters | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """The request for one text; without passages, some are retrieved."""

    query: Query
    passages: tuple[Hit, ...] | None = None
    sections: str = ""
    temperature: float | None = None
    language: str | None = None


@dataclass
class GeneratedText(Response):
    """A LlamaIndex ``Response`` with the passages of its prompt, by number, as sources.

    Attributes:
        degraded: Missing parts of the retrieval.
        hints: What the retrieval looked for and is not there, in sentences.
    """

    degraded: tuple[Degradation, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text."""
        return self.response or ""

    @property
    def hits(self) -> list[Hit]:
        """Passages of the prompt, by number."""
        return [as_hit(source_node) for source_node in self.source_nodes]


R = TypeVar("R", bound=GeneratedText)


class GeneratingQueryEngine(CustomQueryEngine, Generic[R]):
    """A query engine that fills a prompt with passages and calls a model."""

    task: ClassVar[str]
    passages_argument: ClassVar[str]
    no_passages: ClassVar[str] = ""  # in the prompt
    values_of_prompt: ClassVar[Mapping[str, str]] = {}
    needs_passages: ClassVar[bool] = False  # to call the model

    streaming: bool = False
    _model: LanguageModel = PrivateAttr()
    _prompt: str = PrivateAttr()

    def __init__(self, model: LanguageModel, prompt: str, **fields: Any) -> None:  # noqa: ANN401 - pydantic's
        super().__init__(**fields)
        self._prompt = self._checked_prompt(prompt)
        self._model = model

    @abstractmethod
    def _candidates(self, request: GenerationRequest) -> Plan[list[Hit]]:
        """Return the plan for the candidate passages, best first."""

    @abstractmethod
    def _finished(self, text: str, passages: Excerpts, request: GenerationRequest) -> R:
        """Return the answer for a whole text; the text is empty if no model was called."""

    def _partial(self, text: str, passages: Excerpts, request: GenerationRequest) -> R | None:
        """Return the answer for an unfinished text; None if it cannot be shown yet."""
        return self._finished(text, passages, request)

    @property
    def _retrieves(self) -> bool:
        """Whether there is a retriever."""
        return True

    @property
    def llm(self) -> LLM:
        """The language model."""
        return self._model.llm

    @blocking
    def custom_query(self, query_str: str) -> Plan[R]:
        """Implement LlamaIndex's hook; ``query`` also uses the options of a `Query`."""
        return self._answered(GenerationRequest(Query.of(query_str)))

    acustom_query = asynchronous(custom_query)  # type: ignore[arg-type]  # its self is this class

    def query(self, str_or_query_bundle: QueryType) -> RESPONSE_TYPE:
        """Return the answer, or a streaming response if ``streaming`` is set."""
        answer: RESPONSE_TYPE = BaseQueryEngine.query(self, Query.of(str_or_query_bundle))
        return answer

    async def aquery(self, str_or_query_bundle: QueryType) -> RESPONSE_TYPE:
        """`query` without blocking the event loop."""
        answer: RESPONSE_TYPE = await BaseQueryEngine.aquery(self, Query.of(str_or_query_bundle))
        return answer

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        request = GenerationRequest(Query.of(query_bundle))
        if not self.streaming:
            return run(self._answered(request))
        parts = self._stream(request)
        first = next(parts)
        return StreamingResponse(_deltas(first, parts), source_nodes=first.source_nodes)

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        request = GenerationRequest(Query.of(query_bundle))
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
        return check_prompt(prompt, "passages", "query", *cls.values_of_prompt)

    def _request(
        self,
        query: QueryType,
        context: ContextLike | None,
        *,
        temperature: float | None = None,
        language: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> GenerationRequest:
        bound, name = Query.of(query).but(**options), self.passages_argument
        passages, sections = None, ""
        if isinstance(context, Mapping):
            parts = [f"{key}:\n{text_of(value)}" for key, value in context.items()]
            sections = "\n\n".join([_SECTIONS, *parts]) if parts else ""
        elif context is not None:
            passages = tuple(as_hits(context, name=name))
        if temperature is not None and (not is_number(temperature) or temperature < 0):
            raise ConfigurationError(f"temperature must be 0 or more, got {temperature!r}")
        is_bound = bound.scope is not None or bound.filters is not None
        if is_bound and not self._retrieves:
            raise ConfigurationError(
                "scope and filters bound the retrieval, and there is no retriever; leave them "
                "out, or give the generator a retriever"
            )
        if is_bound and passages is not None:
            raise ConfigurationError(
                f"scope and filters bound the retrieval, and with {name}= nothing is retrieved; "
                f"leave them out, or {name}"
            )
        return GenerationRequest(bound, passages, sections, temperature, check_language(language))

    def _answered(self, request: GenerationRequest, report: Report[R] | None = None) -> Plan[R]:
        """Return the plan for the answer within the time limit; report partial answers."""
        return within(self.task, self._answer(request, report), request.query.timeout_s)

    @streamed
    def _stream(self, request: GenerationRequest) -> Reporting[R]:
        return lambda report: self._answered(request, report)

    _astream = async_streamed(_stream)

    def _filled(self, request: GenerationRequest, passages: Excerpts) -> str:
        texts = filter(None, (passages.text or self.no_passages, request.sections))
        return filled(
            self._prompt,
            passages="\n\n".join(texts),
            query=request.query.query_str,
            **self.values_of_prompt,
        )

    def _answer(self, request: GenerationRequest, report: Report[R] | None) -> Plan[R]:
        empty = self._filled(request, Excerpts("", ()))
        self._model.check_fits(self.task, empty)
        before = degraded_count()
        hits = yield from listed(self._candidates(request))
        passages = fitted(hits, room=self._model.room(empty))
        if hits and not passages.hits:
            note_degraded(self.task, "no passage fits into the context window of the LLM")
        degraded, text = degraded_since(before), ""
        if passages.hits or request.sections or not self.needs_passages:
            text = yield from self._model.text(
                self.task,
                self._filled(request, passages),
                temperature=request.temperature,
                report=None if report is None else self._partials(passages, request, report),
            )
        finished = self._finished(text, passages, request)
        return replace(finished, degraded=degraded, hints=hits.hints)

    def _partials(
        self, passages: Excerpts, request: GenerationRequest, report: Report[R]
    ) -> Report[str]:
        """Report unfinished texts as answers."""

        def reported(text: str) -> object:
            partial = self._partial(text, passages, request)
            return True if partial is None else report(partial)

        return reported


def _deltas(first: Response, following: Iterator[Response]) -> Generator[str, None, None]:
    yield (shown := first.response or "")
    for response in following:
        if delta := _delta(text := response.response or "", shown):
            yield delta
        shown = text


async def _adeltas(
    first: Response, following: AsyncIterator[Response]
) -> AsyncGenerator[str, None]:
    yield (shown := first.response or "")
    async for response in following:
        if delta := _delta(text := response.response or "", shown):
            yield delta
        shown = text


def _delta(text: str, shown: str) -> str:
    """Return the new part; an answer that changed is repeated on a new line."""
    return text[len(shown) :] if text.startswith(shown) else f"\n{text}"
