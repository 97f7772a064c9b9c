"""Vector search."""

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import one_top_k
from llama_retrieval_ext.execution.context import step
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever, search_of
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import EngineQuery, VectorQuery
from llama_retrieval_ext.stores.open import Storage


class VectorRetriever(StoreRetriever):
    """Retriever of the nodes whose embeddings are nearest to the query.

    Args:
        store: A URL such as ``embedded:./kb``, a LlamaIndex vector store, or a
            ``VectorStoreIndex``, with its embedding model.
        embed_model: The embedding model that the store was filled with. Not needed if every query
            carries its embedding.
        top_k: Number of hits if the query sets none; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Scope that limits every query.
        collapse: Maximum number of hits per document, or per value of a metadata field; the search
            continues until there are ``top_k`` hits. None for no limit.
        similarity_top_k: LlamaIndex's name of ``top_k``; pass only one of them.
        name: Name in traces and ``Hit.source``; ``vector`` unless given.

    Scores are the store's own and raw: cosine in ``[-1, 1]`` for the embedded engine; see
    ``features.dense`` of the backend for others. Higher is better.

    Examples:
        >>> from llama_index.core.schema import QueryBundle, TextNode
        >>> from llama_retrieval_ext import EmbeddedVectorStore
        >>> store = EmbeddedVectorStore(":memory:")
        >>> _ = store.add([TextNode(id_="n1", text="leave policy", embedding=[0.6, 0.8])])
        >>> retriever = VectorRetriever(store)
        >>> [hit.node_id for hit in retriever.retrieve(QueryBundle("holidays", embedding=[1, 0]))]
        ['n1']

    """

    def __init__(  # noqa: PLR0913 - the five that every retriever has, and its own
        self,
        store: Storage,
        *,
        embed_model: BaseEmbedding | None = None,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        similarity_top_k: int | None = None,
        name: str = "vector",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(store, embed_model, top_k=hits, filters=filters, scope=scope, name=name)
        self._collapse_by(collapse)

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        (request,) = yield from step("embedding", self._searches(self._deep(query)))
        return (yield from self._answer_to(request, query))

    def _searches(self, query: Query) -> Plan[list[EngineQuery]]:
        return [VectorQuery(tuple((yield from self._embed(query))), search_of(query))]
