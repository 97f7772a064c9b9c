"""Plans that run a retriever and build the result: hits, missing parts, trace and details."""

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
from llama_retrieval_ext.execution.hints import conclude
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, as_hit, asked_for, correction_in
from llama_retrieval_ext.trace import Trace, details_by_path

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.retriever import Retriever


def search_plan(
    retriever: BaseRetriever,
    query: QueryType,
    *,
    verbose: bool = False,
    on_partial: OnPartial | None = None,
) -> Plan[SearchResult]:
    """Return the plan for the result of a query."""
    session = Session(current_context().session.embeddings)
    with entered(_context(retriever, session, verbose, on_partial)) as context:
        hits = yield from ranking(retriever, query)
        return (yield from _result(retriever, query, hits, context))


def search_apart(retriever: BaseRetriever, query: QueryType) -> Plan[SearchResult]:
    """Return the plan for one of several queries; on failure the result is empty and degraded."""
    with entered(_context(retriever, current_context().session.apart())) as context:
        try:
            hits = yield from ranking(retriever, query)
        except Exception as error:  # noqa: BLE001 - the result has it
            note_degraded(name_of(retriever), error)
            if context.trace is not None:
                context.trace.end(error=error)
            hits = []
        return (yield from _result(retriever, query, hits, context))


def ranking(retriever: BaseRetriever, query: QueryType) -> Plan[list[NodeWithScore]]:
    """Return the plan for the ranking of a query."""
    return call(Call(lambda: retriever.retrieve(query), lambda: retriever.aretrieve(query)))


def _context(
    retriever: BaseRetriever,
    session: Session,
    verbose: bool = False,  # noqa: FBT001, FBT002 - private
    on_partial: OnPartial | None = None,
) -> Context:
    trace = Trace(name_of(retriever), verbose=verbose)
    return Context(session, current_context().deadline, trace, on_partial)


def _result(
    retriever: BaseRetriever, query: QueryType, hits: list[NodeWithScore], context: Context
) -> Plan[SearchResult]:
    session, trace = context.session, context.trace
    hints = yield from conclude(found=bool(hits))
    text = query if isinstance(query, str) else query.query_str
    if not (hits or text.strip() or getattr(query, "embedding", None)):
        hints = ("the query is blank", *hints)
    if trace is not None:
        trace.end(result=hits)
    corrected = correction_in(hints)
    asked = text if corrected is None or corrected.typed != text else corrected.query
    return SearchResult(
        [asked_for(as_hit(hit, source=name_of(retriever)), asked) for hit in hits],
        tuple(session.degraded),
        None if trace is None else trace.snapshot(),
        details_by_path(session.details),
        text,
        hints,
    )


T = TypeVar("T")


def answers(
    retriever: "Retriever",
    queries: Sequence[QueryType],
    plan_of: "Callable[[Retriever, QueryType], Plan[T]]",
    *,
    at_once: int,
) -> Plan[list[T]]:
    """Return the plan for the results of ``plan_of`` for several queries, in order."""
    if isinstance(queries, str | QueryBundle):
        raise ConfigurationError(f"queries must be a list; write [...] around {queries!r}")
    check_count(at_once, "at_once")
    results: list[T] = []
    known = [Query.of(query) for query in queries]
    for start in range(0, len(queries), at_once):
        some = known[start : start + at_once]
        tasks = [Task(retriever.name, plan_of(retriever, query)) for query in some]
        outcomes: list[Outcome[T]] = yield Together(tasks)
        for number, outcome in enumerate(outcomes, start=start + 1):
            if outcome.error is not None:
                outcome.error.add_note(f"in query {number} of {len(queries)}")
            results.append(outcome.result())
    return results


_dispatcher = get_dispatcher(__name__)

F = TypeVar("F", bound=Callable[..., object])


def without_span(method: F) -> F:
    """Return the method, marked to exclude it from LlamaIndex's instrumentation.

    LlamaIndex creates a span for every implementation of an abstract method. ``retrieve`` already
    has one; spans for ``_retrieve`` and for creating a plan would show every level three times, and
    each costs more time than the rest of a retriever.
    """
    setattr(method, DISPATCHER_SPAN_DECORATED_ATTR, True)
    return method


def end_retrieval(query: QueryBundle, error: BaseException) -> None:
    """Emit the end events of a failed retrieval, which LlamaIndex does not emit.

    Handlers that pair ``RetrievalStartEvent`` with ``RetrievalEndEvent`` need the end event.
    """
    _dispatcher.event(ExceptionEvent(exception=error))
    _dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query, nodes=[]))
