"""Runs a retriever and makes the result of its answer: hits, missing parts, trace and details."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import (
    Context,
    OnPartial,
    Session,
    call,
    current_context,
    entered,
    note_degraded,
)
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, as_hit
from llama_retrieval_ext.trace import Trace, details_by_path

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.retriever import Retriever


def searched(
    retriever: BaseRetriever,
    query: QueryType,
    *,
    verbose: bool = False,
    on_partial: OnPartial | None = None,
) -> SearchResult:
    """The result of a query."""
    with entered(_frame(retriever, Session(), verbose, on_partial)) as frame:
        return _result(retriever, query, retriever.retrieve(query), frame)


async def asearched(
    retriever: BaseRetriever,
    query: QueryType,
    *,
    verbose: bool = False,
    on_partial: OnPartial | None = None,
) -> SearchResult:
    """`searched` without blocking the event loop."""
    with entered(_frame(retriever, Session(), verbose, on_partial)) as frame:
        return _result(retriever, query, await retriever.aretrieve(query), frame)


def searched_apart(retriever: BaseRetriever, query: QueryType, session: Session) -> SearchResult:
    """The result of one of several queries; a query that fails has a degraded one without hits."""
    with entered(_frame(retriever, session)) as frame:
        try:
            return _result(retriever, query, retriever.retrieve(query), frame)
        except Exception as error:  # noqa: BLE001 - the result has it
            return _failed(retriever, query, error, frame)


async def asearched_apart(
    retriever: BaseRetriever, query: QueryType, session: Session
) -> SearchResult:
    """`searched_apart` without blocking the event loop."""
    with entered(_frame(retriever, session)) as frame:
        try:
            return _result(retriever, query, await retriever.aretrieve(query), frame)
        except Exception as error:  # noqa: BLE001 - the result has it
            return _failed(retriever, query, error, frame)


def _frame(
    retriever: BaseRetriever,
    session: Session,
    verbose: bool = False,  # noqa: FBT001, FBT002 - private
    on_partial: OnPartial | None = None,
) -> Context:
    trace = Trace(name_of(retriever), verbose=verbose)
    return Context(session, current_context().deadline, trace, on_partial)


def _failed(
    retriever: BaseRetriever, query: QueryType, error: Exception, frame: Context
) -> SearchResult:
    note_degraded(name_of(retriever), error)
    if frame.trace is not None:
        frame.trace.end(error=error)
    return _result(retriever, query, [], frame)


def _result(
    retriever: BaseRetriever, query: QueryType, hits: list[NodeWithScore], frame: Context
) -> SearchResult:
    session, trace = frame.session, frame.trace
    if trace is not None:
        trace.end(result=hits)
    return SearchResult(
        [as_hit(hit, source=name_of(retriever)) for hit in hits],
        tuple(session.degraded),
        None if trace is None else trace.snapshot(),
        details_by_path(session.details),
        query if isinstance(query, str) else query.query_str,
    )


T = TypeVar("T")


def answers(
    retriever: "Retriever",
    queries: Sequence[QueryType],
    request: "Callable[[Retriever, QueryType], Call[T]]",
    *,
    at_once: int,
) -> Plan[list[T]]:
    """The plan for what a retriever gives for each of several queries, in their order."""
    if isinstance(queries, str | QueryBundle):
        raise ConfigurationError(f"queries must be a list; write [...] around {queries!r}")
    check_count(at_once, "at_once")
    results: list[T] = []
    known = [Query.of(query) for query in queries]
    for start in range(0, len(queries), at_once):
        some = queries[start : start + at_once]
        if len(some) > 1:
            prefetch = retriever.prefetch(known[start : start + at_once])
            # What fails here fails again below, in the query that it belongs to; a store that
            # cannot be reached does so without being waited for again.
            yield Together([Task(retriever.name, prefetch)])
        tasks = [Task(retriever.name, call(request(retriever, query))) for query in some]
        outcomes: list[Outcome[T]] = yield Together(tasks)
        session = current_context().session
        session.prefetch.clear()  # of many queries it would be all that they found
        session.unreached.clear()
        for number, outcome in enumerate(outcomes, start=start + 1):
            if outcome.error is not None:
                outcome.error.add_note(f"in query {number} of {len(queries)}")
            results.append(outcome.result())
    return results


def retrieval_of(retriever: "Retriever", query: QueryType) -> Call[list[NodeWithScore]]:
    """The call for the ranking of one query."""
    return Call(lambda: retriever.retrieve(query), lambda: retriever.aretrieve(query))


def search_of(retriever: "Retriever", query: QueryType) -> Call[SearchResult]:
    """The call for the result of one query, which has its error too."""
    session = current_context().session.apart()
    return Call(
        lambda: searched_apart(retriever, query, session),
        lambda: asearched_apart(retriever, query, session),
    )


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
    """
    _dispatcher.event(ExceptionEvent(exception=error))
    _dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query, nodes=[]))
