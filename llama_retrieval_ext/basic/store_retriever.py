"""What the retrievers over one store share: the store's backend and embedding model."""

from abc import abstractmethod
from collections.abc import Sequence

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.effects import Plan, Task, Together
from llama_retrieval_ext.execution.embedding import embed, embed_ahead
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.stores.ahead import search_ahead
from llama_retrieval_ext.stores.backend import Asked, Search
from llama_retrieval_ext.stores.opening import Storage, source_of


class StoreRetriever(Retriever):
    """A retriever over one store.

    Attributes:
        backend: How the store is asked.
        embed_model: Turns query text into vectors; None where queries carry their embedding.
    """

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
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        source = source_of(store)
        self.backend = source.backend
        self.embed_model = embed_model or source.embed_model
        self.object_map = dict(source.objects)

    def ahead(self, queries: Sequence[Query]) -> Plan[None]:
        """All their searches, in a batch where the engine takes one."""
        answerable = self._answerable(queries)
        if self.embed_model is not None and self._embeds:
            yield from embed_ahead(answerable, self.embed_model)
        plans = [self._searches(query) for query in answerable]
        outcomes = yield Together([Task(self.name, plan) for plan in plans])
        searches: list[Asked] = [each for outcome in outcomes for each in outcome.result()]
        yield from search_ahead(self.backend, searches)

    @property
    def _embeds(self) -> bool:
        """Whether queries have to be embedded."""
        return True

    @abstractmethod
    def _searches(self, query: Query) -> Plan[list[Asked]]:
        """What the store is asked for a query, once it is embedded."""

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

    def __repr__(self) -> str:
        told = f"{self.backend.engine}, top_k={self.top_k}, name={self.name!r}"
        return f"{type(self).__name__}({told})"


def search_of(query: Query, *, top_k: int | None = None) -> Search:
    """What a backend is told about a query."""
    return Search(top_k or query.top_k or 1, query.condition, query.scope)
