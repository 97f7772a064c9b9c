"""Vector search and keyword search of one store."""

from collections.abc import Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import one_top_k
from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.context import step
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.why_not import FieldWords
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, Origin, with_origin
from llama_retrieval_ext.retrievers.store_retriever import (
    GROWTH,
    StoreRetriever,
    check_fields,
    keyword_text,
    note_fields,
    origin_in,
    words_by_field,
)
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Candidate, Search
from llama_retrieval_ext.stores.open import Storage, StoredTexts, StoreNodes

if TYPE_CHECKING:
    from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever

# Seconds for which a query may miss a change of a docstore.
_CACHE_TTL_S: Final = 60.0


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
        top_k: Count = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        similarity_top_k: int | None = None,
        name: str = "vector",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(store, embed_model, top_k=hits, filters=filters, scope=scope, name=name)
        self.collapse = collapse

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Embed the query, then search the store by vector."""
        embedding = yield from step("embedding", self._embed(query))
        return (yield from self._hits(query, partial(self.backend.dense, embedding)))


class KeywordRetriever(StoreRetriever):
    """Retriever of nodes that share terms with the query, by BM25 in the store; needs no model.

    If the store has no keyword search, but a docstore has its texts, as with a ``VectorStoreIndex``
    over a ``SimpleVectorStore``, they are searched by BM25 in memory, which the trace says; so are
    the texts in LlamaIndex's stores of Qdrant and Milvus, which are read as a whole. The first
    query indexes them; changes are found within a minute. Term statistics then cover all of them.
    For nodes without a store, see ``BM25Retriever``.

    Args:
        store: A URL such as ``embedded:./kb``, or a LlamaIndex vector store with keyword search;
            for another vector store its ``VectorStoreIndex``, or the ``StorageContext`` with its
            docstore.
        top_k: Number of hits if the query sets none; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Scope that limits every query. Term statistics cover the visible nodes.
        collapse: Maximum number of hits per document, or per value of a metadata field; the search
            continues until there are ``top_k`` hits. None for no limit.
        similarity_top_k: LlamaIndex's name of ``top_k``; pass only one of them.
        fields: The fields that are searched, with weights, such as ``{"title": 1}``; None for those
            of the store's `Schema`.
        name: Name in traces and ``Hit.source``; ``keyword`` unless given.

    Scores are raw BM25, summed over the fields by weight, above 0 and unbounded; nodes that share
    no term are not returned.

    Raises:
        UnsupportedModeError: The store has no keyword search, there is no docstore with nodes, and
            the texts in the store cannot be read as a whole.

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
        top_k: Count = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        similarity_top_k: int | None = None,
        fields: Mapping[str, float] | None = None,
        name: str = "keyword",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(store, None, top_k=hits, filters=filters, scope=scope, name=name)
        self.collapse, self.fields = collapse, fields
        self._in_memory: _DocstoreKeywords | None = None
        if self.backend.features.keyword is None:
            texts = StoredTexts.beside(self.source)
            if texts is None:
                raise UnsupportedModeError(
                    f"{type(self.backend.store).__name__} has no keyword search, and there is no "
                    "docstore with its texts; pass the VectorStoreIndex or StorageContext that has "
                    "them, or a store opened by URL, or use BM25Retriever over the nodes"
                )
            self._in_memory = _DocstoreKeywords(texts, name)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Search the store by keywords."""
        if query.fields is not None:
            check_fields(query, self.backend.store)
        if self._in_memory is not None:
            plan = partial(self._in_memory.plan, origin=origin_in(self.backend, self.embed_model))
            return (yield from self._collapsed(plan, query))
        text, factor = keyword_text(query)

        def search(parameters: Search) -> Call[list[Candidate]]:
            call = self.backend.keyword(text, parameters)
            if factor == 1:
                return call
            return call.then(lambda hits: [hit.rescored(factor * hit.score) for hit in hits])

        hits = yield from self._hits(query, search)
        yield from note_fields(query, hits, self.backend, partial(self._passages, query))
        return hits

    def field_words(self, query: Query, node: BaseNode) -> FieldWords:
        """Return the words of a question in the searched fields of a node."""
        return words_by_field(query, node, self.backend)

    @property
    def _embeds(self) -> bool:
        return False


class _DocstoreKeywords:
    """BM25 over the texts of a docstore; the first query indexes them, later ones follow changes.

    Nodes that the vector store lacks are left out.
    """

    def __init__(self, texts: StoredTexts, name: str) -> None:
        self._texts = texts
        self._name = name
        self._bm25: BM25Retriever | None = None
        self._lock = Lock()

    def plan(self, query: Query, origin: Origin) -> Plan[list[Hit]]:
        bm25 = yield Call(self._indexed)
        top_k = depth = query.top_k or 1
        while True:
            hits = bm25.plan(query.but(top_k=depth))
            what = "store" if isinstance(self._texts.docstore, StoreNodes) else "docstore"
            ranking = yield from step(f"BM25 in memory, over the {what}", hits)
            kept = [
                with_origin(hit, origin) for hit in ranking if self._texts.has(hit.node.node_id)
            ]
            if len(kept) >= top_k or len(ranking) < depth:
                return kept[:top_k]
            depth *= GROWTH

    def _indexed(self) -> "BM25Retriever":
        with self._lock:
            if self._bm25 is None:
                # Most stores have keyword search and do not need the module.
                from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever  # noqa: PLC0415

                self._bm25 = BM25Retriever.from_docstore(
                    self._texts.docstore, cache_ttl_s=_CACHE_TTL_S, name=self._name
                )
            return self._bm25
