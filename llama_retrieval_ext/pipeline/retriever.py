"""`Retriever`: base class and contract of all retrievers of this package."""

import copy
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self, Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.execution.context import (
    call,
    current_context,
    in_answer,
    is_observed,
    note_hint,
    recording,
)
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.hints import listed
from llama_retrieval_ext.execution.plan import Call, Plan, finished
from llama_retrieval_ext.execution.retrieval import HonoursQuery
from llama_retrieval_ext.execution.running import (
    Reporting,
    async_streamed,
    asynchronous,
    blocking,
    reporting,
    streamed,
    within,
)
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.hits import hits_shown_to
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.explanation import Explanation, explanation_of
from llama_retrieval_ext.pipeline.index_nodes import Resolver
from llama_retrieval_ext.pipeline.searching import (
    answers,
    end_retrieval,
    search_apart,
    search_plan,
    without_span,
)
from llama_retrieval_ext.pipeline.stages import Operand
from llama_retrieval_ext.pipeline.tree import Shaped, embed_models_of
from llama_retrieval_ext.pipeline.why_not import FieldWords, TracedRequest
from llama_retrieval_ext.query import Query, SearchOptions, check_top_k
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.scope import KNOWN_NOW, Scope, check_principals, check_scope, isolates
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.pipeline.branches import Branches
    from llama_retrieval_ext.pipeline.pipeline import Pipeline
    from llama_retrieval_ext.pipeline.stages import Refine, RefineFunction


_log = logging.getLogger(__name__)
_RETRIEVE: Final = frozenset({"retrieve", "aretrieve", "_retrieve", "_aretrieve"})


class Curation(Protocol):
    """What the owner of a store does to every query and its hits, after all stages."""

    def plan(self, query: Query, search: Callable[[Query], Plan[list[Hit]]]) -> Plan[list[Hit]]:
        """Return the plan for the hits of a query; `search` returns the plan of the retriever."""
        ...


