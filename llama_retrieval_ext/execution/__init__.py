"""Effects for custom stages that do I/O, and limits for the parts of a retriever."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.context import (
        FusionEvent,
        RetrievalDegradedEvent,
        ScopeViolationEvent,
    )
    from llama_retrieval_ext.execution.legs import CircuitBreaker, Leg
    from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
    from llama_retrieval_ext.execution.telemetry import Telemetry


__all__ = [
    "Call",
    "CircuitBreaker",
    "FusionEvent",
    "Leg",
    "Outcome",
    "Plan",
    "RetrievalDegradedEvent",
    "ScopeViolationEvent",
    "Task",
    "Telemetry",
    "Together",
]

# Hidden from type checkers: `__getattr__` would make them accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.execution.context": (
            "FusionEvent",
            "RetrievalDegradedEvent",
            "ScopeViolationEvent",
        ),
        "llama_retrieval_ext.execution.legs": ("CircuitBreaker", "Leg"),
        "llama_retrieval_ext.execution.plan": ("Call", "Outcome", "Plan", "Task", "Together"),
        "llama_retrieval_ext.execution.telemetry": ("Telemetry",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
