"""`Retriever`: the base of every retriever here, and the contract they share."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.execution.children import HonoursQuery
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.effects import Plan, Task, Together
from llama_retrieval_ext.execution.frame import Frame, Session, current_frame, entered
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.query import Query, Scope, check_top_k
from llama_retrieval_ext.ranking import Hit, SearchResult, as_hit, node_ids
from llama_retrieval_ext.trace import Trace


class Retriever(BaseRetriever, HonoursQuery, ABC):
    """A LlamaIndex retriever that keeps the contract of this package.

    It returns at most ``top_k`` hits, best first, ids unique, scores finite, ties by node id; an
    empty list for an empty corpus, a blank query, or no match. A string, a ``QueryBundle`` and a
    `Query` of the same text get the same answer, sync and async. Nothing that came in is changed.

    A subclass says in `_plan` what it needs, and is then run by threads or on an event loop.

    Args:
        top_k: How many hits to return when the query does not say; at least 1.
        filters: Conditions on metadata that every hit satisfies; a query can only add to them.
        scope: Who is asking; a query can only narrow it.
        name: What the retriever is called in traces, contributions and ``Hit.source``.
        callback_manager: LlamaIndex's, for applications that still use one.

    Raises:
        ConfigurationError: ``top_k`` is below 1.
        InvalidFilterError: The filters cannot mean anything.
    """

    def __init__(
        self,
        *,
        top_k: int,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        if filters is not None:
            parse_filters(filters)
        self.top_k = check_top_k(top_k)
        self.filters = filters
        self.scope = scope
        self.name = name or type(self).__name__

    @abstractmethod
    def _plan(self, query: Query) -> Plan[list[Hit]]:
        """The plan for a query that is not blank and carries filters, scope and ``top_k``."""

    def for_scope(self, scope: Scope) -> Self:
        """A copy that sees only this scope; it shares everything else with the original.

        Raises:
            ScopeError: The retriever is bound to a scope that has nothing in common with this one.
        """
        bound = copy.copy(self)
        bound.scope = scope if self.scope is None else self.scope.narrowed(scope)
        return bound

    def search(
        self,
        query: QueryType,
        *,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        timeout_s: float | None = None,
        context: Mapping[str, object] | None = None,
    ) -> SearchResult:
        """The answer together with what is missing from it and how it came about.

        Args:
            query: Text, ``QueryBundle`` or `Query`.
            filters: Further conditions on metadata, for this call.
            scope: Who is asking, for this call; narrows what the retriever is bound to.
            top_k: How many hits, for this call.
            timeout_s: Seconds for the whole answer.
            context: For the application's own stages.

        Returns:
            The hits that ``retrieve`` gives, the degraded parts, and the trace.
        """
        asked = Query.of(query).but(
            filters=filters, scope=scope, top_k=top_k, timeout_s=timeout_s, context=context
        )
        return self._search(asked, verbose=False)

    async def asearch(
        self,
        query: QueryType,
        *,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        timeout_s: float | None = None,
        context: Mapping[str, object] | None = None,
    ) -> SearchResult:
        """`search` without blocking the event loop."""
        asked = Query.of(query).but(
            filters=filters, scope=scope, top_k=top_k, timeout_s=timeout_s, context=context
        )
        return await self._asearch(asked, verbose=False)

    def explain(self, query: QueryType) -> SearchResult:
        """`search` with everything recorded: each step of the trace also notes its best hits."""
        return self._search(Query.of(query), verbose=True)

    async def aexplain(self, query: QueryType) -> SearchResult:
        """`explain` without blocking the event loop."""
        return await self._asearch(Query.of(query), verbose=True)

    def _search(self, query: Query, *, verbose: bool) -> SearchResult:
        with self._recording(verbose=verbose) as frame:
            return self._result(self.retrieve(query), frame)

    async def _asearch(self, query: Query, *, verbose: bool) -> SearchResult:
        with self._recording(verbose=verbose) as frame:
            return self._result(await self.aretrieve(query), frame)

    @contextmanager
    def _recording(self, *, verbose: bool) -> Generator[Frame]:
        outer = current_frame()
        deadline = None if outer is None else outer.deadline
        with entered(Frame(Session(), deadline, Trace(self.name), verbose)) as frame:
            yield frame

    def _result(self, hits: list[NodeWithScore], frame: Frame) -> SearchResult:
        session, trace = frame.session, frame.trace
        if trace is not None:
            trace.end(count=len(hits))
        return SearchResult(
            [as_hit(hit, source=self.name) for hit in hits],
            tuple(session.degraded),
            trace,
            dict(session.details),
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run(self._answer(query_bundle))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await arun(self._answer(query_bundle))

    def _answer(self, query_bundle: QueryBundle) -> Plan[list[NodeWithScore]]:
        query = self._bound(Query.of(query_bundle))
        if query.is_blank:
            return []
        if query.timeout_s is None:
            hits = yield from self._plan(query)
        else:
            (outcome,) = yield Together([Task(self.name, self._plan(query), query.timeout_s)])
            hits = outcome.result()
        frame = current_frame()
        if frame is not None and frame.verbose and frame.trace is not None:
            frame.trace.notes["top"] = node_ids(hits[:5])
        return list(hits)

    def _bound(self, query: Query) -> Query:
        return query.but(
            filters=self.filters,
            scope=self.scope,
            top_k=query.top_k or self.top_k,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(top_k={self.top_k})"
