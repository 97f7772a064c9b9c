"""`KnowledgeBase`: documents in, retrievers out."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from llama_retrieval_ext.knowledge_base.browsing import Browsable
from llama_retrieval_ext.knowledge_base.calibration import CANDIDATES, QUESTIONS, Calibrations
from llama_retrieval_ext.knowledge_base.changes import Changes
from llama_retrieval_ext.knowledge_base.documents import Allowed
from llama_retrieval_ext.knowledge_base.opening import Opened, Opening
from llama_retrieval_ext.knowledge_base.removal import remove_knowledge_base
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.knowledge_base.searching import Searchable
from llama_retrieval_ext.knowledge_base.snapshot import refresh_every
from llama_retrieval_ext.knowledge_base.storage import RequestedSetup
from llama_retrieval_ext.knowledge_base.syncing import Syncable
from llama_retrieval_ext.pipeline.leg_weights import check_languages
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.confidence import Calibration
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.stores.engine.engine_backend import EngineBackend
from llama_retrieval_ext.stores.open import backend_for
from llama_retrieval_ext.text.tokenizer import Tokenizer


class KnowledgeBase(Searchable, Browsable, Syncable):
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

    def __init__(self, *_: object, **__: object) -> None:
        raise ConfigurationError(
            "a knowledge base is opened, not constructed: write "
            "KnowledgeBase.open(url, embed_model=...), for instance with "
            "'embedded:./kb' and 'local'"
        )

    def _set_up(
        self, opened: Opened, refresh_s: float | None, languages: Sequence[str] | None
    ) -> None:
        access, storage, ledger = opened.access, opened.storage, opened.ledger
        backend = backend_for(storage.store)
        if isinstance(backend, EngineBackend):
            backend.requires_scope = access.require_scope
            backend.requires_principals = access.require_principals
        # One object for all retrievers: a later calibration counts in each at once.
        self._calibrations = Calibrations(storage, ledger)
        Searchable.__init__(
            self,
            access,
            backend,
            opened.parts.preparation.embed_model,
            languages=languages,
            graphs=None if storage.graph is None else storage.graph.graphs,
            confidence=self._calibrations,
        )
        Browsable.__init__(self, access, storage, ledger)
        self._changes = Changes(access, storage, opened.parts)
        Syncable.__init__(self, access.url, self._changes)
        self._copied = opened.copied
        self._resources = opened.resources
        if refresh_s is not None:
            refresh_every(refresh_s, self.refresh, self._resources)

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
        transformations: Sequence[TransformComponent] | None = None,
        many_tenants: bool | None = None,
        store_params: Mapping[str, object] | None = None,
        must_exist: bool = False,
        read_only: bool = False,
        refresh_s: float | None = None,
        graph: Graph | None = None,
        links: PassageLinks | None = None,
        kg_extractors: Sequence[TransformComponent] | None = None,
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
        of_type(require_principals, bool, "require_principals")
        known = None if languages is None else check_languages(languages)
        opening = Opening(
            url=url,
            embed_model=embed_model,
            require_scope=require_scope,
            require_principals=require_principals,
            setup=RequestedSetup(tokenizer, many_tenants, store_params, must_exist),
            transformations=transformations,
            read_only=read_only,
            refresh_s=refresh_s,
            graph=graph,
            links=links,
            kg_extractors=kg_extractors,
        )
        kb = cls.__new__(cls)
        kb._set_up(opening.open(), refresh_s, known)  # noqa: SLF001 - of its own
        return kb

    remove = staticmethod(remove_knowledge_base)

    def add(
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        allowed: Allowed = None,
        show_progress: bool = True,
    ) -> IngestionReport:
        """Add new documents, replace changed ones and skip unchanged ones.

        A document that fails is reported, and the others are stored. Each document is stored
        atomically, also after a crash: its old version stays until the new one is stored.

        Args:
            documents: LlamaIndex documents, which are split; nodes, which are stored unchanged,
                with their embedding if they have one; or both, from a list or an iterator. An
                iterator is read in batches, and must yield the nodes of a document consecutively. A
                document is identified by its id, which LlamaIndex generates at random: to add the
                same document again, set its id, or read files with `read_documents`. Documents with
                random ids and a ``file_path`` in their metadata, as from ``SimpleDirectoryReader``,
                are identified by file and page, or their number within the file; parts that a file
                no longer has stay until `delete`. Nodes belong to the document in their
                ``ref_doc_id``, and replace all its earlier nodes.
            scope: The tenant or knowledge base, or both, that the documents belong to. It is stored
                in the metadata of the nodes. The same id in another scope is another document. A
                scope with principals cannot add.
            allowed: Who may see the documents, as principals of scopes: a list, or a function of a
                document; None for the list in its metadata under ``allowed``. Without any, a new
                document is visible to everyone in its scope, and a stored one keeps whom it names
                (see `share`). If only this changes, nothing is embedded.
            show_progress: Whether to show a progress bar on standard error.

        Returns:
            The outcome of each document; call ``raise_for_failures()`` for an error instead.

        Warns:
            UnstableIdWarning: Raised once if an id is random and the metadata has no file and part
                to identify the document.

        Raises:
            ConfigurationError: An item is neither a document nor a node.
            ScopeRequiredError: The knowledge base requires a scope.
            ModelMismatchError: The embedding model gives vectors of another dimension.
            StoreUnavailableError: There is no disk space or write permission, or another process
                keeps writing the same documents; documents added before stay.
        """
        addition = self._changes.addition(scope, allowed)
        return addition.run(documents, show_progress=show_progress)

    async def aadd(
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        allowed: Allowed = None,
        show_progress: bool = True,
    ) -> IngestionReport:
        """Run `add` in a thread."""
        return await asyncio.to_thread(
            self.add, documents, scope=scope, allowed=allowed, show_progress=show_progress
        )

    def share(
        self, source_or_id: str, *, allowed: Iterable[str] | None, scope: Scope | None = None
    ) -> int:
        """Change who may see a document or a source, from the next query on; embed nothing.

        Args:
            source_or_id: The path of the file or the id of a document, as for `delete`.
            allowed: The principals who may see them; None for everyone in their scope.
            scope: As for `delete`.

        Returns:
            The number of documents.

        Raises:
            ConfigurationError: ``allowed`` is empty, or not a list of names.
            StoreError: A document is incomplete in the store.
        """
        return self._changes.share(source_or_id, allowed, scope)

    async def ashare(
        self, source_or_id: str, *, allowed: Iterable[str] | None, scope: Scope | None = None
    ) -> int:
        """Run `share` in a thread."""
        return await asyncio.to_thread(self.share, source_or_id, allowed=allowed, scope=scope)

    def delete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """Delete a document, or all documents of a source, such as the pages of a PDF.

        Args:
            source_or_id: The path of the file, as in ``file_path`` of its nodes or relative to the
                working directory, or the id of a document.
            scope: Delete all documents of this name that are visible to it; None for only those in
                no scope.

        Returns:
            The number of deleted documents; 0 if there is no such source or document.

        Raises:
            ConfigurationError: The name is empty.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        return self._changes.delete(source_or_id, scope)

    async def adelete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """Run `delete` in a thread."""
        return await asyncio.to_thread(self.delete, source_or_id, scope=scope)

    def delete_where(self, filters: MetadataFilters, *, scope: Scope | None = None) -> int:
        """Delete the documents with a node that satisfies the filters.

        Args:
            filters: Conditions on metadata, as for a search.
            scope: Delete only documents visible to it; None for all.

        Returns:
            The number of deleted documents, each with all its nodes.

        Raises:
            InvalidFilterError: The filters are empty or malformed.
            UnsupportedFilterError: The engine cannot evaluate them.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        return self._changes.delete_where(filters, scope)

    def clear(self, *, scope: Scope | None = None) -> int:
        """Delete all documents visible to a scope; without a scope, all documents.

        Settings and collections stay; `remove` deletes them, too. If it is interrupted, some
        documents are deleted, and the others are intact.

        Returns:
            The number of deleted documents.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        return self._changes.clear(scope)

    def compact(self) -> int:
        """Free the disk space of deleted and replaced nodes, on the embedded engine and graph.

        It copies all nodes: this needs disk space for both copies and about 0.2 ms per node. BM25
        gets the mean text length of these nodes, so call it when the texts have changed much.
        Searches continue meanwhile, and writers wait. Servers compact automatically; for the files
        of Qdrant's local mode and Milvus Lite it is a no-op.

        Returns:
            The number of bytes freed.

        Raises:
            StoreUnavailableError: There is no disk space for the copy; nothing has changed.
        """
        return self._changes.compact()

    def calibrate(
        self, *, scope: Scope | None = None, questions: int = QUESTIONS, seed: int = 0
    ) -> Calibration:
        """Calibrate the confidence of answers with questions from its own sentences.

        After it, results of hybrid search have a ``confidence``, and ``Threshold(confidence=...)``
        works behind such a retriever. The questions are generated from sentences of random nodes,
        without labels or an LLM. Each is searched once and counted twice: with its node among the
        candidates and without. The cost is about 10 ms per question, whatever the number of nodes.
        The result is stored in the ledger; other objects read it when they open the knowledge base,
        and copies when they are refreshed. Calibrate again when half of the collection has changed.

        A calibration applies only to queries of its scope, and uses only nodes visible to that
        scope: the confidence of one tenant's answers does not reveal another tenant's nodes. The
        calibration without a scope applies to queries without one.

        Args:
            scope: The scope of the queries.
            questions: Maximum number of questions; at least 20.
            seed: Random seed of the choice of nodes and words.

        Returns:
            The calibration.

        Raises:
            ConfigurationError: ``questions`` is below 20, or fewer than 20 nodes have a sentence of
                five different words.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check_writable()
        self._access.check(scope)
        retriever = HybridRetriever(
            self._backend, embed_model=self.embed_model, top_k=1, scope=scope, candidates=CANDIDATES
        )
        return self._calibrations.calibrate(retriever, questions, seed)

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
            changed = self._copied.refresh(self._storage, self._ledger)
            if changed:
                self._changes.settle()
                self._calibrations.read()
            return changed

    def close(self) -> None:
        """Close the store after pending writes; a second call is a no-op."""
        with self._storage.lock:
            self._access.is_closed = True
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
