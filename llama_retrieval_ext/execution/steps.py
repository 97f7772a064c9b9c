"""The small plans that larger ones are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from llama_retrieval_ext.execution.effects import Call, Plan
from llama_retrieval_ext.execution.frame import current_frame, entered

T = TypeVar("T")


def call(effect: Call[T]) -> Plan[T]:
    """The plan that is one call."""
    value: T = yield effect
    return value


def note_legs(rankings: Mapping[str, Sequence[str]]) -> None:
    """Put what each leg of one request found into the trace, where one is kept.

    Args:
        rankings: Node ids, best first, by the name of the leg.
    """
    frame = current_frame()
    if frame is not None and frame.trace is not None:
        frame.trace.end_legs(rankings)


def step(name: str, plan: Plan[T], *, tells: bool = False) -> Plan[T]:
    """The same plan as a step of the trace, where one is kept.

    Args:
        name: What it is called in the trace.
        plan: What runs.
        tells: Whether what it finds on its way is told, as a retriever's is; not a stage's.
    """
    frame = current_frame()
    if frame is None or frame.trace is None:
        return (yield from plan)
    trace = frame.trace.begin(name)
    try:
        on_partial = frame.on_partial if tells else None
        with entered(replace(frame, trace=trace, on_partial=on_partial)):
            value = yield from plan
    except BaseException as error:
        trace.end(error=error)
        raise
    trace.end(result=value)
    return value
