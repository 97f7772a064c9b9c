"""`KnowledgeBase`: documents in, retrievers out."""
# ruff: noqa: SLF001 - a class method sets up its own object

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TransformComponent

from llama_retrieval_ext.checks import check_count, checked_call, checked_methods, of_type
from llama_retrieval_ext.embeddings.resolve import resolve_embed_model
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.knowledge_base.adding import IngestionParts
from llama_retrieval_ext.knowledge_base.browsing import Browsable
from llama_retrieval_ext.knowledge_base.correcting import Correcting
from llama_retrieval_ext.knowledge_base.curating import Curating
from llama_retrieval_ext.knowledge_base.editing import Editable
from llama_retrieval_ext.knowledge_base.facets import Faceted
from llama_retrieval_ext.knowledge_base.graph import extraction_for
from llama_retrieval_ext.knowledge_base.interpreting import Interpreting
from llama_retrieval_ext.knowledge_base.learning import Teachable
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.opening import (
    ingestion_parts,
    recorded_model,
    remove_knowledge_base,
    requested_config,
    set_up,
    with_graph,
)
from llama_retrieval_ext.knowledge_base.preparation import Preparation
from llama_retrieval_ext.knowledge_base.searching import Searchable
from llama_retrieval_ext.knowledge_base.snapshot import ReadOnlyCopy, open_copy, refresh_every
from llama_retrieval_ext.knowledge_base.splitting import Splitter
from llama_retrieval_ext.knowledge_base.storage import (
    Access,
    RequestedSetup,
    check_recorded,
    open_storage,
)
from llama_retrieval_ext.knowledge_base.weighing import Weighing, weigh
from llama_retrieval_ext.pipeline.fusion import check_languages
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.open import backend_for
from llama_retrieval_ext.text.tokenizer import Tokenizer