class Retriever(BaseRetriever, HonoursQuery, Shaped, Operand, ABC):
    """LlamaIndex retriever with the contract of this package.

    It returns at most ``top_k`` hits, best first, ids unique, scores finite, ties by node id; an
    empty list for an empty corpus, a blank query, or no match. A string, a ``QueryBundle`` and a
    `Query` of the same text get the same answer, sync and async. Arguments are not modified.

    A composite requests from its children their own number of hits, or the ``top_k`` of the query
    if that is larger, so that the answer can be that long; its own ``top_k`` only cuts the result.

    ``retrieve`` and ``aretrieve`` are LlamaIndex's methods after a check of the query, because
    LlamaIndex rejects None with pydantic's ``ValidationError``.

    A subclass defines `plan`; the threaded and the asyncio driver both run it.

    Args:
        top_k: Number of hits to return if the query does not set it, at least 1; None for all.
        filters: Conditions on metadata that every hit satisfies; a query can only add to them.
        scope: The scope of every query; a query can only narrow it.
        name: Name in traces, contributions and ``Hit.source``.
        callback_manager: LlamaIndex's callback manager, for applications that still use one.

    Raises:
        ConfigurationError: ``top_k`` is below 1, or an argument is of another type.
        InvalidFilterError: The filters are invalid.
    """

    # Set by the owner of the store, such as a knowledge base that rejects queries without a scope.
    requires_scope: bool = False
    requires_principals: bool = False
    keeps_history: bool = False
    # Fields of keyword searches, with weights, for queries that have none.
    fields: Mapping[str, float] | None = None
    # Set by a knowledge base, for every retriever over it.
    curation: Curation | None = None
    # False where names in a query are linked to a graph, whose words may be in no passage.
    takes_curation: ClassVar[bool] = True
    # Whether a subclass defines one of LlamaIndex's methods beside its plan.
    _overrides_retrieve: ClassVar[bool] = False

    def __init__(
        self,
        *,
        top_k: Count | None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        if filters is not None:
            parse_filters(filters)
        self.top_k = top_k
        self.filters = filters
        self.scope = scope
        self.name = name or type(self).__name__

    def __init_subclass__(cls, **kwargs: object) -> None:
        if "plan" in vars(cls):
            without_span(vars(cls)["plan"])
        cls._overrides_retrieve |= not _RETRIEVE.isdisjoint(vars(cls))
        super().__init_subclass__(**kwargs)

    def __new__(cls, *_: object, **__: object) -> Self:
        """Create the retriever; raise `ConfigurationError` if its class lacks a method."""
        if inspect.isabstract(cls):
            raise ConfigurationError(
                f"{cls.__name__} defines no {', '.join(sorted(cls.__abstractmethods__))}; define "
                "plan(self, query), a generator that returns hits, or derive the class from "
                "LlamaIndex's BaseRetriever and define _retrieve(self, query_bundle)"
            )
        return super().__new__(cls)

    @abstractmethod
    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Return the plan for a query that is not blank and has filters, scope and ``top_k``."""

    @property
    def similarity_top_k(self) -> int | None:
        """LlamaIndex's name of ``top_k``."""
        return self.top_k

    @similarity_top_k.setter
    def similarity_top_k(self, top_k: int) -> None:
        self.top_k = check_top_k(top_k)

    def for_scope(self, scope: Scope) -> Self:
        """Return a copy bound to this scope; all other state is shared with the original.

        Raises:
            ScopeError: The retriever is bound to a scope that does not overlap with this one.
            ConfigurationError: The argument is not a scope; a copy without one is not restricted.
        """
        check_scope(scope)
        bound = copy.copy(self)
        bound.scope = scope if self.scope is None else self.scope.narrowed(scope)
        return bound

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

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:  # noqa: ARG002 - subclasses use it
        """Return a plan for a stored node by its id, in any scope; None if it does not exist.

        The default result is None; retrievers over a store override it.
        """
        return finished(None)

    def field_words(self, query: Query, node: BaseNode) -> FieldWords:  # noqa: ARG002 - as above
        """Return the words of a question in the searched fields of a node; by default none."""
        return FieldWords()

    @without_span
    @checked_call
    def retrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the hits, as LlamaIndex's `retrieve`, after a check of the query.

        Outside of another answer the list is a `ResultList`: it has ``degraded`` and ``hints``.

        Raises:
            ConfigurationError: The query is neither text nor a ``QueryBundle``.
        """
        query = Query.of(str_or_query_bundle)
        if is_observed(self):
            return super().retrieve(str_or_query_bundle)
        return self._retrieve(query)  # the same without spans, events and callbacks

    @without_span
    @checked_call
    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[NodeWithScore]:
        """Return the same as `retrieve` without blocking the event loop."""
        query = Query.of(str_or_query_bundle)
        if is_observed(self):
            return await super().aretrieve(str_or_query_bundle)
        return await self._aretrieve(query)

    def answer(self, query: Query) -> Plan[list[NodeWithScore]]:
        """Return the plan for the ranking of a query, as part of the caller's plan.

        If a handler of LlamaIndex gets spans or events, it is a call of `retrieve`, which has them.
        """
        if self._overrides_retrieve or is_observed(self):
            return call(Call(lambda: self.retrieve(query), lambda: self.aretrieve(query)))
        return self._ranking(query)

    @without_span
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            return run(self._returned(query_bundle))
        except BaseException as error:
            end_retrieval(query_bundle, error)
            raise

    @without_span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            return await arun(self._returned(query_bundle))
        except BaseException as error:
            end_retrieval(query_bundle, error)
            raise

    def _returned(self, query_bundle: QueryBundle) -> Plan[list[NodeWithScore]]:
        plan = self._ranking(Query.of(query_bundle))
        return plan if in_answer() else listed(plan)

    def _reported(
        self, query: Query, report: Callable[[SearchResult], object]
    ) -> Plan[SearchResult]:
        top_k, scope = query.top_k or self.top_k, self._bound(query).scope

        def on_partial(hits: list[Hit]) -> None:
            shown = hits_shown_to(scope, hits[:top_k])
            report(SearchResult(shown, query=query.query_str))

        return search_plan(self, query, on_partial=on_partial)

    def _ranking(self, query: Query) -> Plan[list[NodeWithScore]]:
        query = self._bound(query)
        trace = recording()
        if trace is not None:
            trace.requests.append(TracedRequest(self, query))
        if query.is_blank:
            note_hint("the query is blank")
            return []
        plan = self._curated(query)
        if query.timeout_s is not None:
            reported = reporting(plan, current_context().on_partial)
            plan = within(self.name, reported, query.timeout_s)
        hits = yield from plan
        has_references = any(isinstance(hit.node, IndexNode) for hit in hits)
        if has_references and (self.object_map or not self.children):  # children resolve theirs
            resolver = Resolver(lambda node: node.obj or self.object_map.get(node.index_id))
            hits = (yield from resolver.resolve(hits, query))[: query.top_k]
        if self._verbose:
            _log.info("%s found %s for %r", self.name, counted(len(hits), "hit"), query.query_str)
        if query.scope is None or query.scope.principals is None:
            return list(hits)
        return list(hits_shown_to(query.scope, hits))

    def _curated(self, query: Query) -> Plan[list[Hit]]:
        """Return the plan, curated by the owner of the store of all retrievers in it."""
        if query.is_curated or not self.takes_curation:
            return self.plan(query)
        if self.curation is not None:
            return self.curation.plan(query, self.plan)
        below = [*self._curated_below().values()]
        if len(below) != 1 or below[0].curation is None or not below[0].takes_curation:
            return self.plan(query)  # each leg is curated by itself
        bound = below[0]._bound(query)  # noqa: SLF001 - of this class
        limits = [limit for limit in (query.top_k, self._most) if limit is not None]
        top_k = min(limits, default=None)
        narrowed = replace(query, scope=bound.scope, filters=bound.filters, top_k=top_k)
        return below[0].curation.plan(narrowed, self.plan)

    @property
    def _most(self) -> int | None:
        """Maximum number of hits that its last stages return; None for no limit."""
        return None

    def _curated_below(self) -> "dict[Hashable, Retriever]":
        """Return one of the retrievers below for each curation, scope and filters."""
        found: dict[Hashable, Retriever] = {}
        for child in self.children:
            if not isinstance(child, Retriever):
                continue
            is_bound = child.scope is not None or child.filters is not None
            if child.curation is None and not is_bound:
                found |= child._curated_below()  # noqa: SLF001 - of this class
            else:
                what = (id(child.curation), child.takes_curation)
                found[(*what, child.scope, repr(child.filters))] = child
        return found

    def _handle_recursive_retrieval(
        self, query_bundle: QueryBundle, nodes: list[NodeWithScore]
    ) -> list[NodeWithScore]:
        """Return the nodes; the plan has resolved index nodes, with scores and cycle checks."""
        del query_bundle
        return nodes

    async def _ahandle_recursive_retrieval(
        self, query_bundle: QueryBundle, nodes: list[NodeWithScore]
    ) -> list[NodeWithScore]:
        """Return the nodes, as above."""
        del query_bundle
        return nodes

    def _bound(self, query: Query) -> Query:
        top_k = self.top_k and max(self.top_k, query.at_least or 0)
        fields = self.fields if query.fields is None else None
        bound = query.but(
            filters=self.filters, scope=self.scope, top_k=query.top_k or top_k, fields=fields
        )
        if self.keeps_history and (bound.scope is None or bound.scope.known_at is None):
            bound = bound.but(filters=KNOWN_NOW)
        bound.at_least = query.top_k or query.at_least  # the caller's number
        if self.requires_scope and not isolates(bound.scope):
            raise ScopeRequiredError(
                f"{self.name} searches a knowledge base that requires a scope; pass "
                "scope=Scope(...) with the query, or bind the retriever with for_scope"
            )
        if self.requires_principals:
            check_principals(bound.scope, self.name)
        return bound

    def _for_children(self, query: Query) -> Query:
        """Return the query for children, without its embedding if they use several models."""
        child = query.for_child()
        if query.embedding is not None and len(embed_models_of(self)) > 1:
            child.embedding = None
        return child

    if TYPE_CHECKING:

        def __rshift__(
            self, other: "Refine | BaseNodePostprocessor | RefineFunction"
        ) -> "Pipeline": ...
        def __or__(self, other: "BaseRetriever | Leg | Branches") -> "Branches": ...
        def __ror__(self, other: "BaseRetriever | Leg") -> "Branches": ...
