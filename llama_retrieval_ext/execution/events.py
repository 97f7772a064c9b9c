"""Events of LlamaIndex's instrumentation that tell what happened inside a retrieval.

They go through LlamaIndex's dispatcher, within the span of the retriever that emits them. None has
text of a query or of a node.
"""

from collections.abc import Mapping

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from pydantic import Field

_dispatcher = get_dispatcher(__name__)


class RetrievalDegradedEvent(BaseEvent):
    """A part of an answer failed and was left out.

    Attributes:
        where: The leg or stage, behind the legs it is in: ``outer/inner``.
        reason: What went wrong there.
    """

    where: str
    reason: str

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the event."""
        return "RetrievalDegradedEvent"


class FusionEvent(BaseEvent):
    """Several rankings became one.

    Attributes:
        source: Name of the retriever that fused them.
        fusion: The fusion, as an expression.
        found: How many hits each leg that answered found, by its name.
        leg_weights: The weight of each of these legs.
        returned: How many hits the fused ranking has.
    """

    source: str
    fusion: str
    found: dict[str, int] = Field(default_factory=dict)
    leg_weights: dict[str, float] = Field(default_factory=dict)
    returned: int

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the event."""
        return "FusionEvent"


class ScopeViolationEvent(BaseEvent):
    """A store returned hits from outside the scope or the filters of a query.

    They were dropped before anybody saw them, and perhaps an error was raised.

    Attributes:
        store: The store.
        source: Name of the retriever that searched it.
        violations: How many hits were outside.
        returned: How many hits the store returned.
    """

    store: str
    source: str
    violations: int
    returned: int

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the event."""
        return "ScopeViolationEvent"


def emit_fusion(
    source: str,
    fusion: object,
    found: Mapping[str, int],
    leg_weights: Mapping[str, float],
    *,
    returned: int,
) -> None:
    """Emit the event of a fusion.

    Args:
        source: Name of the retriever.
        fusion: The fusion.
        found: How many hits each leg that answered found.
        leg_weights: The weight of each leg.
        returned: How many hits the fused ranking has.
    """
    weights = {name: leg_weights[name] for name in found}
    _dispatcher.event(
        FusionEvent(
            source=source,
            fusion=repr(fusion),
            found=dict(found),
            leg_weights=weights,
            returned=returned,
        )
    )