@checked_methods
class KnowledgeBase(Faceted, Teachable):
    """A searchable store of documents, updated by `add`, `sync` and `delete`.

    Created by `open`. Thread-safe; a process may open the same one several times.

    The *source* of a document is the file that it came from, which readers record in its metadata
    as ``file_path``; a document without one is its own source.

    Attributes:
        url: Its URL.
        require_scope: Whether every operation needs a scope.
        require_principals: Whether the scope of every read needs principals.
        embed_model: The embedding model.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     report = kb.add([Document(text="Annual leave: 25 days.", id_="leave")])
        ...     hits = kb.retriever("keyword", top_k=3).retrieve("leave days")
        >>> report.added, [hit.node.ref_doc_id for hit in hits]
        (1, ['leave'])

    """

    _copied: ReadOnlyCopy | None
    _resources: ExitStack  # closes what is open

    def __init__(self, *_: object, **__: object) -> None:
        raise ConfigurationError(
            "a knowledge base is opened, not constructed: write "
            "KnowledgeBase.open(url, embed_model=...), for instance with "
            "'embedded:./kb' and 'local'"
        )

    def _set_up(
        self,
        access: Access,
        parts: IngestionParts,
        languages: Sequence[str] | None,
        config: KnowledgeBaseConfig,
    ) -> None:
        storage, ledger = parts.storage, parts.storage.ledger
        backend = backend_for(storage.store)
        if isinstance(backend, EngineBackend):
            backend.requires_scope = access.require_scope
            backend.requires_principals = access.require_principals
            backend.keeps_history = parts.preparation.keeps_history
        self._curating = Curating(
            Correcting(
                storage.words,
                lambda scope: storage.nodes(ledger.visible_ids(scope)),
                storage.unnoted,
                storage.text_of,
                backend,
                storage.store.tokenizer,
                is_shared=not storage.is_exclusive,
            ),
            storage.words.rankings,
            ledger.rankings,
            lambda name, scope: storage.nodes(ledger.ids_named(name, scope)),
            Interpreting(
                lambda: storage.store.field_schema,
                lambda fields, scope: self.visible_values(fields, scope=scope),
                lambda scope: self.metadata_fields(scope=scope),
            ),
        )
        Searchable.__init__(
            self,
            access,
            backend,
            storage,
            parts.preparation.embed_model,
            languages=languages,
            vector_share=config.vector_share,
            cursor_key=config.cursor_key,
            curation=self._curating,
        )
        Browsable.__init__(self, access, storage)
        Editable.__init__(self, access, parts)
        if config.learned:
            self._use(config)

    @classmethod
    @checked_call
    def open(  # noqa: PLR0913 - all settings in one place
        cls,
        url: str,
        *,
        embed_model: str | BaseEmbedding | None = None,
        languages: Sequence[str] | None = None,
        require_scope: bool | None = None,
        require_principals: bool = False,
        tokenizer: Tokenizer | None = None,
        schema: Schema | None = None,
        transformations: Sequence[TransformComponent] | None = None,
        many_tenants: bool | None = None,
        store_params: Mapping[str, object] | None = None,
        must_exist: bool = False,
        read_only: bool = False,
        refresh_s: float | None = None,
        graph: Graph | None = None,
        links: PassageLinks | None = None,
        kg_extractors: Sequence[TransformComponent] | None = None,
        history: bool = False,
    ) -> Self:
        """Open the knowledge base at a URL, or create it.

        Changes interrupted by a crash are finished or undone; on a server, by the next process that
        writes.

        Engines with collections store the configuration and the list of documents in a second
        collection, whose name ends in ``__ledger``; the first is created when a document is added.
        Any number of processes may write to a knowledge base on a server at the same time. They
        wait for each other only to write the same document; the later version replaces the earlier
        one as a whole. If a process dies during a write, its documents stay claimed for 30 seconds.

        Args:
            url: ``embedded:DIRECTORY``, or ``embedded::memory:``, which is lost on close;
                ``qdrant://``, ``milvus://`` or ``elasticsearch://HOST:PORT/COLLECTION``,
                ``qdrant:DIRECTORY`` or ``milvus:FILE.db``, as for `open_store`.
            embed_model: The embedding model: a LlamaIndex object, or its notation, such as
                ``local`` or ``huggingface:NAME``; required for a new one, later the recorded model.
                None to build it from the record at its first use: the record has the provider, the
                model and the base URL of ``local``, a notation, or an object of these integrations
                with default settings, but no key. What embeds nothing needs no model, such as
                contents, deletion and keyword search.
            languages: Languages that the embedding model knows, such as ``["en"]``; None for those
                that it declares, as ``local`` does. For a question in another script, hybrid search
                weighs vectors .1 and keywords .9, unless the call gives weights. Not recorded.
            require_scope: Whether every operation needs a scope; None for the recorded setting, or
                False. If it was created with True, or its first document was added with True, it
                cannot be opened with False. True is always allowed, and applies to this object.
            require_principals: Whether reads through this object need a scope with principals.
            tokenizer: Tokenizer of keyword search; None for the recorded one, or the default.
            schema: The fields that are searched, with weights, counted and compared; None for the
                recorded one, or title, headings and everything. A changed weight applies at once; a
                new searched field after `index_fields`.
            transformations: LlamaIndex transformations for documents (not nodes); None for passages
                along headings, tables and blocks of code, of at most 512 tokens, the window of
                current encoders, with an overlap of 64, and like those of ``SentenceSplitter`` in
                texts without these. If they change, documents that are added again count as
                changed.
            many_tenants: Whether the engine groups nodes by tenant, with Milvus's
                partition key or Elasticsearch's routing. Qdrant and the embedded engine always
                index the tenant. It cannot be changed later; None for the recorded setting, or
                False.
            store_params: Settings of the engine, as for `open_store`: search settings apply to this
                object; the others are recorded, and apply when the first document creates the
                collection.
            must_exist: Whether to raise if it does not exist.
            read_only: Whether to open a copy of ``embedded:DIRECTORY``, made now in the system's
                temporary folder. Another process may write to the directory; it waits while files
                are copied. It must exist, and may be on a read-only file system. With ``graph``,
                which must be its graph and ``graph:DIRECTORY``, both are copied as of one moment;
                without, the graph is not copied. Not supported on Windows, which lacks the locks.
            refresh_s: Interval in seconds at which the copy is renewed if something was written;
                None to copy only when `refresh` is called.
            graph: A graph that is updated with it, for ``retriever("graph")`` and rules:
                ``graph:DIRECTORY``, ``graph::memory:`` for one in memory, ``neo4j://HOST/DATABASE``
                as for `open_graph`, or an object, which stays open. It stores each passage under
                its node id, with its document and its entities. Its URL is recorded and cannot
                change.
            links: With a graph, the evidence that links passages: titles that they name, entities,
                and phrases that they share; None for all three. If the entities change, documents
                that are added again count as changed.
            kg_extractors: With a graph, LlamaIndex's extractors, such as
                ``SimpleLLMPathExtractor``; their entities and relations are written to the graph.
            history: Whether updates, deletions and `sync` keep what was known before, for searches
                with ``known_at``; once True it stays so. `get` and the lists show what is known
                now. Copies keep who may see them, until `share`; `remove` deletes them.

        Raises:
            ConfigurationError: An argument is invalid, it was created with other settings, or it
                must exist and does not.
            GraphRequiredError: It has a recorded graph, and none is given.
            ModelMismatchError: It was created with another embedding model, or one with another
                dimension.
            StoreFormatError: The directory is no knowledge base, or a newer version wrote it.
            StoreUnavailableError: It cannot be reached, read or written, or another process has its
                directory open.
            MissingDependencyError: The engine's extra is not installed.
        """
        for name, value in (("require_scope", require_scope), ("many_tenants", many_tenants)):
            if value is not None:
                of_type(value, bool, name)
        for name, is_on in (("require_principals", require_principals), ("history", history)):
            of_type(is_on, bool, name)
        if schema is not None:
            of_type(schema, Schema, "schema", instead="write Schema(text={'title': 3, 'text': 1})")
        languages = None if languages is None else check_languages(languages)
        if embed_model is None and not (must_exist or read_only):
            check_recorded(url)
        model = None if embed_model is None else resolve_embed_model(embed_model)
        splitter = Splitter(transformations)
        extraction = extraction_for(graph, links, kg_extractors)
        setup = RequestedSetup(tokenizer, many_tenants, store_params, must_exist)
        kb = cls.__new__(cls)
        with ExitStack() as resources:  # what is open is closed again if the rest fails
            copied = open_copy(url, graph, read_only=read_only, refresh_s=refresh_s)
            if copied is not None:
                resources.callback(copied.close)
            stored, graph = (url, graph) if copied is None else (copied.url, copied.graph)
            storage = with_graph(open_storage(stored, setup), graph, links, url, resources)
            requested = requested_config(
                embed_model, model, require_scope=require_scope, schema=schema, history=history
            )
            config = set_up(storage, requested)
            model = recorded_model(config) if model is None else model
            preparation = Preparation(splitter, model, extraction, config.history)
            parts = ingestion_parts(storage, preparation, extracts=bool(kg_extractors))
            access = Access(
                url,
                require_scope=storage.ledger.requires_scope,
                require_principals=require_principals,
                is_copy=copied is not None,
            )
            kb._set_up(access, parts, languages, config)
            kb._copied, kb._resources = copied, resources.pop_all()
        if refresh_s is not None:
            refresh_every(refresh_s, kb.refresh, kb._resources)
        return kb

    def weigh(
        self, *, count: int = 200, sample: int = 5000, seed: int = 0, scope: Scope | None = None
    ) -> Weighing:
        """Measure how much vector search helps here, and record its share in hybrid search.

        Sentences of passages ask for the rest of their passage, by vectors and by keywords; no
        labels and no LLM are needed. The share holds for ``hybrid``, and for what contains it,
        wherever the knowledge base is opened from now on, unless a call gives weights. Measure
        again after much has changed.

        It cannot see that questions are in another language than the passages: on CosQA, English
        questions about Python, MiniLM alone stays .024 nDCG@10 ahead of hybrid search.

        Args:
            count: Maximum number of questions; each embeds two texts.
            sample: Maximum number of passages to search.
            seed: Seed for the choice of passages and sentences.
            scope: The passages to measure on; None for all.

        Returns:
            The share, with the quality of both searches.

        Raises:
            ConfigurationError: A number is below 1, fewer than 20 passages have two sentences, or
                it was opened with ``read_only=True``.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check_writable()
        check_count(count, "count")
        nodes = self.nodes(scope=scope, limit=sample)
        store = self._storage.store
        measured = weigh(nodes, self.embed_model, like=store, count=count, seed=seed)
        share = measured.vector_share
        self._record_share(share)
        return measured

    remove = staticmethod(remove_knowledge_base)

    def refresh(self) -> bool:
        """Copy a knowledge base opened with ``read_only=True`` again if it has changed.

        Searches continue meanwhile; existing retrievers use the new copy, too.

        Returns:
            Whether something was written since the last copy.

        Raises:
            ConfigurationError: It was opened for writing, and is always up to date.
            StoreUnavailableError: It cannot be read, or there is no disk space for the copy.
        """
        with self._storage.lock:
            self._check_open()
            if self._copied is None:
                raise ConfigurationError(f"{self.url} is no copy: leave refresh() out")
            changed = self._copied.refresh(self._storage)
            if changed:
                self._storage.words.forget()
                self._parts.writer.settle()
            return changed

    def close(self) -> None:
        """Close the store after pending writes; a second call is a no-op."""
        with self._storage.lock:
            self._access.is_closed = True
            self._storage.words.forget()  # another process may write to it from now on
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
