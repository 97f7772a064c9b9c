"""Keyword search in a store."""

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import one_top_k
from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever, search_of
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Backend, EngineQuery, KeywordQuery
from llama_retrieval_ext.stores.open import Storage


class KeywordRetriever(StoreRetriever):
    """Retriever of nodes that share terms with the query, by BM25 in the store; needs no model.

    For keyword search over nodes in memory or a docstore, see ``BM25Retriever``.

    Args:
        store: A URL such as ``embedded:./kb``, or a LlamaIndex vector store with keyword search.
        top_k: Number of hits if the query sets none; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Scope that limits every query. Term statistics cover the visible nodes.
        collapse: Maximum number of hits per document, or per value of a metadata field; the search
            continues until there are ``top_k`` hits. None for no limit.
        similarity_top_k: LlamaIndex's name of ``top_k``; pass only one of them.
        name: Name in traces and ``Hit.source``; ``keyword`` unless given.

    Scores are raw BM25, above 0 and unbounded; nodes that share no term are not returned.

    Raises:
        UnsupportedModeError: The store has no keyword search.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_retrieval_ext import EmbeddedVectorStore
        >>> store = EmbeddedVectorStore(":memory:")
        >>> _ = store.add([TextNode(id_="n1", text="年假 annual leave", embedding=[1.0])])
        >>> [hit.node_id for hit in KeywordRetriever(store).retrieve("年假")]
        ['n1']

    """

    def __init__(  # noqa: PLR0913 - the five that every retriever has, and LlamaIndex's name of one
        self,
        store: Storage,
        *,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        similarity_top_k: int | None = None,
        name: str = "keyword",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(store, None, top_k=hits, filters=filters, scope=scope, name=name)
        self._collapse_by(collapse)
        if self.backend.features.keyword is None:
            raise no_keyword_search(self.backend)

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        (request,) = yield from self._searches(self._deep(query))
        return (yield from self._answer_to(request, query))

    @property
    def _embeds(self) -> bool:
        return False

    def _searches(self, query: Query) -> Plan[list[EngineQuery]]:
        return finished([KeywordQuery(query.query_str, search_of(query))])


def no_keyword_search(backend: Backend) -> UnsupportedModeError:
    """Return the error for a store without keyword search."""
    return UnsupportedModeError(
        f"{type(backend.store).__name__} has no keyword search; use BM25Retriever over the nodes "
        "or the docstore, or a store opened by URL"
    )
