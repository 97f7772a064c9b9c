"""Retrievers over one store: their base class, vector search and keyword search."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.checks import one_top_k
from llama_retrieval_ext.errors import ConfigurationError, UnsupportedModeError
from llama_retrieval_ext.execution.context import call, note_degraded, note_inquiry, recording, step
from llama_retrieval_ext.execution.hints import Metadata, Passages, note_keys
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.why_not import FieldWords
from llama_retrieval_ext.query import Query, described_binding
from llama_retrieval_ext.results import Hit, Origin, asked_for, with_origin
from llama_retrieval_ext.retrievers.fields import check_fields, note_fields, words_by_field
from llama_retrieval_ext.retrievers.gate import checked_hits
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, Search
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.generic import nodes_by_id, origin_in
from llama_retrieval_ext.stores.open import Storage, StoredTexts, StoreNodes, source_of
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever

# Returns the plan for the hits of a query, with its ``top_k``.
Answering: TypeAlias = Callable[[Query], Plan[list[Hit]]]
# Returns the call of a search in the store.
Searching: TypeAlias = Callable[[Search], Call[list[Candidate]]]
# Neighbouring hits of one document often come in pairs, seldom in larger groups.
_FIRST: Final = 2
SYNONYM_WEIGHT: Final = 0.5
_GROWTH: Final = 4


def _within(most: int | None, depth: int, top_k: int) -> int:
    """Return the depth, at most that of the engine, but not below ``top_k``."""
    return depth if most is None else min(depth, max(most, top_k))


# Seconds for which a query may miss a change of a docstore.
_CACHE_TTL_S: Final = 60.0


class StoreRetriever(Retriever):
    """Base class of retrievers over one store."""

    collapse: Collapse | None = None

    def __init__(
        self,
        store: Storage,
        embed_model: BaseEmbedding | None,
        *,
        top_k: Count,
        filters: MetadataFilters | None,
        scope: Scope | None,
        name: str,
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        self.source = source_of(store)
        self.backend = self.source.backend
        if isinstance(self.backend, EngineBackend):
            self.requires_scope = self.backend.requires_scope
            self.requires_principals = self.backend.requires_principals
            self.keeps_history = self.backend.keeps_history
        self.embed_model = self.source.embed_model if embed_model is None else embed_model
        self.object_map = dict(self.source.objects)

    def clone(self) -> Self:
        """Return a copy with state of its own; store, model and arguments are shared."""
        made = copy(self)
        made.callback_manager = CallbackManager()
        made.object_map = dict(self.object_map)
        return made

    @property
    def _embeds(self) -> bool:
        """Whether queries need an embedding."""
        return True

    def _hits(self, query: Query, search: Searching) -> Plan[list[Hit]]:
        """Return the plan for the hits of one search of the store."""

        def hits(asked: Query) -> Plan[list[Hit]]:
            return step("search", self._checked(call(search(search_of(asked))), asked))

        return self._collapsed(hits, query)

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
            if query.synonyms:
                what = (*what, f"synonyms {', '.join(query.synonyms)} (weight {SYNONYM_WEIGHT})")
            trace.notes["pushed_down"] = [*what, *described_binding(query)]

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """Return the node from the store, ignoring scope."""
        nodes = yield from call(nodes_by_id(self.backend, [node_id]))
        return nodes.get(node_id)

    def _collapsed(self, hits: Answering, query: Query) -> Plan[list[Hit]]:
        """Return a collapsed ranking, and note what to look at if it is empty."""
        ranking = yield from self._collapse(hits, query)
        note_keys(query, [hit.node.metadata for hit in ranking], lambda: self._passages(query))
        if not ranking:
            # A vector search finds every node that it may.
            key = ("filters", id(self.backend.store), query.condition)
            note_inquiry(key, lambda: self._passages(query).hints(query), always=self._embeds)
        return ranking

    def _passages(self, query: Query) -> Passages:
        """Return what hints look at: the passages that may be found."""
        operators = self.backend.features.operators
        is_exact = operators is not None and FilterOperator.IS_EMPTY in operators
        return Passages(partial(self._metadata, query), is_exact, not self._embeds)

    def _metadata(
        self, query: Query, condition: Condition | None, limit: int
    ) -> Plan[list[Metadata]]:
        """Return the metadata of nodes that satisfy a condition, as a vector search finds them."""
        dimension = getattr(self.backend.store, "dimension", None)
        probe = [1.0, *[0.0] * (dimension - 1)] if dimension else (yield from self._embed(query))
        search = Search(limit, condition, query.scope, exact=self.backend.features.exact)
        candidates = yield from call(self.backend.dense(probe, search))
        return [candidate.node.metadata for candidate in candidates]

    def _collapse(self, hits: Answering, query: Query) -> Plan[list[Hit]]:
        """Return a collapsed ranking; request more hits until enough are left."""
        collapse, top_k = self.collapse, query.top_k or 1
        if collapse is None:
            return (yield from hits(query))
        most = self.backend.features.most_hits
        depth = _within(most, _FIRST * top_k, top_k)
        while True:
            ranking = yield from hits(query.but(top_k=depth))
            kept = collapse.refine(query, ranking)
            if len(kept) >= top_k or len(ranking) < depth:
                return kept[:top_k]
            if most is not None and depth >= most:
                note_degraded(
                    self.name,
                    f"{collapse!r}: there are only {counted(len(kept), 'hit')} instead of {top_k} "
                    f"from the first {depth}, and the engine returns no more at once",
                )
                return kept
            depth = _within(most, _GROWTH * depth, top_k)

    @property
    def _origin(self) -> Origin:
        """Source of stored data beside the text of the hits, for stages."""
        return origin_in(self.backend, self.embed_model)

    def _gated(self, candidates: Sequence[Candidate], query: Query) -> list[Hit]:
        hits = checked_hits(
            candidates,
            query.condition,
            store=type(self.backend.store).__name__,
            drop_violations=self.backend.drop_violations,
            source=self.name,
            origin=self._origin,
        )
        tokenizer = getattr(self.backend.store, "tokenizer", None)
        for hit in hits:
            asked_for(hit, query.query_str, tokenizer, query.synonyms)
        return hits

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
    top_k = top_k or query.top_k or 1
    return Search(top_k, query.condition, query.scope, query.exact, query.fields)


def keyword_text(query: Query) -> tuple[str, float]:
    """Return the text of a keyword search, and the factor for its scores.

    Synonyms have half of the weight of the words of the query: these are there twice, because all
    engines multiply a term's score by its count in the query.

    Source:
        The weight: Voorhees, "Query expansion using lexical-semantic relations", SIGIR 1994,
        https://doi.org/10.1007/978-1-4471-2099-5_7, where related words helped most with 0.5.
    """
    if not query.synonyms:
        return query.query_str, 1.0
    return " ".join([query.query_str, query.query_str, *query.synonyms]), SYNONYM_WEIGHT


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
                raise _no_keyword_search(self.backend)
            self._in_memory = _DocstoreKeywords(texts, name)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Search the store by keywords."""
        check_fields(query, self.backend.store)
        if self._in_memory is not None:
            plan = partial(self._in_memory.plan, origin=self._origin)
            return (yield from self._collapsed(plan, query))
        text, factor = keyword_text(query)

        def search(parameters: Search) -> Call[list[Candidate]]:
            found = self.backend.keyword(text, parameters)
            if factor == 1:
                return found
            return found.then(lambda hits: [hit.rescored(factor * hit.score) for hit in hits])

        hits = yield from self._hits(query, search)
        text = keyword_text(query)[0]
        yield from note_fields(query, hits, self.backend, text, partial(self._passages, query))
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
            depth *= _GROWTH

    def _indexed(self) -> "BM25Retriever":
        with self._lock:
            if self._bm25 is None:
                # Most stores have keyword search and do not need the module.
                from llama_retrieval_ext.retrievers.bm25.retriever import BM25Retriever  # noqa: PLC0415

                self._bm25 = BM25Retriever.from_docstore(
                    self._texts.docstore, cache_ttl_s=_CACHE_TTL_S, name=self._name
                )
            return self._bm25


def _no_keyword_search(backend: Backend) -> UnsupportedModeError:
    return UnsupportedModeError(
        f"{type(backend.store).__name__} has no keyword search, and there is no docstore with its "
        "texts; pass the VectorStoreIndex or StorageContext that has them, or a store opened by "
        "URL, or use BM25Retriever over the nodes"
    )
