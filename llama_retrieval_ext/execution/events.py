"""Events for LlamaIndex's instrumentation: degradation, fusion and scope violations.

LlamaIndex's dispatcher emits them within the span of the retriever. They contain no text of a
query or a node.
"""

from collections.abc import Callable, Mapping, Sequence

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import NullEventHandler
from pydantic import Field

_dispatcher = get_dispatcher(__name__)


class RetrievalDegradedEvent(BaseEvent):
    """A part of an answer failed and was left out.

    Attributes:
        where: Path of the leg or stage: ``outer/inner``.
        reason: The error.
    """

    where: str
    reason: str

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name of the event."""
        return "RetrievalDegradedEvent"


class FusionEvent(BaseEvent):
    """Several rankings were fused.

    Attributes:
        source: Name of the retriever that fused them.
        fusion: The fusion, as an expression.
        found: Number of hits of each leg that answered, by its name.
        leg_weights: The weight of each of these legs.
        returned: Number of hits in the fused ranking.
    """

    source: str
    fusion: str
    found: dict[str, int] = Field(default_factory=dict)
    leg_weights: dict[str, float] = Field(default_factory=dict)
    returned: int

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name of the event."""
        return "FusionEvent"


class ScopeViolationEvent(BaseEvent):
    """A store returned hits from outside the scope or the filters of a query.

    They are dropped, or the search raises an error.

    Attributes:
        store: The store.
        source: Name of the retriever that searched it.
        violations: Number of hits outside.
        returned: Number of hits that the store returned.
    """

    store: str
    source: str
    violations: int
    returned: int

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name of the event."""
        return "ScopeViolationEvent"


def emit(make: Callable[[], BaseEvent]) -> None:
    """Emit an event; without a handler it is not created.

    Args:
        make: Creates the event.
    """
    dispatcher = _dispatcher
    while all(isinstance(each, NullEventHandler) for each in dispatcher.event_handlers):
        if not dispatcher.propagate:
            return
        dispatcher = dispatcher.parent
    _dispatcher.event(make())


def emit_fusion(
    source: str,
    fusion: object,
    rankings: Mapping[str, Sequence[object]],
    leg_weights: Mapping[str, float],
    *,
    returned: int,
) -> None:
    """Emit the event of a fusion.

    Args:
        source: Name of the retriever.
        fusion: The fusion.
        rankings: The hits of each leg that answered.
        leg_weights: The weight of each leg.
        returned: Number of hits in the fused ranking.
    """
    emit(
        lambda: FusionEvent(
            source=source,
            fusion=repr(fusion),
            found={name: len(ranking) for name, ranking in rankings.items()},
            leg_weights={name: leg_weights[name] for name in rankings},
            returned=returned,
        )
    )
