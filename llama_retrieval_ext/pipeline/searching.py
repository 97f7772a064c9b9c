"""`Searches`: searches with all of the result, explained, in parts, and of several queries."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, Unpack

from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import (
    Context,
    OnPartial,
    Session,
    current_context,
    entered,
    note_degraded,
)
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.hints import conclude
from llama_retrieval_ext.execution.plan import Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import HonoursQuery
from llama_retrieval_ext.execution.running import Reporting, async_streamed, streamed
from llama_retrieval_ext.hits import hits_shown_to
from llama_retrieval_ext.pipeline.explanation import Explanation, explanation_of
from llama_retrieval_ext.query import Query, SearchOptions
from llama_retrieval_ext.results import Hit, SearchResult, answered, correction_in
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.trace import Trace, details_by_path

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_NO_WORDS: Final = (
    "fields has no effect: it weighs keyword search, and nothing here searched for words; search "
    "by 'keyword' or 'hybrid'"
)


class Searches(HonoursQuery):
    """The searches of a retriever beside LlamaIndex's: with all of the result, and of several."""

    name: str
    top_k: int | None
    # Fields of keyword searches, with weights, for queries that have none.
    fields: Mapping[str, float] | None = None

    @abstractmethod
    def _bound(self, query: Query) -> Query:
        """Return a query with the retriever's own filters, scope and number of hits."""

    @blocking
    def search(  # noqa: PLR0913 - the options of a query
        self,
        query: QueryType,
        *,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        timeout_s: float | None = None,
        context: Mapping[str, object] | None = None,
        fields: Mapping[str, float] | None = None,
        correct: bool | None = None,
        interpret: bool | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> Plan[SearchResult]:
        """Return the hits together with degraded parts, trace and details.

        Args:
            query: Text, ``QueryBundle`` or `Query`.
            filters: Further conditions on metadata, for this call.
            scope: The scope of this call; it narrows the retriever's own.
            top_k: Number of hits, for this call.
            timeout_s: Seconds for the whole answer.
            context: Values for the application's own stages.
            fields: The fields of keyword searches, with weights, for this call.
            correct: Whether typing errors are corrected, as for `Query`; None for True.
            interpret: Whether words that state filters become filters, as for `Query`.
            as_of: The time for which the query asks, as for `Query`.
            known_at: The time at which it was known, as for `Query`.

        Returns:
            The hits of ``retrieve``, the degraded parts, and the trace.
        """
        bound = Query.of(query).but(
            filters=filters,
            scope=scope,
            top_k=top_k,
            timeout_s=timeout_s,
            context=context,
            fields=fields,
            correct=correct,
            interpret=interpret,
            as_of=as_of,
            known_at=known_at,
        )
        return search_plan(self, bound)

    asearch = asynchronous(search)

    @blocking
    def explain(self, query: QueryType, **options: Unpack[SearchOptions]) -> Plan[Explanation]:
        """Return the result of `search` with the ranking of each stage and an account of each hit.

        It has the arguments of `search`.

        Returns:
            The result of `search`, with an account of each hit, and ``why_not`` for any other node.
        """
        bound = Query.of(query).but(**options)
        return explanation_of((yield from search_plan(self, bound, verbose=True)))

    aexplain = asynchronous(explain)

    @streamed
    def stream(self, query: QueryType) -> Reporting[SearchResult]:
        """Yield partial results: the fused ranking after each leg, then the complete answer.

        Partial rankings come from the outermost fusion, before refinement, or in sequence from
        retrievers that run one after another. Parts inside a leg and retrievers of other packages
        report none.
        """
        bound = Query.of(query)
        return lambda report: self._reported(bound, report)

    astream = async_streamed(stream)

    @blocking
    def retrieve_many(
        self, queries: Sequence[QueryType], *, at_once: int = 8
    ) -> Plan[list[list[NodeWithScore]]]:
        """Return the answers to several queries, in order; an error of a query is raised.

        `search_many` also returns answers if some queries fail, with the missing parts of each.

        Each distinct text is embedded once.

        Args:
            queries: Texts, ``QueryBundle``s or `Query`s.
            at_once: Number of queries in parallel, at least 1.

        Raises:
            ConfigurationError: ``at_once`` is below 1, or ``queries`` is a query, not a list.
            Exception: The error of the first failed query, after those in parallel are done; its
                notes contain the query. Queries after these do not run.
        """
        return answers(self, queries, lambda child, query: child.answer(query), at_once=at_once)

    aretrieve_many = asynchronous(retrieve_many)

    @blocking
    def search_many(
        self, queries: Sequence[QueryType], *, at_once: int = 8
    ) -> Plan[list[SearchResult]]:
        """Return the results of several queries, in order, executed as in `retrieve_many`.

        A failed query does not affect the others: its result has no hits, ``degraded`` has the
        reason under the name of the retriever, and the trace has the error. Errors of queries are
        never raised, including those of a missing scope or an unsupported filter.

        Args:
            queries: Texts, ``QueryBundle``s or `Query`s.
            at_once: Number of queries in parallel, at least 1.

        Raises:
            ConfigurationError: ``at_once`` is below 1, ``queries`` is a query, not a list, or an
                item is not a query.
        """
        return answers(self, queries, search_apart, at_once=at_once)

    asearch_many = asynchronous(search_many)

    def _reported(
        self, query: Query, report: Callable[[SearchResult], object]
    ) -> Plan[SearchResult]:
        top_k, scope = query.top_k or self.top_k, self._bound(query).scope

        def on_partial(hits: list[Hit]) -> None:
            shown = hits_shown_to(scope, hits[:top_k])
            report(SearchResult(shown, query=query.query_str))

        return search_plan(self, query, on_partial=on_partial)


def search_plan(
    retriever: Searches, query: Query, *, verbose: bool = False, on_partial: OnPartial | None = None
) -> Plan[SearchResult]:
    """Return the plan for the result of a query."""
    outer = current_context()
    session, trace = Session(outer.session.embeddings), Trace(retriever.name, verbose=verbose)
    with entered(Context(session, outer.deadline, trace, on_partial)):
        hits = yield from retriever.answer(query)
        return (yield from _result(retriever, query, hits, session, trace))


def search_apart(retriever: Searches, query: Query) -> Plan[SearchResult]:
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
    retriever: Searches, query: Query, hits: list[NodeWithScore], session: Session, trace: Trace
) -> Plan[SearchResult]:
    hints: tuple[str, ...] = ()
    if (query.fields or retriever.fields) and not session.weighs_fields and not query.is_blank:
        session.hints.append(_NO_WORDS)
    if session.hints or session.inquiries:
        hints = yield from conclude(has_hits=bool(hits))
    trace.end(result=hits)
    corrected, asked = correction_in(hints) if hints else None, query.query_str
    if corrected is not None and corrected.typed == asked:
        asked = corrected.query
    return SearchResult(
        [answered(hit, retriever.name, asked) for hit in hits],
        tuple(session.degraded),
        trace.snapshot(),
        details_by_path(session.details) if session.details else {},
        query.query_str,
        hints,
    )


def answers(
    retriever: Searches,
    queries: Sequence[QueryType],
    plan_of: Callable[[Searches, Query], Plan[T]],
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
