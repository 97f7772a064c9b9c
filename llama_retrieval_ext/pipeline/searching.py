"""Plans that run a retriever and build the result: hits, missing parts, trace and details."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

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
    current_context,
    entered,
    note_degraded,
)
from llama_retrieval_ext.execution.hints import conclude
from llama_retrieval_ext.execution.plan import Outcome, Plan, Task, Together
from llama_retrieval_ext.hits import as_hit
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult, asked_for, correction_in
from llama_retrieval_ext.trace import Trace, details_by_path

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.retriever import Retriever


_NO_WORDS: Final = (
    "fields has no effect: it weighs keyword search, and nothing here searched for words; search "
    "by 'keyword' or 'hybrid'"
)


def search_plan(
    retriever: "Retriever",
    query: Query,
    *,
    verbose: bool = False,
    on_partial: OnPartial | None = None,
) -> Plan[SearchResult]:
    """Return the plan for the result of a query."""
    outer = current_context()
    session, trace = Session(outer.session.embeddings), Trace(retriever.name, verbose=verbose)
    with entered(Context(session, outer.deadline, trace, on_partial)):
        hits = yield from retriever.answer(query)
        return (yield from _result(retriever, query, hits, session, trace))


def search_apart(retriever: "Retriever", query: Query) -> Plan[SearchResult]:
    """Return the plan for one of several queries; on failure the result is empty and degraded."""
    outer = current_context()
    session, trace = outer.session.apart(), Trace(retriever.name)
    with entered(Context(session, outer.deadline, trace)):
        try:
            hits = yield from retriever.answer(query)
        except Exception as error:  # noqa: BLE001 - the result has it
            note_degraded(retriever.name, error)
            trace.end(error=error)
            hits = []
        return (yield from _result(retriever, query, hits, session, trace))


def _result(
    retriever: "Retriever", query: Query, hits: list[NodeWithScore], session: Session, trace: Trace
) -> Plan[SearchResult]:
    hints: tuple[str, ...] = ()
    if (query.fields or retriever.fields) and not session.weighs_fields and not query.is_blank:
        session.hints.append(_NO_WORDS)
    if session.hints or session.inquiries:
        hints = yield from conclude(found=bool(hits))
    trace.end(result=hits)
    corrected, asked = correction_in(hints) if hints else None, query.query_str
    if corrected is not None and corrected.typed == asked:
        asked = corrected.query
    return SearchResult(
        [asked_for(as_hit(hit, source=retriever.name), asked) for hit in hits],
        tuple(session.degraded),
        trace.snapshot(),
        details_by_path(session.details) if session.details else {},
        query.query_str,
        hints,
    )


T = TypeVar("T")


def answers(
    retriever: "Retriever",
    queries: Sequence[QueryType],
    plan_of: "Callable[[Retriever, Query], Plan[T]]",
    *,
    at_once: int,
) -> Plan[list[T]]:
    """Return the plan for the results of ``plan_of`` for several queries, in order."""
    if isinstance(queries, str | QueryBundle):
        raise ConfigurationError(f"queries must be a list; write [...] around {queries!r}")
    check_count(at_once, "at_once")
    results: list[T] = []
    bundles = [Query.of(query) for query in queries]
    for start in range(0, len(bundles), at_once):
        batch = bundles[start : start + at_once]
        tasks = [Task(retriever.name, plan_of(retriever, query)) for query in batch]
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
