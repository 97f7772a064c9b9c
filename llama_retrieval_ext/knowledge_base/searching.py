"""`Searchable`: the methods of a knowledge base that answer queries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, get_args, overload

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import record_argument, takes_argument
from llama_retrieval_ext.checks import check_count, checked_methods, one_top_k
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.registry import default_registry
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.embeddings.resolve import vector_share_of
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.interpretation import Interpretation
from llama_retrieval_ext.knowledge_base.curating import Curating
from llama_retrieval_ext.knowledge_base.engines import chat_engine, query_engine
from llama_retrieval_ext.knowledge_base.kinds import (
    CompositeKind,
    Kind,
    PresetKind,
    RetrieverArguments,
    StoreKind,
)
from llama_retrieval_ext.knowledge_base.paging import Paging
from llama_retrieval_ext.knowledge_base.storage import Access, Storage
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.searching import search_plan
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import Scope, at_time
from llama_retrieval_ext.stages.selection import Collapse
from llama_retrieval_ext.stores.engine.backend import Backend

if TYPE_CHECKING:
    from llama_index.core.chat_engine.types import BaseChatEngine
    from llama_index.core.llms import LLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from llama_retrieval_ext.llm.functions import AnyLLM
    from llama_retrieval_ext.retrievers.graph import GraphRetriever
    from llama_retrieval_ext.retrievers.kg_rule import KGRuleRetriever
    from llama_retrieval_ext.retrievers.knowledge import KnowledgeRetriever
    from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline

_STORE_KINDS: Final = get_args(StoreKind)
_BY_VECTOR: Final = ("vector", "dense", "llama_dense")
_MAX_PROTOTYPES: Final = 100


@checked_methods
class Searchable:
    """The queries of a knowledge base: everything that is built on `retriever`.

    Attributes:
        url: Its URL.
        require_scope: Whether every operation needs a scope.
        require_principals: Whether the scope of every read needs principals.
        embed_model: The embedding model.
        vector_share: The share of vector search in hybrid search, unless a call gives weights.
    """

    def __init__(  # noqa: PLR0913 - what its retrievers are made of
        self,
        access: Access,
        backend: Backend,
        storage: Storage,
        embed_model: BaseEmbedding,
        *,
        languages: Sequence[str] | None,
        vector_share: float | None,
        cursor_key: str,
        curation: Curating,
    ) -> None:
        self.url = access.url
        self.require_scope = access.require_scope
        self.require_principals = access.require_principals
        self.embed_model = embed_model
        self._check_open = access.check_open
        self._backend = backend
        self._languages = languages
        self._store = storage.store
        self._graphs = None if storage.graph is None else storage.graph.graphs
        self._curation = curation
        self._cursor_key = cursor_key
        self._query_model = embed_model
        self._weigh_vectors(vector_share)

    def _weigh_vectors(self, share: float | None) -> None:
        """Give vector search a share in hybrid searches from now on; None for the model's."""
        self.vector_share = vector_share_of(self.embed_model) if share is None else share
        self._prototypes: dict[tuple[object, ...], StoreRetriever] = {}  # by kind and arguments

    @property
    def schema(self) -> Schema:
        """The fields that are searched, with weights, counted and compared."""
        return self._store.field_schema

    @property
    def parts(self) -> RegistryParts:
        """The parts of its retrievers, for a registry."""
        return RegistryParts(
            make=default_registry().make,
            backend=self._backend,
            embed_model=self._query_model,
            languages=self._languages,
            kb=self,  # type: ignore[arg-type]  # a subclass has nodes() and count()
            graph=self._graphs,
            vector_share=self.vector_share,
            requires_scope=self.require_scope,
            requires_principals=self.require_principals,
            curation=self._curation,
        )

    @overload
    def retriever(
        self, kind: StoreKind = "hybrid", **arguments: Unpack[RetrieverArguments]
    ) -> StoreRetriever: ...

    @overload
    def retriever(
        self, kind: Literal["graph"], **arguments: Unpack[RetrieverArguments]
    ) -> "GraphRetriever": ...

    @overload
    def retriever(
        self, kind: Literal["kg_rule"], **arguments: Unpack[RetrieverArguments]
    ) -> "KGRuleRetriever": ...

    @overload
    def retriever(
        self, kind: Literal["knowledge"], **arguments: Unpack[RetrieverArguments]
    ) -> "KnowledgeRetriever": ...

    @overload
    def retriever(
        self, kind: PresetKind, **arguments: Unpack[RetrieverArguments]
    ) -> "RetrievalPipeline": ...

    @overload
    def retriever(
        self,
        kind: CompositeKind,
        **arguments: Any,  # noqa: ANN401 - those of the table
    ) -> Retriever: ...

    @overload
    def retriever(self, kind: Kind, **arguments: Unpack[RetrieverArguments]) -> Retriever: ...

    def retriever(  # noqa: PLR0913 - the arguments of every retriever
        self,
        kind: Kind = "hybrid",
        *,
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        collapse: Collapse | None = None,
        name: str | None = None,
        similarity_top_k: int | None = None,
        fields: Mapping[str, float] | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        **options: object,
    ) -> Retriever:
        """Return a retriever, which also finds documents added later.

        Args:
            kind: A name of the table in ``config/README.md``, which has the parameters of each
                name with their defaults: ``vector``, ``keyword``, ``hybrid``; with a graph
                ``graph`` and ``kg_rule``; ``knowledge``; the presets ``basic``, ``advanced``,
                ``semantic`` and ``auto``; ``fusion``, ``hyde``, ``multi_query``, ``router``,
                ``rerank`` and others; and names registered with `register_retriever`.
            top_k: Maximum number of hits if the query does not set it; at least 1. None for the
                default of the name: 10, and 5 for ``llama_dense``, ``llama_bm25``,
                ``llama_hybrid``.
            filters: Metadata conditions for every hit.
            scope: The scope of every query; None to use the query's scope.
            collapse: For ``vector``, ``keyword`` and ``hybrid``: maximum number of hits per source;
                None for no limit.
            name: Name in traces and ``Hit.source``; None for its own.
            similarity_top_k: LlamaIndex's name of ``top_k``; pass one of them.
            fields: The fields of keyword searches, with weights, such as ``{"title": 1}``; None for
                those of the `Schema`.
            as_of: The time for which every query asks, as for `Scope`; a query can have another.
            known_at: The time at which it was known, likewise.
            options: The parameters of the name. For ``hybrid``: ``dense_weight=0.7`` and
                ``sparse_weight=0.3`` by the table, and **0.5 and 0.5 in a knowledge base**, where
                they were measured to be better, or the share that `KnowledgeBase.weigh` recorded or
                the model declares (`LocalEmbedding` 0.15); less of the first for a question in a
                script that the model does not know; or ``alpha``, the share of the first;
                ``fusion``, ``candidates``, ``pushdown``.

        Raises:
            ConfigurationError: The name is unknown, its arguments are invalid, or it needs an
                object that is missing, such as a graph.
            UnsupportedModeError: With ``pushdown``, the engine does not support the fusion.
        """
        self._check_open()
        common = {"top_k": one_top_k(top_k, similarity_top_k), "collapse": collapse}
        arguments = {key: value for key, value in common.items() if value is not None} | options
        parts = replace(self.parts, filters=filters, scope=at_time(scope, as_of, known_at))
        prototype = self._prototype(kind, arguments)
        made = parts.make(kind, arguments, parts) if prototype is None else prototype.clone()
        retriever = parts.bound(made if isinstance(made, Retriever) else Pipeline(made, name=kind))
        if fields is not None:
            self._check_fields(fields, kind)
        for argument, value in (("fields", fields), ("name", name)):
            if value is not None:
                setattr(retriever, argument, value)
                if takes_argument(type(retriever), argument):
                    record_argument(retriever, argument, value)
        return retriever

    def _check_fields(self, fields: Mapping[str, float], kind: Kind) -> None:
        """Raise `ConfigurationError` if a retriever does not search these fields."""
        self.schema.weights(fields)
        if kind in _BY_VECTOR:
            raise ConfigurationError(
                f"{kind!r} searches by meaning and has no fields; leave fields out, or search by "
                "'keyword' or 'hybrid'"
            )

    def _prototype(self, kind: Kind, arguments: Mapping[str, object]) -> StoreRetriever | None:
        """Return a shared retriever over the store; None if the kind or an argument is another."""
        if kind not in _STORE_KINDS or not {*map(type, arguments.values())} <= {int, Collapse}:
            return None
        key = (kind, *arguments.items())
        if key not in self._prototypes:
            made = self.parts.make(kind, arguments, self.parts)
            if not isinstance(made, StoreRetriever):
                return None
            if len(self._prototypes) >= _MAX_PROTOTYPES:
                self._prototypes = {}
            if isinstance(made, HybridRetriever):
                made.never_break()
            self._prototypes[key] = made
        return self._prototypes[key]

    @blocking
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
        fields: Mapping[str, float] | None = None,
        correct: bool | None = None,
        interpret: bool | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        sort: str | None = None,
        cursor: str | None = None,
        depth: int | None = None,
    ) -> Plan[SearchResult]:
        """Return the best hits for a query, as ``retriever(mode, ...).search(query)``, by pages.

        With the ``cursor`` of the result, the same call returns the next page, of ``top_k`` hits.
        The ranking is frozen from the second page on, and from the first with ``sort`` or
        ``depth``: what is added later does not come, what is deleted leaves a gap, and nothing
        comes twice. Scope and filters hold on each page as of then.

        Args:
            query: A text, or a `Query`.
            mode: A kind of retriever, as for `retriever`.
            top_k: Maximum number of hits, at least 1.
            filters: Metadata conditions for every hit.
            scope: The scope of the caller.
            collapse: Maximum number of hits per source; None for no limit.
            timeout_s: Time limit in seconds; None for no limit.
            fields: The fields of keyword searches, with weights, such as ``{"title": 1}``; None for
                those of the `Schema`.
            correct: Whether typing errors are corrected, as for `Query`; None for True. The result
                says so in ``corrected``.
            interpret: Whether words that state filters become filters, as by `interpret`.
            as_of: A date or an instant: only what holds then is found, as for `Scope`. None to rank
                what holds now before what no longer does.
            known_at: Only what was known then is found; None for what is known now.
            sort: A metadata key with numbers or dates: the best ``depth`` hits come in its order,
                ascending, or descending after ``-`` as in ``"-year"``; equal ones by score, and
                those without it last.
            cursor: ``cursor`` of the page before, of the same question in the same scope.
            depth: Maximum number of hits of all pages; None for 1,000, or the engine's limit.

        Returns:
            The hits, best first, with missing legs and the trace.

        Raises:
            ConfigurationError: An argument is out of range, or the cursor is of another question.
            ScopeError: The cursor is of another scope.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check_open()
        if fields is not None:
            self._check_fields(fields, mode)
        bound = Query.of(query).but(
            filters=filters,
            scope=scope,
            timeout_s=timeout_s,
            fields=fields,
            correct=correct,
            interpret=interpret,
            as_of=as_of,
            known_at=known_at,
        )
        check_count(top_k, "top_k")
        if depth is not None:
            check_count(depth, "depth", least=top_k)

        shared = {} if collapse is None else {"collapse": collapse}

        def ranked(count: int) -> Plan[SearchResult]:
            arguments: dict[str, Any] = {"top_k": count} | shared  # Any: of different parameters
            made: Retriever | None = self._prototype(mode, arguments)
            if made is None:
                made = self.retriever(mode, filters=filters, scope=scope, **arguments)
            return search_plan(made, bound if bound.top_k is None else bound.unchecked(top_k=count))

        most, schema = self._backend.features.most_hits, self._store.field_schema
        paging = Paging.of(self._cursor_key, bound, schema, mode, collapse, most=most, sort=sort)
        return paging.page(ranked, bound.top_k or top_k, cursor=cursor, depth=depth)

    asearch = asynchronous(search)

    @blocking
    def interpret(
        self,
        question: str,
        *,
        scope: Scope | None = None,
        today: date | None = None,
        llm: "AnyLLM | None" = None,
    ) -> Plan[Interpretation]:
        """Return a question as a query and the filters that its words state.

        "comedies after 2010 with Tom Hanks, not animation" states four: by the values of the
        schema's ``facets`` that the scope can see, and its ``numbers`` and ``dates``; in English
        and Chinese, typing errors corrected. A field or a value that is not there is no filter.
        Where documents hold for a time, "valid in 2023" is the time for which it asks.
        On a server the nodes that the scope can see are read each time.

        Args:
            question: The question.
            scope: The scope of the caller.
            today: The day of "last year" and the like; None for today, in UTC.
            llm: Reads the question instead; each of its filters must exist in the same way, and
                come from words of the question, or is refused. If it fails, the answer is that
                without it.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check_open()
        return self._curation.interpretation(question, scope, today, llm)

    ainterpret = asynchronous(interpret)

    def as_retriever(
        self,
        *,
        similarity_top_k: int = 10,
        mode: Kind = "hybrid",
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        fields: Mapping[str, float] | None = None,
    ) -> Retriever:
        """Return a `retriever`; ``top_k`` has LlamaIndex's name."""
        return self.retriever(
            mode, top_k=similarity_top_k, filters=filters, scope=scope, fields=fields
        )

    def as_query_engine(
        self,
        *,
        llm: "LLM | None" = None,
        similarity_top_k: int = 10,
        mode: Kind = "hybrid",
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        fields: Mapping[str, float] | None = None,
        **arguments: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> "RetrieverQueryEngine":
        """Return LlamaIndex's query engine over `as_retriever`; it has ``query`` and ``aquery``.

        Args:
            llm: Writes the answers; required.
            similarity_top_k: Number of hits that it reads.
            mode: A kind of retriever, as for `retriever`.
            filters: Metadata conditions for every hit.
            scope: The scope of the caller.
            fields: The fields of keyword searches, with weights, as for `retriever`.
            **arguments: The other arguments of ``RetrieverQueryEngine.from_args``, such as
                ``response_mode``, ``streaming``, ``node_postprocessors`` or ``text_qa_template``.

        Raises:
            ConfigurationError: There is no LLM, or an argument is unknown.
        """
        retriever = self.retriever(
            mode, top_k=similarity_top_k, filters=filters, scope=scope, fields=fields
        )
        return query_engine(retriever, llm, arguments)

    def as_chat_engine(  # noqa: PLR0913 - as `retriever` and LlamaIndex
        self,
        *,
        llm: "LLM | None" = None,
        chat_mode: str = "condense_plus_context",
        similarity_top_k: int = 10,
        mode: Kind = "hybrid",
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        fields: Mapping[str, float] | None = None,
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
            fields: The fields of keyword searches, with weights, as for `retriever`.
            **arguments: The other arguments of the chat engine's ``from_defaults``, such as
                ``system_prompt``, ``memory`` or ``node_postprocessors``; for ``condense_question``
                also those of `as_query_engine`.

        Raises:
            ConfigurationError: There is no LLM, or the mode or an argument is unknown.
        """
        retriever = self.retriever(
            mode, top_k=similarity_top_k, filters=filters, scope=scope, fields=fields
        )
        return chat_engine(retriever, llm, chat_mode, arguments)
