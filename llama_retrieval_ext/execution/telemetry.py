"""Spans of retrievals for OpenTelemetry, through LlamaIndex's own exporter."""

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.span import active_span_id
from pydantic import PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.execution.events import (
    FusionEvent,
    RetrievalDegradedEvent,
    ScopeViolationEvent,
)

try:
    from llama_index.observability.otel.base import (
        OTelCompatibleEventHandler,
        OTelCompatibleSpanHandler,
    )
    from opentelemetry.trace import Span, TracerProvider
except ModuleNotFoundError as error:
    raise MissingDependencyError("OpenTelemetry", "otel") from error

_TRACER: Final = "llama_retrieval_ext"
# Events without text of a query or a node. LlamaIndex's own have it, and besides that only mark
# where a span begins and ends.
_WITHOUT_CONTENT: Final = (FusionEvent, RetrievalDegradedEvent, ScopeViolationEvent)
_RETRIEVE: Final = ("retrieve", "aretrieve")


class Telemetry:
    """Sends a span for each retrieval, embedding and LLM call to OpenTelemetry.

    The spans are those of LlamaIndex's instrumentation, one for each call, nested as the calls are,
    and go through its package ``llama-index-observability-otel``. Added are the attributes of the
    GenAI conventions: ``gen_ai.operation.name`` (``retrieval``, ``embeddings``, ``chat`` or
    ``text_completion``), of a retriever ``gen_ai.data_source.id`` (its name),
    ``gen_ai.retrieval.top_k`` and the number of hits, of a model ``gen_ai.request.model``. Events
    of fusion, degradation and scope violations are events of the span that they happened in; those
    of LlamaIndex, which hold texts, only with ``content``.

    No text of a query, a node or an answer, and no embedding, leaves the process unless ``content``
    is True; messages of errors do, and say what failed. It lasts until `close`; it is a context
    manager.

    Args:
        provider: Where spans go; the application's, set up with its exporters.
        content: Whether texts are sent too: the query and the hits of a retrieval, and what
            LlamaIndex's own events have.

    Raises:
        ConfigurationError: LlamaIndex's instrumentation sends spans to OpenTelemetry already; each
            would be sent twice.

    Source:
        https://github.com/open-telemetry/semantic-conventions-genai, v0.1.0, retrieval and
        embedding spans, which are still in development.

    Examples:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> provider, exporter = TracerProvider(), InMemorySpanExporter()
        >>> provider.add_span_processor(SimpleSpanProcessor(exporter))
        >>> with Telemetry(provider):
        ...     hits = FakeRetriever([("a", 0.9)]).retrieve("annual leave")
        >>> [span.name for span in exporter.get_finished_spans()]
        ['retrieval FakeRetriever']

    """

    def __init__(self, provider: TracerProvider, *, content: bool = False) -> None:
        self._root = get_dispatcher()
        if any(isinstance(each, OTelCompatibleSpanHandler) for each in self._root.span_handlers):
            raise ConfigurationError(
                "LlamaIndex's instrumentation sends spans to OpenTelemetry already, and each would "
                "be sent twice; close the other Telemetry, or leave LlamaIndexOpenTelemetry out"
            )
        self._spans = _Spans(provider.get_tracer(_TRACER), content=content)
        self._events = _Events(self._spans, content=content)
        self._root.add_span_handler(self._spans)
        self._root.add_event_handler(self._events)

    def close(self) -> None:
        """Send no further spans; a second call is a no-op. The provider stays open."""
        if self._spans in self._root.span_handlers:
            self._root.span_handlers.remove(self._spans)
            self._root.event_handlers.remove(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Spans(OTelCompatibleSpanHandler):
    """LlamaIndex's spans with the attributes of the GenAI conventions.

    LlamaIndex has a second span for the implementation of a method, such as ``_retrieve`` inside
    ``retrieve``. These are left out, and what happens in them belongs to the span around.
    """

    _content: bool = PrivateAttr(default=False)
    _around: dict[str, str | None] = PrivateAttr(default_factory=dict)

    def __init__(self, tracer: Any, *, content: bool) -> None:  # noqa: ANN401 - as its base has it
        super().__init__(tracer=tracer)
        self._content = content

    def open_span(self, id_: str | None) -> str | None:
        """Return the id of the span that is sent for a span of LlamaIndex."""
        while id_ in self._around:
            id_ = self._around[id_]
        return id_

    def new_span(
        self,
        id_: str,
        bound_args: Any,  # noqa: ANN401 - as its base has it
        instance: Any = None,  # noqa: ANN401
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        method = id_.partition("-")[0].rpartition(".")[2]
        parent = self.open_span(parent_span_id)
        if method.startswith("_"):
            self._around[id_] = parent
            return None
        made = super().new_span(id_, bound_args, instance, parent, tags, **kwargs)
        span = self.all_spans[id_]
        if isinstance(instance, BaseRetriever) and method in _RETRIEVE:
            query = next(iter(bound_args.arguments.values()), None)
            _describe_retrieval(span, instance, query if self._content else None)
        elif isinstance(instance, BaseEmbedding):
            _describe_model(span, "embeddings", instance.model_name)
        elif isinstance(instance, LLM) and method.rpartition("_")[2] in _LLM_OPERATIONS:
            operation = _LLM_OPERATIONS[method.rpartition("_")[2]]
            _describe_model(span, operation, instance.metadata.model_name)
        return made

    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: Any,  # noqa: ANN401 - as its base has it
        instance: Any = None,  # noqa: ANN401
        result: Any = None,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if id_ in self._around:
            del self._around[id_]
            return None
        span = self.all_spans.get(id_)
        if span is not None and isinstance(instance, BaseRetriever) and isinstance(result, list):
            _describe_hits(span, result, content=self._content)
        return super().prepare_to_exit_span(id_, bound_args, instance, result, **kwargs)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: Any,  # noqa: ANN401 - as its base has it
        instance: Any = None,  # noqa: ANN401
        err: BaseException | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if id_ in self._around:
            del self._around[id_]
            return None
        return super().prepare_to_drop_span(id_, bound_args, instance, err, **kwargs)


_LLM_OPERATIONS: Final = {
    **dict.fromkeys(("chat", "achat"), "chat"),
    **dict.fromkeys(("complete", "acomplete"), "text_completion"),
}


class _Events(OTelCompatibleEventHandler):
    """LlamaIndex's events, without their content unless that is to be sent."""

    _content: bool = PrivateAttr(default=False)
    _spans: _Spans = PrivateAttr()

    def __init__(self, spans: _Spans, *, content: bool) -> None:
        super().__init__(span_handler=spans)
        self._spans = spans
        self._content = content

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:  # noqa: ANN401 - as its base has it
        if self._content or isinstance(event, _WITHOUT_CONTENT):
            span_id = self._spans.open_span(event.span_id or active_span_id.get())
            super().handle(event.model_copy(update={"span_id": span_id}), **kwargs)


def _describe_retrieval(span: Span, retriever: BaseRetriever, query: object) -> None:
    name = getattr(retriever, "name", None) or type(retriever).__name__
    span.update_name(f"retrieval {name}")
    span.set_attribute("gen_ai.operation.name", "retrieval")
    span.set_attribute("gen_ai.data_source.id", str(name))
    top_k = getattr(retriever, "similarity_top_k", None)
    if isinstance(top_k, int):
        span.set_attribute("gen_ai.retrieval.top_k", top_k)
    if query is not None:
        text = query.query_str if isinstance(query, QueryBundle) else str(query)
        span.set_attribute("gen_ai.retrieval.query.text", text)


def _describe_hits(span: Span, hits: Sequence[object], *, content: bool) -> None:
    found = [hit for hit in hits if isinstance(hit, NodeWithScore)]
    span.set_attribute("llama_retrieval_ext.hits", len(found))
    if content:
        documents = [{"id": hit.node_id, "score": hit.score} for hit in found]
        span.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))


def _describe_model(span: Span, operation: str, model: str) -> None:
    span.update_name(f"{operation} {model}")
    span.set_attribute("gen_ai.operation.name", operation)
    span.set_attribute("gen_ai.request.model", model)
