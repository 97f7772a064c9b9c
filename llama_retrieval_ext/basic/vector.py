"""Vector search."""

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.basic.store_retriever import StoreRetriever, search_of
from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stores.ahead import searched
from llama_retrieval_ext.stores.backend import Asked, Dense
from llama_retrieval_ext.stores.gate import gated
from llama_retrieval_ext.stores.opening import Storage


class VectorRetriever(StoreRetriever):
    """The nodes whose embeddings are nearest to the query's.

    Args:
        store: A URL such as ``embedded:./kb``, a LlamaIndex vector store, or a
            ``VectorStoreIndex``, whose embedding model is then used.
        embed_model: The embedding model that the store was filled with. Not needed where every
            query carries its embedding.
        top_k: How many hits to return when the query does not say; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Who is asking.
        name: Name in traces and ``Hit.source``; ``vector`` unless given.

    Scores are the store's own and raw: cosine in ``[-1, 1]`` for the embedded engine; see
    ``capabilities.dense`` of the backend for others. Higher is better.

    Examples:
        >>> from llama_index.core.schema import QueryBundle, TextNode
        >>> from llama_retrieval_ext import EmbeddedVectorStore
        >>> store = EmbeddedVectorStore(":memory:")
        >>> _ = store.add([TextNode(id_="n1", text="leave policy", embedding=[0.6, 0.8])])
        >>> retriever = VectorRetriever(store)
        >>> [hit.node_id for hit in retriever.retrieve(QueryBundle("holidays", embedding=[1, 0]))]
        ['n1']

    """

    def __init__(
        self,
        store: Storage,
        *,
        embed_model: BaseEmbedding | None = None,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str = "vector",
    ) -> None:
        super().__init__(store, embed_model, top_k=top_k, filters=filters, scope=scope, name=name)

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        (asked,) = yield from step("embedding", self._searches(query))
        found = yield from step("search", searched(self.backend, asked))
        return gated(found, query.condition, backend=self.backend, source=self.name)

    def _searches(self, query: Query) -> Plan[list[Asked]]:
        return [Dense(tuple((yield from self._embed(query))), search_of(query))]
