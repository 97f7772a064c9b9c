"""What the retrievers over one store share: the store's backend and embedding model."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import of_type
from llama_retrieval_ext.basic.collapsing import Deep, collapsed, first_depth, for_more, settled
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Plan, Task, Together
from llama_retrieval_ext.execution.embedding import embed, embed_ahead
from llama_retrieval_ext.execution.steps import call, step
from llama_retrieval_ext.query import Query, Scope, check_top_k
from llama_retrieval_ext.ranking import Hit, Origin
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.stages.refining.collapse import Collapse
from llama_retrieval_ext.stores.ahead import found_ahead, search_ahead, searched
from llama_retrieval_ext.stores.backend import Asked, Found, Search
from llama_retrieval_ext.stores.gate import gated
from llama_retrieval_ext.stores.grouping import grouping
from llama_retrieval_ext.stores.opening import Storage, source_of

_MODELS: Final = "pass a LlamaIndex embedding model, as resolve_embed_model('local') gives one"


class StoreRetriever(Retriever):
    """A retriever over one store.

    Attributes:
        backend: How the store is asked.
        embed_model: Turns query text into vectors; None where queries carry their embedding.
        collapse: What stays of each document; None for everything.
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
        self.embed_model = source.embed_model if embed_model is None else embed_model
        self.object_map = dict(source.objects)

    def ahead(self, queries: Sequence[Query]) -> Plan[None]:
        """All their searches, in a batch where the engine takes one."""
        answerable = self._answerable(queries)
        if self.embed_model is not None and self._embeds:
            failed = yield from embed_ahead(answerable, self.embed_model)
            answerable = [each for each in answerable if failed.isdisjoint(each.embedding_strs)]
        plans = [self._searches(self._deep(query)) for query in answerable]
        outcomes = yield Together([Task(self.name, plan) for plan in plans])
        searches: list[Asked] = [each for outcome in outcomes for each in outcome.result()]
        yield from search_ahead(self.backend, searches)

    def _collapse_by(self, collapse: Collapse | None) -> None:
        self.collapse = None if collapse is None else of_type(collapse, Collapse, "collapse")

    @property
    def _embeds(self) -> bool:
        """Whether queries have to be embedded."""
        return True

    @abstractmethod
    def _searches(self, query: Query) -> Plan[list[Asked]]:
        """What the store is asked for a query, once it is embedded."""

    def _deep(self, query: Query) -> Query:
        """The query for as many hits as have to be looked at."""
        if self.collapse is None:
            return query
        most = self.backend.capabilities.most_hits
        return query.but(top_k=first_depth(query.top_k or 1, most=most))

    def _answer_to(self, asked: Asked, query: Query) -> Plan[list[Hit]]:
        """What one search finds; of each document as much as is wanted."""
        if self.collapse is None:
            return (yield from self._plainly(asked, query))
        if not self._has_enough_ahead(asked, query, self.collapse):
            best = yield from self._best_groups(asked, query, self.collapse)
            if best is not None:
                return self._gated(best, query)
        return (
            yield from self._collapsed(
                lambda depth: self._plainly(for_more(asked, depth), query),
                query,
                self.collapse,
            )
        )

    def _has_enough_ahead(self, asked: Asked, query: Query, collapse: Collapse) -> bool:
        known = found_ahead(self.backend, [asked])
        if known is None:
            return False
        is_all = len(known[0]) < asked.search.top_k
        return is_all or len(collapse.of(known[0])) >= (query.top_k or 1)

    def _plainly(self, asked: Asked, query: Query) -> Plan[list[Hit]]:
        return self._gated((yield from step("search", searched(self.backend, asked))), query)

    def _best_groups(
        self, asked: Asked, query: Query, collapse: Collapse
    ) -> Plan[list[Found] | None]:
        """What the engine finds of each document; None where that is not exact."""
        top_k, can = query.top_k or 1, self.backend.capabilities
        size = collapse.size + 1
        too_many = can.most_hits is not None and (top_k + 1) * size > can.most_hits
        if collapse.by is not None or not can.grouping or too_many:
            return None
        # One more of everything shows whether the engine had to choose among equals.
        groups = grouping(self.backend).grouped(for_more(asked, top_k + 1), size)
        found = yield from step("search by documents in the engine", call(groups))
        return settled(found, collapse, top_k=top_k)

    def _collapsed(self, hits: Deep, query: Query, collapse: Collapse) -> Plan[list[Hit]]:
        """A ranking that is asked for ever more hits until enough are left of them."""
        most = self.backend.capabilities.most_hits
        return collapsed(hits, collapse, top_k=query.top_k or 1, most=most, source=self.name)

    @property
    def _origin(self) -> Origin:
        """Where stages find what is stored beside the text of the hits."""
        return Origin(self.backend.store, self.embed_model)

    def _gated(self, found: Sequence[Found], query: Query) -> list[Hit]:
        return gated(
            found, query.condition, backend=self.backend, source=self.name, origin=self._origin
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

    def _expression(self) -> str:
        told = [self.backend.engine, f"top_k={self.top_k}", *self._told(), f"name={self.name!r}"]
        return f"{type(self).__name__}({', '.join(told)})"

    def _told(self) -> list[str]:
        """What was chosen, in place of a default, for `repr`."""
        return [] if self.collapse is None else [f"collapse={self.collapse!r}"]


def search_of(query: Query, *, top_k: int | None = None) -> Search:
    """What a backend is told about a query."""
    return Search(top_k or query.top_k or 1, query.condition, query.scope)
