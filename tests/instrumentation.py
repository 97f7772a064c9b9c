"""Recording of LlamaIndex's instrumentation, for tests of spans and events."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler
from llama_index_instrumentation.span import BaseSpan
from llama_index_instrumentation.span_handlers import BaseSpanHandler
from pydantic import Field


@dataclass(slots=True)
class SeenSpan:
    """Recorded span.

    Attributes:
        id_: LlamaIndex's id: ``ClassName.method-uuid``.
        parent_id: The id of the enclosing span, or None.
        instance: The object whose method it is.
        ended: Whether it ended, normally or by an error.
    """

    id_: str
    parent_id: str | None
    instance: object
    ended: bool = False

    @property
    def method(self) -> str:
        """The method's name."""
        return self.id_.partition("-")[0].rpartition(".")[2]


@dataclass(slots=True)
class Recording:
    """Spans and events, in the order of their start."""

    spans: list[SeenSpan] = field(default_factory=list)
    events: list[BaseEvent] = field(default_factory=list)

    def of_methods(self, *methods: str) -> list[SeenSpan]:
        """Return the spans of these methods."""
        return [span for span in self.spans if span.method in methods]

    def parent_of(self, span: SeenSpan, *methods: str) -> SeenSpan | None:
        """Return the nearest enclosing span of these methods, or None."""
        by_id = {span.id_: span for span in self.spans}
        around = by_id.get(span.parent_id or "")
        while around is not None and around.method not in methods:
            around = by_id.get(around.parent_id or "")
        return around


@contextmanager
def recorded() -> Generator[Recording]:
    """Record all spans and events reported within the block.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> with recorded() as recording:
        ...     hits = FakeRetriever([("a", 1.0)]).retrieve("anything")
        >>> [span.method for span in recording.spans]
        ['retrieve', '_retrieve']

    """
    root, spans, events = get_dispatcher(), _SpanHandler(), _EventHandler()
    root.add_span_handler(spans)
    root.add_event_handler(events)
    try:
        yield Recording(spans.seen, events.seen)
    finally:
        root.span_handlers.remove(spans)
        root.event_handlers.remove(events)


# The signatures are LlamaIndex's; unused arguments go into the keywords.
class _SpanHandler(BaseSpanHandler[BaseSpan]):
    seen: list[SeenSpan] = Field(default_factory=list)

    def new_span(
        self,
        id_: str,
        *_: object,
        instance: object | None = None,
        parent_span_id: str | None = None,
        **__: object,
    ) -> None:
        self.seen.append(SeenSpan(id_, parent_span_id, instance))

    def prepare_to_exit_span(self, id_: str, *_: object, **__: object) -> None:
        self._end(id_)

    def prepare_to_drop_span(self, id_: str, *_: object, **__: object) -> None:
        self._end(id_)

    def _end(self, id_: str) -> None:
        for span in self.seen:
            if span.id_ == id_:
                span.ended = True


class _EventHandler(BaseEventHandler):
    seen: list[BaseEvent] = Field(default_factory=list)

    def handle(self, event: BaseEvent, **_: object) -> None:
        self.seen.append(event)
