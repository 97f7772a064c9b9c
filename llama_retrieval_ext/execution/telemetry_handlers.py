"""LlamaIndex's handlers for OpenTelemetry, with the names of the GenAI conventions."""

import json
from collections.abc import Sequence
from typing import Any, Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.observability.otel.base import (
    OTelCompatibleEventHandler,
    OTelCompatibleSpanHandler,
)
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.span import active_span_id
from opentelemetry.trace import Span
from pydantic import PrivateAttr

from llama_retrieval_ext.execution.context import (
    FusionEvent,
    RetrievalDegradedEvent,
    ScopeViolationEvent,
)

# Events without text of a query or a node. LlamaIndex's own events contain text, and otherwise
# only mark the start and end of a span.
_WITHOUT_CONTENT: Final = (FusionEvent, RetrievalDegradedEvent, ScopeViolationEvent)


def is_sending(span_handlers: Sequence[object]) -> bool:
    """Return whether one of the handlers sends spans to OpenTelemetry."""
    return any(
        isinstance(span_handler, OTelCompatibleSpanHandler) for span_handler in span_handlers
    )


class Spans(OTelCompatibleSpanHandler):
    """LlamaIndex's spans with the attributes of the GenAI conventions.

    LlamaIndex has a second span for the implementation of a method, such as ``_retrieve`` inside
    ``retrieve``. These are left out; their events and children belong to the enclosing span.
    """

    _content: bool = PrivateAttr(default=False)
    _around: dict[str, str | None] = PrivateAttr(default_factory=dict)

    def __init__(self, tracer: Any, *, content: bool) -> None:  # noqa: ANN401 - as its base has it
        super().__init__(tracer=tracer)
        self._content = content

    def open_span(self, id_: str | None) -> str | None:
        """Return the id of the exported span for a LlamaIndex span."""
        while id_ in self._around:
            id_ = self._around[id_]
        return id_

    # LlamaIndex's dispatcher passes all arguments by name.

    def new_span(self, id_: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as its base
        """Open a span, except for the implementation of a method."""
        method = id_.partition("-")[0].rpartition(".")[2]
        parent = self.open_span(kwargs.get("parent_span_id"))
        if method.startswith("_"):
            self._around[id_] = parent
            return None
        made = super().new_span(id_, *args, **{**kwargs, "parent_span_id": parent})
        self._describe(self.all_spans[id_], method, kwargs["instance"], kwargs["bound_args"])
        return made

    def prepare_to_exit_span(self, id_: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as its base
        """Close a span; for a retrieval, add the number of hits."""
        if self._is_around(id_):
            return None
        span, result = self.all_spans.get(id_), kwargs["result"]
        is_retrieval = isinstance(kwargs["instance"], BaseRetriever) and isinstance(result, list)
        if span is not None and is_retrieval:
            _describe_hits(span, result, content=self._content)
        return super().prepare_to_exit_span(id_, *args, **kwargs)

    def prepare_to_drop_span(self, id_: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as its base
        """Close a span that ended with an error."""
        return None if self._is_around(id_) else super().prepare_to_drop_span(id_, *args, **kwargs)

    def _is_around(self, id_: str) -> bool:
        is_around = id_ in self._around
        self._around.pop(id_, None)
        return is_around

    def _describe(self, span: Span, method: str, instance: object, arguments: Any) -> None:  # noqa: ANN401 - inspect's
        kind = method.rpartition("_")[2].removeprefix("a")
        if isinstance(instance, BaseRetriever) and kind == "retrieve":
            query = next(iter(arguments.arguments.values()), None)
            _describe_retrieval(span, instance, query if self._content else None)
        elif isinstance(instance, BaseEmbedding):
            _describe_model(span, "embeddings", instance.model_name)
        elif isinstance(instance, LLM) and kind in _LLM_OPERATIONS:
            _describe_model(span, _LLM_OPERATIONS[kind], instance.metadata.model_name)


_LLM_OPERATIONS: Final = {"chat": "chat", "complete": "text_completion"}


class Events(OTelCompatibleEventHandler):
    """Handler of LlamaIndex's events, without their content unless enabled."""

    _content: bool = PrivateAttr(default=False)
    _spans: Spans = PrivateAttr()

    def __init__(self, spans: Spans, *, content: bool) -> None:
        super().__init__(span_handler=spans)
        self._spans = spans
        self._content = content

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:  # noqa: ANN401 - as its base has it
        """Add an event to its span."""
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
    scored = [hit for hit in hits if isinstance(hit, NodeWithScore)]
    span.set_attribute("llama_retrieval_ext.hits", len(scored))
    if content:
        documents = [{"id": hit.node_id, "score": hit.score} for hit in scored]
        span.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))


def _describe_model(span: Span, operation: str, model: str) -> None:
    span.update_name(f"{operation} {model}")
    span.set_attribute("gen_ai.operation.name", operation)
    span.set_attribute("gen_ai.request.model", model)
