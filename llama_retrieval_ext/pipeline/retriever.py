"""`Retriever`: base class and contract of all retrievers of this package."""

import copy
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.execution.context import (
    call,
    current_context,
    in_answer,
    is_observed,
    note_hint,
    recording,
)
from llama_retrieval_ext.execution.drivers import arun, run, within
from llama_retrieval_ext.execution.hints import conclude
from llama_retrieval_ext.execution.plan import Call, Plan, finished
from llama_retrieval_ext.execution.running import reporting
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.hits import hits_shown_to
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.index_nodes import Resolver
from llama_retrieval_ext.pipeline.searching import Searches, end_retrieval, without_span
from llama_retrieval_ext.pipeline.stages import Operand
from llama_retrieval_ext.pipeline.tree import Shaped, embed_models_of
from llama_retrieval_ext.pipeline.why_not import FieldWords, TracedRequest
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ResultList
from llama_retrieval_ext.scope import KNOWN_NOW, Scope, check_principals, check_scope, isolates
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from llama_retrieval_ext.execution.legs import Leg
    from llama_retrieval_ext.pipeline.branches import Branches
    from llama_retrieval_ext.pipeline.pipeline import Pipeline
    from llama_retrieval_ext.pipeline.stages import Refine, RefineFunction


T = TypeVar("T")

_log = logging.getLogger(__name__)
_RETRIEVE: Final = frozenset({"retrieve", "aretrieve", "_retrieve", "_aretrieve"})


class Curation(Protocol):
    """What the owner of a store does to every query and its hits, after all stages."""

    def plan(self, query: Query, search: Callable[[Query], Plan[list[Hit]]]) -> Plan[list[Hit]]:
        """Return the plan for the hits of a query; `search` returns the plan of the retriever."""
        ...

    def recorded(self, query: Query, search: Callable[[Query], Plan[list[Hit]]]) -> Plan[list[Hit]]:
        """Return the plan of a search that nothing is done to but that its log has it."""
        ...


class Retriever(BaseRetriever, Searches, Shaped, Operand, ABC):
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
    def children(self) -> Sequence[BaseRetriever]:
        """The inner retrievers, in order."""
        return ()

    @property
    def similarity_top_k(self) -> int | None:
        """LlamaIndex's name of ``top_k``."""
        return self.top_k

    @similarity_top_k.setter
    def similarity_top_k(self, top_k: int) -> None:
        self.top_k = check_count(top_k, "top_k")

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
            plan = self._ranking(Query.of(query_bundle))
            return run(plan if in_answer() else listed(plan))
        except BaseException as error:
            end_retrieval(query_bundle, error)
            raise

    @without_span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            plan = self._ranking(Query.of(query_bundle))
            return await arun(plan if in_answer() else listed(plan))
        except BaseException as error:
            end_retrieval(query_bundle, error)
            raise

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
        if query.is_curated:
            return self.plan(query)
        if self.curation is not None and self.takes_curation:
            return self.curation.plan(query, self.plan)
        below = [self] if self.curation is not None else [*self._curated_below().values()]
        curation = below[0].curation if below else None
        if curation is None or len({(id(child.curation), child.scope) for child in below}) > 1:
            return self.plan(query)  # each leg is curated and recorded by itself
        bound = below[0]._bound(query)  # noqa: SLF001 - of this class
        if len(below) > 1 or not (self.takes_curation and below[0].takes_curation):
            # Each leg is curated by itself, and the query is recorded once.
            return curation.recorded(query.unchecked(scope=bound.scope), self.plan)
        limits = [limit for limit in (query.top_k, self._most) if limit is not None]
        top_k = min(limits, default=None)
        narrowed = replace(query, scope=bound.scope, filters=bound.filters, top_k=top_k)
        return curation.plan(narrowed, self.plan)

    @property
    def _most(self) -> int | None:
        """Maximum number of hits that its last stages return; None for no limit."""
        return None

    def _curated_below(self) -> "dict[Hashable, Retriever]":
        """Return one of the retrievers below for each curation, scope and filters."""
        below: dict[Hashable, Retriever] = {}
        for child in self.children:
            if not isinstance(child, Retriever):
                continue
            is_bound = child.scope is not None or child.filters is not None
            if child.curation is None and not is_bound:
                below |= child._curated_below()  # noqa: SLF001 - of this class
            else:
                what = (id(child.curation), child.takes_curation)
                below[(*what, child.scope, repr(child.filters))] = child
        return below

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

    @without_span
    def _bound(self, query: Query) -> Query:
        top_k = query.top_k
        if top_k is None and self.top_k is not None:
            top_k = max(check_count(self.top_k, "top_k"), query.at_least or 0)
        # Of its parts it needs as many hits as its caller.
        at_least = query.top_k or query.at_least
        bound = query.unchecked(top_k=top_k, at_least=at_least, cutoff=None)
        fields = self.fields if query.fields is None else None
        if self.filters is not None or self.scope is not None or fields is not None:
            bound = bound.but(filters=self.filters, scope=self.scope, fields=fields)
        if self.keeps_history and (bound.scope is None or bound.scope.known_at is None):
            bound = bound.but(filters=KNOWN_NOW)
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


def listed(plan: Plan[Iterable[T]]) -> Plan[ResultList[T]]:
    """Return the plan's results as a list, with what is missing of them."""
    session = current_context().session
    n_degraded, n_hints = len(session.degraded), len(session.hints)
    items = ResultList((yield from plan))
    items.degraded = tuple(session.degraded[n_degraded:])
    if session.inquiries or len(session.hints) > n_hints:
        items.hints = yield from conclude(has_hits=bool(items), since=n_hints)
    return items
