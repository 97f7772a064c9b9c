"""Spans of retrievals for OpenTelemetry, through LlamaIndex's own exporter."""

from typing import TYPE_CHECKING, Final, Self

from llama_index_instrumentation import get_dispatcher

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_TRACER: Final = "llama_retrieval_ext"


class Telemetry:
    """OpenTelemetry exporter: one span for each retrieval, embedding and LLM call.

    The spans are those of LlamaIndex's instrumentation, one for each call, nested like the calls,
    and are sent by its package ``llama-index-observability-otel``. This class adds attributes of
    the GenAI conventions: ``gen_ai.operation.name`` (``retrieval``, ``embeddings``, ``chat`` or
    ``text_completion``), of a retriever ``gen_ai.data_source.id`` (its name),
    ``gen_ai.retrieval.top_k`` and the number of hits, of a model ``gen_ai.request.model``. Events
    of fusion, degradation and scope violations are added to the current span; LlamaIndex's events,
    which contain texts, only with ``content``.

    Texts of queries, nodes and answers, and embeddings, are sent only if ``content`` is True; error
    messages are always sent. Spans are sent until `close`. It is a context manager.

    Args:
        provider: The application's tracer provider, configured with its exporters.
        content: Whether to send texts: the query and the hits of a retrieval, and the content of
            LlamaIndex's events.

    Raises:
        ConfigurationError: LlamaIndex's instrumentation already sends spans to OpenTelemetry; each
            span would be sent twice.
        MissingDependencyError: The extra ``otel`` is not installed.

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

    def __init__(self, provider: "TracerProvider", *, content: bool = False) -> None:
        try:
            from llama_retrieval_ext.execution import telemetry_handlers as handlers  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MissingDependencyError("Telemetry", "otel") from error
        self._root = get_dispatcher()
        if handlers.is_sending(self._root.span_handlers):
            raise ConfigurationError(
                "LlamaIndex's instrumentation sends spans to OpenTelemetry already, and each would "
                "be sent twice; close the other Telemetry, or leave LlamaIndexOpenTelemetry out"
            )
        self._spans = handlers.Spans(provider.get_tracer(_TRACER), content=content)
        self._events = handlers.Events(self._spans, content=content)
        self._root.add_span_handler(self._spans)
        self._root.add_event_handler(self._events)

    def close(self) -> None:
        """Stop sending spans; a second call is a no-op. The provider stays open."""
        if self._spans in self._root.span_handlers:
            self._root.span_handlers.remove(self._spans)
            self._root.event_handlers.remove(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
