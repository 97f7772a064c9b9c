"""What LlamaIndex's instrumentation sees of a retriever: one span a level, and its end."""

from collections.abc import Callable
from typing import TypeVar

from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.schema import QueryBundle
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR

_dispatcher = get_dispatcher(__name__)

F = TypeVar("F", bound=Callable[..., object])


def without_span(method: F) -> F:
    """The method, marked as one that LlamaIndex's instrumentation shall not wrap.

    LlamaIndex gives every implementation of an abstract method a span of its own. ``retrieve`` has
    one already: a second for ``_retrieve`` and a third for making a plan show every level thrice,
    and each costs more than the rest of a retriever.
    """
    setattr(method, DISPATCHER_SPAN_DECORATED_ATTR, True)
    return method


def end_retrieval(query: QueryBundle, error: BaseException) -> None:
    """Emit the events that end a failed retrieval, which LlamaIndex leaves without an end.

    Handlers that pair ``RetrievalStartEvent`` with ``RetrievalEndEvent`` would keep it for ever.

    Args:
        query: The query of the retrieval.
        error: Why it failed.
    """
    _dispatcher.event(ExceptionEvent(exception=error))
    _dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query, nodes=[]))
