"""`Retriever`: the base of every retriever here, and the contract they share."""

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.errors import ScopeRequiredError
from llama_retrieval_ext.execution.children import HonoursQuery
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.effects import Plan, Task, Together
from llama_retrieval_ext.execution.frame import Frame, OnPartial, Session, current_frame, entered
from llama_retrieval_ext.execution.partials import heard
from llama_retrieval_ext.execution.streaming import astream, stream
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.query import Query, Scope, check_scope, check_top_k
from llama_retrieval_ext.ranking import Hit, SearchResult, as_hit, node_ids
from llama_retrieval_ext.stages.algebra.many import answers
from llama_retrieval_ext.stages.algebra.operand import Operand
from llama_retrieval_ext.stages.algebra.shape import Shaped, children_of
from llama_retrieval_ext.stages.algebra.without_span import without_span
from llama_retrieval_ext.stages.references.index_nodes import Resolver
from llama_retrieval_ext.stages.references.index_targets import Target
from llama_retrieval_ext.trace import Trace

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.stages.algebra.branches import Branches
    from llama_retrieval_ext.stages.algebra.pipeline import Pipeline
    from llama_retrieval_ext.stages.algebra.refine import Refine

_log = logging.getLogger(__name__)


class Retriever(BaseRetriever, HonoursQuery, Shaped, Operand, ABC):
    """A LlamaIndex retriever that keeps the contract of this package.

    It returns at most ``top_k`` hits, best first, ids unique, scores finite, ties by node id; an
    empty list for an empty corpus, a blank query, or no match. A string, a ``QueryBundle`` and a
    `Query` of the same text get the same answer, sync and async. Nothing that came in is changed.

    A composite asks its children for their own number of hits, or for the ``top_k`` of the query
    where that is more, so that the answer can be as long; its own ``top_k`` only cuts.

    A subclass says in `_plan` what it needs, and is then run by threads or on an event loop.

    Args:
        top_k: How many hits to return when the query does not say, at least 1; None for all.
        filters: Conditions on metadata that every hit satisfies; a query can only add to them.
        scope: Who is asking; a query can only narrow it.
        name: What the retriever is called in traces, contributions and ``Hit.source``.
        callback_manager: LlamaIndex's, for applications that still use one.

    Raises:
        ConfigurationError: ``top_k`` is below 1, or an argument is of another type.
        InvalidFilterError: The filters cannot mean anything.
    """

    # Set by who owns what is searched, such as a knowledge base that refuses queries without one.
    requires_scope: bool = False

    def __init__(
        self,
        *,
        top_k: int | None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        if filters is not None:
            parse_filters(filters)
        self.top_k = None if top_k is None else check_top_k(top_k)
        self.filters = filters
        self.scope = None if scope is None else check_scope(scope)
        self.name = of_type(name or type(self).__name__, str, "name")

    def __init_subclass__(cls, **kwargs: object) -> None:
        if "_plan" in vars(cls):
            without_span(vars(cls)["_plan"])
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def _plan(self, query: Query) -> Plan[list[Hit]]:
        """The plan for a query that is not blank and carries filters, scope and ``top_k``."""

    def for_scope(self, scope: Scope) -> Self:
        """A copy that sees only this scope; it shares everything else with the original.

        Raises:
            ScopeError: The retriever is bound to a scope that has nothing in common with this one.
            ConfigurationError: It is none; a copy without a scope would see everything.
        """
        check_scope(scope)
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
        return self._search(asked)

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
        return await self._asearch(asked)

    def explain(self, query: QueryType) -> SearchResult:
        """`search` with everything recorded: each step of the trace also notes its best hits."""
        return self._search(Query.of(query), verbose=True)

    async def aexplain(self, query: QueryType) -> SearchResult:
        """`explain` without blocking the event loop."""
        return await self._asearch(Query.of(query), verbose=True)

    def stream(self, query: QueryType) -> Iterator[SearchResult]:
        """Answers that get better: the fused ranking after each leg, and last the whole answer.

        The rankings on the way come from the outermost fusion, before anything refines them, or one
        after another from those that are asked in turn. What runs inside a leg or a foreign
        retriever is not told.
        """
        asked = Query.of(query)
        top_k = asked.top_k or self.top_k
        return stream(lambda report: self._search(asked, on_partial=_telling(report, top_k)))

    def astream(self, query: QueryType) -> AsyncIterator[SearchResult]:
        """`stream` without blocking the event loop."""
        asked = Query.of(query)
        top_k = asked.top_k or self.top_k
        return astream(lambda report: self._asearch(asked, on_partial=_telling(report, top_k)))

    def retrieve_many(
        self, queries: Sequence[QueryType], *, at_once: int = 8
    ) -> list[list[NodeWithScore]]:
        """The answers to several queries, in their order.

        Each text is embedded once; a model with ``get_query_embedding_batch``, which LlamaIndex's
        own have not, embeds those of up to ``at_once`` queries in one call. An engine that takes
        several searches in one request gets them so. Queries with a time limit go out on their own.

        Args:
            queries: Texts, ``QueryBundle``s or `Query`s.
            at_once: How many are worked on side by side, at least 1.

        Raises:
            ConfigurationError: ``at_once`` is below 1, or there is one query and no list.
        """
        return run(answers(self, queries, at_once=at_once))

    async def aretrieve_many(
        self, queries: Sequence[QueryType], *, at_once: int = 8
    ) -> list[list[NodeWithScore]]:
        """`retrieve_many` without blocking the event loop."""
        return await arun(answers(self, queries, at_once=at_once))

    def ahead(self, queries: Sequence[Query]) -> Plan[None]:
        """A plan that asks in a batch for what each of several queries is sure to need.

        It leaves what it finds where the searches of the queries look for it. Subclasses know what
        is sure to be needed; by default nothing is.

        Args:
            queries: As they come to this retriever.
        """
        del queries
        yield from ()

    def _search(
        self, query: Query, *, verbose: bool = False, on_partial: OnPartial | None = None
    ) -> SearchResult:
        with entered(self._frame(verbose=verbose, on_partial=on_partial)) as frame:
            return self._result(self.retrieve(query), frame)

    async def _asearch(
        self, query: Query, *, verbose: bool = False, on_partial: OnPartial | None = None
    ) -> SearchResult:
        with entered(self._frame(verbose=verbose, on_partial=on_partial)) as frame:
            return self._result(await self.aretrieve(query), frame)

    def _frame(self, *, verbose: bool, on_partial: OnPartial | None) -> Frame:
        outer = current_frame()
        deadline = None if outer is None else outer.deadline
        return Frame(Session(), deadline, Trace(self.name), verbose, on_partial)

    def _result(self, hits: list[NodeWithScore], frame: Frame) -> SearchResult:
        session, trace = frame.session, frame.trace
        if trace is not None:
            trace.end(result=hits)
        return SearchResult(
            [as_hit(hit, source=self.name) for hit in hits],
            tuple(session.degraded),
            None if trace is None else trace.snapshot(),
            dict(session.details),
        )

    @without_span
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run(self._answer(query_bundle))

    @without_span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await arun(self._answer(query_bundle))

    def _answer(self, query_bundle: QueryBundle) -> Plan[list[NodeWithScore]]:
        query = self._bound(Query.of(query_bundle))
        if self.requires_scope and query.scope is None:
            raise ScopeRequiredError(
                f"{self.name} searches a knowledge base that requires a scope; pass "
                "scope=Scope(...) with the query, or bind the retriever with for_scope (on the "
                "command line: --tenant or --kb-id)"
            )
        if query.is_blank:
            return []
        if query.timeout_s is None:
            hits = yield from self._plan(query)
        else:
            frame = current_frame()
            plan = heard(self._plan(query), None if frame is None else frame.on_partial)
            (outcome,) = yield Together([Task(self.name, plan, query.timeout_s)])
            hits = outcome.result()
        if self.object_map or not self.children:  # children have followed theirs
            hits = yield from Resolver(self._object_of).resolve(hits, query)
            hits = hits[: query.top_k]
        frame = current_frame()
        if frame is not None and frame.verbose and frame.trace is not None:
            frame.trace.notes["top"] = node_ids(hits[:5])
        if self._verbose:
            _log.info("%s found %d hits for %r", self.name, len(hits), query.query_str)
        return list(hits)

    def _object_of(self, node: IndexNode) -> Target:
        found: Target = node.obj or self.object_map.get(node.index_id)
        return found

    def _handle_recursive_retrieval(
        self, query_bundle: QueryBundle, nodes: list[NodeWithScore]
    ) -> list[NodeWithScore]:
        """The same: index nodes are followed in the plan, with scores kept and circles broken."""
        del query_bundle
        return nodes

    async def _ahandle_recursive_retrieval(
        self, query_bundle: QueryBundle, nodes: list[NodeWithScore]
    ) -> list[NodeWithScore]:
        """The same, as above."""
        del query_bundle
        return nodes

    def _bound(self, query: Query) -> Query:
        own = self.top_k and max(self.top_k, query.at_least or 0)
        bound = query.but(filters=self.filters, scope=self.scope, top_k=query.top_k or own)
        bound.at_least = query.top_k or query.at_least  # what was asked for, not this one's default
        return bound

    def _answerable(self, queries: Sequence[Query]) -> list[Query]:
        """Those of the queries that will be searched for, bound, and that may wait for a batch."""
        bound = [self._bound(query) for query in queries]
        return [
            query
            for query in bound
            if query.timeout_s is None
            and not query.is_blank
            and not (self.requires_scope and query.scope is None)
        ]

    def _for_children(self, query: Query) -> Query:
        """The query as it goes to children: for their own number of hits, or for more if asked.

        An embedding that the caller brought stays only where a single embedding model is in use: it
        must not reach a leg with another.
        """
        child = query.for_child()
        if query.embedding is not None and len(_embed_models(self)) > 1:
            child.embedding = None
        return child

    def __rshift__(self, other: "Refine | BaseNodePostprocessor") -> "Pipeline":
        from llama_retrieval_ext.stages.algebra.composing import then  # noqa: PLC0415 - it knows all kinds

        return then(self, other)  # type: ignore[return-value]  # by the table there

    def __or__(self, other: "BaseRetriever | Leg | Branches") -> "Branches":
        from llama_retrieval_ext.stages.algebra.composing import beside  # noqa: PLC0415 - knows all kinds

        return beside(self, other)

    def __ror__(self, other: "BaseRetriever | Leg") -> "Branches":
        from llama_retrieval_ext.stages.algebra.composing import beside  # noqa: PLC0415 - knows all kinds

        return beside(other, self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(top_k={self.top_k})"


def _telling(report: Callable[[SearchResult], None], top_k: int | None) -> OnPartial:
    return lambda hits: report(SearchResult(hits[:top_k]))


def _embed_models(retriever: object) -> set[int]:
    # LlamaIndex's vector retrievers keep theirs in a private attribute.
    own = getattr(retriever, "embed_model", None) or getattr(retriever, "_embed_model", None)
    below = [_embed_models(child) for child in children_of(retriever)]
    return set().union(*below, set() if own is None else {id(own)})
