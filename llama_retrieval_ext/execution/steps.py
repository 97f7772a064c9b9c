"""Names a part of a plan in the trace."""

from dataclasses import replace
from typing import TypeVar

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.frame import current_frame, entered

T = TypeVar("T")


def step(name: str, plan: Plan[T]) -> Plan[T]:
    """The same plan as a step of the trace, where one is kept."""
    frame = current_frame()
    if frame is None or frame.trace is None:
        return (yield from plan)
    trace = frame.trace.begin(name)
    try:
        with entered(replace(frame, trace=trace)):
            value = yield from plan
    except BaseException as error:
        trace.end(error=error)
        raise
    trace.end(count=len(value) if isinstance(value, list) else None)
    return value
