"""Base class of retrievers over one store, with its backend and embedding model."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import call, note_degraded, recording, step
from llama_retrieval_ext.execution.embedding import embed, prefetch_embeddings
from llama_retrieval_ext.execution.plan import Plan, Task, Together
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope, check_top_k, described_binding
from llama_retrieval_ext.results import Hit, Origin
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineQuery, Search
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.generic import nodes_by_id
from llama_retrieval_ext.stores.open import Storage, source_of
from llama_retrieval_ext.stores.search import checked_hits, prefetch_searches, search

# Returns the plan for a number of hits.
Deep: TypeAlias = Callable[[int], Plan[list[Hit]]]
# Neighbouring hits of one document often come in pairs, seldom in larger groups.
_FIRST: Final = 2
_GROWTH: Final = 4


def first_depth(top_k: int, *, most: int | None) -> int:
    """Return the number of hits to request first, before collapsing."""
    return _within(most, _FIRST * top_k, top_k)


def for_more(request: EngineQuery, top_k: int) -> EngineQuery:
    """Return the same search with another number of hits."""
    return replace(request, search=replace(request.search, top_k=top_k))


def collapsed(
    hits: Deep, collapse: Collapse, *, top_k: int, most: int | None, source: str
) -> Plan[list[Hit]]:
    """Return the plan for the first hits of a collapsed ranking."""
    depth = first_depth(top_k, most=most)
    while True:
        ranking = yield from hits(depth)
        kept = collapse.of(ranking)
        if len(kept) >= top_k or len(ranking) < depth:
            return kept[:top_k]
        if most is not None and depth >= most:
            note_degraded(
                source,
                f"{collapse!r}: there are only {len(kept)} hits instead of {top_k} from the first "
                f"{depth}, and the engine returns no more at once",
            )
            return kept
        depth = _within(most, _GROWTH * depth, top_k)


def _within(most: int | None, depth: int, top_k: int) -> int:
    """Return the depth limited to that of the engine, but not below ``top_k``."""
    return depth if most is None else min(depth, max(most, top_k))


_MODELS: Final = "pass a LlamaIndex embedding model, as resolve_embed_model('local') gives one"


class StoreRetriever(Retriever):
    """Base class of retrievers over one store.

    Attributes:
        backend: Search backend of the store.
        embed_model: Embedding model for query text; None if queries carry their embedding.
        collapse: Limit of hits per document; None for no limit.
    """

    collapse: Collapse | None = None

    def __init__(
        self,
        store: Storage,
        embed_model: BaseEmbedding | None,
        *,
        top_k: int,
        filters: MetadataFilters | None,
        scope: Scope | None,
        name: str,
    ) -> None:
        super().__init__(top_k=check_top_k(top_k), filters=filters, scope=scope, name=name)
        if embed_model is not None:
            of_type(embed_model, BaseEmbedding, "embed_model", instead=_MODELS)
        source = source_of(store)
        self.backend = source.backend
        if isinstance(source.backend, EngineBackend):
            self.requires_scope = source.backend.requires_scope
        self.embed_model = source.embed_model if embed_model is None else embed_model
        self.object_map = dict(source.objects)

    def prefetch(self, queries: Sequence[Query]) -> Plan[None]:
        """Run all searches of the queries, as a batch if the engine supports it."""
        answerable = self._answerable(queries)
        if self.embed_model is not None and self._embeds:
            failed = yield from prefetch_embeddings(answerable, self.embed_model)
            answerable = [each for each in answerable if failed.isdisjoint(each.embedding_strs)]
        plans = [self._searches(self._deep(query)) for query in answerable]
        outcomes = yield Together([Task(self.name, plan) for plan in plans])
        searches: list[EngineQuery] = [each for outcome in outcomes for each in outcome.result()]
        yield from prefetch_searches(self.backend, searches)

    def _collapse_by(self, collapse: Collapse | None) -> None:
        self.collapse = None if collapse is None else of_type(collapse, Collapse, "collapse")

    @property
    def _embeds(self) -> bool:
        """Whether queries need an embedding."""
        return True

    @abstractmethod
    def _searches(self, query: Query) -> Plan[list[EngineQuery]]:
        """Return the plan for the requests to the store."""

    def _deep(self, query: Query) -> Query:
        """Return the query for the number of hits to request first."""
        if self.collapse is None:
            return query
        most = self.backend.features.most_hits
        return query.but(top_k=first_depth(query.top_k or 1, most=most))

    def _answer_to(self, request: EngineQuery, query: Query) -> Plan[list[Hit]]:
        """Return the plan for the hits of one search, collapsed if that is set."""
        if self.collapse is None:
            return (yield from self._plainly(request, query))
        return (
            yield from self._collapsed(
                lambda depth: self._plainly(for_more(request, depth), query), query, self.collapse
            )
        )

    def _plainly(self, request: EngineQuery, query: Query) -> Plan[list[Hit]]:
        return (yield from step("search", self._checked(search(self.backend, request), query)))

    def _checked(
        self, candidates: Plan[list[Candidate]], query: Query, *pushed_down: str
    ) -> Plan[list[Hit]]:
        """Return the hits of an engine search that satisfy the condition of the query."""
        answer = yield from candidates
        self._note_pushdown(query, *pushed_down)
        return self._gated(answer, query)

    def _note_pushdown(self, query: Query, *what: str) -> None:
        trace = recording()
        if trace is not None:
            trace.notes["engine"] = self.backend.engine
            if self._embeds and isinstance(self.backend, EngineBackend):
                used = self.backend.index_used(exact=query.exact)
                trace.notes |= {} if used is None else {"index": used}
            trace.notes["pushed_down"] = [*what, *described_binding(query)]

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """Return the node from the store, ignoring scope."""
        nodes = yield from call(nodes_by_id(self.backend, [node_id]))
        return nodes.get(node_id)

    def _collapsed(self, hits: Deep, query: Query, collapse: Collapse) -> Plan[list[Hit]]:
        """Return a collapsed ranking; request more hits until enough are left."""
        most = self.backend.features.most_hits
        return collapsed(hits, collapse, top_k=query.top_k or 1, most=most, source=self.name)

    @property
    def _origin(self) -> Origin:
        """Source of stored data beside the text of the hits, for stages."""
        return Origin(self.backend.store, self.embed_model)

    def _gated(self, candidates: Sequence[Candidate], query: Query) -> list[Hit]:
        return checked_hits(
            candidates,
            query.condition,
            store=type(self.backend.store).__name__,
            drop_violations=self.backend.drop_violations,
            source=self.name,
            origin=self._origin,
        )

    def _embed(self, query: Query) -> Plan[list[float]]:
        if query.embedding is not None:
            return query.embedding
        return (yield from embed(query, self._model()))

    def _model(self) -> BaseEmbedding:
        if self.embed_model is None:
            raise ConfigurationError(
                f"{type(self).__name__} has no embedding model; pass embed_model= with the model "
                "that the store was filled with, or queries that carry their embedding"
            )
        return self.embed_model


def search_of(query: Query, *, top_k: int | None = None) -> Search:
    """Return the parameters of a search for a backend."""
    return Search(top_k or query.top_k or 1, query.condition, query.scope, query.exact)
