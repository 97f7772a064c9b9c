"""`Searchable`: the methods of a knowledge base that answer queries."""

from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call, one_top_k
from llama_retrieval_ext.knowledge_base.access import Access
from llama_retrieval_ext.knowledge_base.engines import chat_engine, query_engine
from llama_retrieval_ext.knowledge_base.kinds import (
    GraphArguments,
    Kind,
    KindOptions,
    PresetArguments,
    PresetKind,
    RetrieverRequest,
    Searched,
    StoreArguments,
    StoreKind,
    build_retriever,
)
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.confidence import Confidence
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Backend

if TYPE_CHECKING:
    from llama_index.core.chat_engine.types import BaseChatEngine
    from llama_index.core.llms import LLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
    from llama_retrieval_ext.retrievers.graph import GraphRetriever
    from llama_retrieval_ext.retrievers.kg_rule import KGRuleRetriever
    from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
    from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline


class Searchable:
    """The queries of a knowledge base: everything that is built on `retriever`.

    Attributes:
        url: Its URL.
        require_scope: Whether every operation needs a scope.
        embed_model: The embedding model.
    """

    def __init__(
        self,
        access: Access,
        backend: Backend,
        embed_model: BaseEmbedding,
        *,
        graphs: "PassageGraphs | None",
        confidence: Confidence,
    ) -> None:
        self.url = access.url
        self.require_scope = access.require_scope
        self.embed_model = embed_model
        self._check_open = access.check_open
        self._backend = backend
        self._graphs = graphs
        self._confidence = confidence

    @overload
    def retriever(
        self, kind: StoreKind = "hybrid", **arguments: Unpack[StoreArguments]
    ) -> StoreRetriever: ...

    @overload
    def retriever(
        self, kind: Literal["graph"], **arguments: Unpack[GraphArguments]
    ) -> "GraphRetriever": ...

    @overload
    def retriever(
        self, kind: Literal["kg_rule"], **arguments: Unpack[GraphArguments]
    ) -> "KGRuleRetriever": ...

    @overload
    def retriever(
        self, kind: Literal["knowledge"], **arguments: Unpack[GraphArguments]
    ) -> "KnowledgeRetriever": ...

    @overload
    def retriever(
        self, kind: PresetKind, **arguments: Unpack[PresetArguments]
    ) -> "RetrievalPipeline": ...

    @overload
    def retriever(self, kind: Kind, **arguments: Unpack[StoreArguments]) -> Retriever: ...

    @checked_call
    def retriever(  # noqa: PLR0913 - what a retriever takes
        self,
        kind: Kind = "hybrid",
        *,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        fusion: Fusion | None = None,
        alpha: float | None = None,
        pushdown: bool = False,
        collapse: Collapse | None = None,
        candidates: int | None = None,
        name: str | None = None,
        similarity_top_k: int | None = None,
        **options: Unpack[KindOptions],
    ) -> Retriever:
        """Return a retriever, which also finds documents added later.

        Args:
            kind: ``vector``, ``keyword`` or ``hybrid``; with a graph also ``graph``, a
                `GraphRetriever` seeded by hybrid search, ``kg_rule``, a `KGRuleRetriever`, or
                ``knowledge``, a `KnowledgeRetriever` over hybrid search and rules. A preset:
                ``basic``, ``advanced``, ``semantic`` or ``auto``; see `build_preset`.
            top_k: Maximum number of hits if the query does not set it; at least 1.
            filters: Metadata conditions for every hit.
            scope: The scope of every query; None to use the query's scope.
            fusion: For ``hybrid``, here and in the graph's kinds: the method that fuses the
                rankings; None for the default of `HybridRetriever`.
            alpha: For ``hybrid``: weight of vector search in ``[0, 1]``.
            pushdown: For ``hybrid``: whether the engine fuses the rankings; see `HybridRetriever`.
            collapse: Maximum number of hits per source; None for no limit. Not for the graph's
                kinds.
            candidates: For ``hybrid``: number of hits per leg; None for 100.
            name: Name in traces and ``Hit.source``; None for the kind.
            similarity_top_k: LlamaIndex's name of ``top_k``; pass one of them.
            options: For presets: those of `build_preset`, ``llm``, and ``reranker``, which replaces
                `RuleRerank`. For ``graph``: ``seed``, ``linker``, ``enable_multi_hop``,
                ``max_hops``, ``max_entities``, ``fan_out`` of `GraphRetriever`; for ``kg_rule`` and
                ``knowledge``: ``rules``, ``linker``; for ``knowledge``: ``policy``.

        Raises:
            ConfigurationError: The kind is unknown, its arguments are invalid, or it needs a graph
                and there is none.
            UnsupportedModeError: With ``pushdown``, the engine does not support the fusion.
        """
        self._check_open()
        request = RetrieverRequest(
            kind=kind,
            top_k=one_top_k(top_k, similarity_top_k),
            filters=filters,
            scope=scope,
            fusion=fusion,
            alpha=alpha,
            pushdown=pushdown,
            collapse=collapse,
            candidates=candidates,
            name=kind if name is None else name,
        )
        searched = Searched(self._backend, self.embed_model, self._graphs)
        retriever = build_retriever(request, options, searched)
        retriever.requires_scope = self.require_scope
        if isinstance(retriever, HybridRetriever):
            retriever.confidence = self._confidence
        return retriever

    @checked_call
    def search(  # noqa: PLR0913 - what a search takes
        self,
        query: QueryType,
        mode: Kind = "hybrid",
        *,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """Return the best hits for a query; ``retriever(mode, ...).search(query)``.

        Args:
            query: A text, or a `Query`.
            mode: A kind of retriever, as for `retriever`.
            top_k: Maximum number of hits, at least 1.
            filters: Metadata conditions for every hit.
            scope: The scope of the caller.
            collapse: Maximum number of hits per source; None for no limit.
            timeout_s: Time limit in seconds; None for no limit.

        Returns:
            The hits, best first, with missing legs and the trace.

        Raises:
            ConfigurationError: An argument is out of range.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        retriever = self.retriever(
            mode, top_k=top_k, filters=filters, scope=scope, collapse=collapse
        )
        return retriever.search(query, timeout_s=timeout_s)

    @checked_call
    async def asearch(  # noqa: PLR0913 - what a search takes
        self,
        query: QueryType,
        mode: Kind = "hybrid",
        *,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        timeout_s: float | None = None,
    ) -> SearchResult:
        """Run `search` without blocking the event loop."""
        retriever = self.retriever(
            mode, top_k=top_k, filters=filters, scope=scope, collapse=collapse
        )
        return await retriever.asearch(query, timeout_s=timeout_s)

    def as_retriever(
        self,
        *,
        similarity_top_k: int = 10,
        mode: Kind = "hybrid",
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
    ) -> Retriever:
        """Return a `retriever`; ``top_k`` has LlamaIndex's name."""
        return self.retriever(mode, top_k=similarity_top_k, filters=filters, scope=scope)

    def as_query_engine(
        self,
        *,
        llm: "LLM | None" = None,
        similarity_top_k: int = 10,
        mode: Kind = "hybrid",
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        **arguments: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> "RetrieverQueryEngine":
        """Return LlamaIndex's query engine over `as_retriever`; it has ``query`` and ``aquery``.

        Args:
            llm: Writes the answers; required.
            similarity_top_k: Number of hits that it reads.
            mode: A kind of retriever, as for `retriever`.
            filters: Metadata conditions for every hit.
            scope: The scope of the caller.
            **arguments: The other arguments of ``RetrieverQueryEngine.from_args``, such as
                ``response_mode``, ``streaming``, ``node_postprocessors`` or ``text_qa_template``.

        Raises:
            ConfigurationError: There is no LLM, or an argument is unknown.
        """
        retriever = self.as_retriever(
            similarity_top_k=similarity_top_k, mode=mode, filters=filters, scope=scope
        )
        return query_engine(retriever, llm, arguments)

    def as_chat_engine(
        self,
        *,
        llm: "LLM | None" = None,
        chat_mode: str = "condense_plus_context",
        similarity_top_k: int = 10,
        mode: Kind = "hybrid",
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        **arguments: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> "BaseChatEngine":
        """Return a LlamaIndex chat engine over `as_retriever`; it has ``chat`` and ``achat``.

        Args:
            llm: Writes the questions and replies; required.
            chat_mode: LlamaIndex's ``ChatMode`` or its value. By default each message is rewritten
                as a standalone question, whose hits are the context of the reply; ``context`` looks
                up the message itself, and ``condense_question`` answers by `as_query_engine`.
            similarity_top_k: Number of hits that it reads.
            mode: A kind of retriever, as for `retriever`.
            filters: Metadata conditions for every hit.
            scope: The scope of the caller.
            **arguments: The other arguments of the chat engine's ``from_defaults``, such as
                ``system_prompt``, ``memory`` or ``node_postprocessors``; for ``condense_question``
                also those of `as_query_engine`.

        Raises:
            ConfigurationError: There is no LLM, or the mode or an argument is unknown.
        """
        retriever = self.as_retriever(
            similarity_top_k=similarity_top_k, mode=mode, filters=filters, scope=scope
        )
        return chat_engine(retriever, llm, chat_mode, arguments)
