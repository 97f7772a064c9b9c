"""Keeps LlamaIndex's instrumentation from showing every level of retrievers thrice."""

from collections.abc import Callable
from typing import TypeVar

from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR

F = TypeVar("F", bound=Callable[..., object])


def without_span(method: F) -> F:
    """The method, marked as one that LlamaIndex's instrumentation shall not wrap.

    LlamaIndex gives every implementation of an abstract method a span of its own. ``retrieve`` has
    one already: a second for ``_retrieve`` and a third for making a plan show every level thrice,
    and each costs more than the rest of a retriever.
    """
    setattr(method, DISPATCHER_SPAN_DECORATED_ATTR, True)
    return method
