"""Runs a retriever and makes the result of its answer: hits, missing parts, trace and details."""

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryType

from llama_retrieval_ext.execution.degraded import note_degraded
from llama_retrieval_ext.execution.frame import Frame, OnPartial, Session, current_frame, entered
from llama_retrieval_ext.ranking import SearchResult, as_hit
from llama_retrieval_ext.stages.algebra.shape import name_of
from llama_retrieval_ext.trace import Trace, details_by_path


def searched(
    retriever: BaseRetriever,
    query: QueryType,
    *,
    verbose: bool = False,
    on_partial: OnPartial | None = None,
) -> SearchResult:
    """The result of a query.

    Args:
        retriever: The retriever.
        query: Text, ``QueryBundle`` or `Query`.
        verbose: Whether each step of the trace notes its best hits.
        on_partial: Gets the rankings on the way.
    """
    with entered(_frame(retriever, Session(), verbose, on_partial)) as frame:
        return _result(retriever, retriever.retrieve(query), frame)


async def asearched(
    retriever: BaseRetriever,
    query: QueryType,
    *,
    verbose: bool = False,
    on_partial: OnPartial | None = None,
) -> SearchResult:
    """`searched` without blocking the event loop."""
    with entered(_frame(retriever, Session(), verbose, on_partial)) as frame:
        return _result(retriever, await retriever.aretrieve(query), frame)


def searched_apart(retriever: BaseRetriever, query: QueryType, session: Session) -> SearchResult:
    """The result of one of several queries; a query that fails has a degraded one without hits.

    Args:
        retriever: The retriever.
        query: Text, ``QueryBundle`` or `Query`.
        session: Shares with the other queries what may be shared.
    """
    with entered(_frame(retriever, session)) as frame:
        try:
            return _result(retriever, retriever.retrieve(query), frame)
        except Exception as error:  # noqa: BLE001 - the result has it
            return _failed(retriever, error, frame)


async def asearched_apart(
    retriever: BaseRetriever, query: QueryType, session: Session
) -> SearchResult:
    """`searched_apart` without blocking the event loop."""
    with entered(_frame(retriever, session)) as frame:
        try:
            return _result(retriever, await retriever.aretrieve(query), frame)
        except Exception as error:  # noqa: BLE001 - the result has it
            return _failed(retriever, error, frame)


def _frame(
    retriever: BaseRetriever,
    session: Session,
    verbose: bool = False,  # noqa: FBT001, FBT002 - private
    on_partial: OnPartial | None = None,
) -> Frame:
    outer = current_frame()
    deadline = None if outer is None else outer.deadline
    return Frame(session, deadline, Trace(name_of(retriever), verbose=verbose), on_partial)


def _failed(retriever: BaseRetriever, error: Exception, frame: Frame) -> SearchResult:
    note_degraded(name_of(retriever), error)
    if frame.trace is not None:
        frame.trace.end(error=error)
    return _result(retriever, [], frame)


def _result(retriever: BaseRetriever, hits: list[NodeWithScore], frame: Frame) -> SearchResult:
    session, trace = frame.session, frame.trace
    if trace is not None:
        trace.end(result=hits)
    return SearchResult(
        [as_hit(hit, source=name_of(retriever)) for hit in hits],
        tuple(session.degraded),
        None if trace is None else trace.snapshot(),
        details_by_path(session.details),
    )
