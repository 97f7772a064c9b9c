"""`KnowledgeBase`: documents in, retrievers out."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import check_count, checked_call, of_type
from llama_retrieval_ext.embeddings.resolve import (
    embed_model_dimension,
    embed_model_name,
    resolve_embed_model,
)
from llama_retrieval_ext.errors import (
    ConfigurationError,
    RetrievalExtError,
    ScopeRequiredError,
    StoreClosedError,
)
from llama_retrieval_ext.ingest.add import Addition, IngestionParts
from llama_retrieval_ext.ingest.contents import Contents, batches
from llama_retrieval_ext.ingest.info import KnowledgeBaseInfo, describe_knowledge_base
from llama_retrieval_ext.ingest.ledger import (
    Entry,
    KnowledgeBaseConfig,
    Ledger,
    StoredDocument,
    StoredSource,
)
from llama_retrieval_ext.ingest.report import IngestionReport
from llama_retrieval_ext.ingest.scope_guard import GuardedBackend
from llama_retrieval_ext.ingest.searching import Searchable
from llama_retrieval_ext.ingest.storage import (
    RequestedSetup,
    Storage,
    open_storage,
    opened_ledger,
    remove_knowledge_base,
    writer_of,
)
from llama_retrieval_ext.ingest.transform import Splitter
from llama_retrieval_ext.query import Scope, check_scope
from llama_retrieval_ext.stores.open import backend_for
from llama_retrieval_ext.text.tokenizer import Tokenizer


class KnowledgeBase(Searchable):
    """Documents in a store that can be searched, kept in step with what was added.

    Made by `open`. It may be used from several threads, and opened more than once in a process.

    The *source* of a document is the file that it came from, which readers note in its metadata as
    ``file_path``; a document without one is its own source.

    Attributes:
        url: Where it lives.
        require_scope: Whether everything needs a scope.

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
        self, url: str, *, place: Storage, ledger: Ledger, workshop: IngestionParts
    ) -> None:
        self.url = url
        self.require_scope = ledger.requires_scope
        self._place = place
        self._ledger = ledger
        self._contents = Contents(place.store, ledger)
        self._workshop = workshop
        backend = backend_for(place.store)
        self._backend = GuardedBackend(backend) if self.require_scope else backend
        self._is_closed = False

    @classmethod
    @checked_call
    def open(  # noqa: PLR0913 - what makes a knowledge base, in one place
        cls,
        url: str,
        *,
        embed_model: str | BaseEmbedding | None = None,
        require_scope: bool | None = None,
        tokenizer: Tokenizer | None = None,
        transformations: Sequence[TransformComponent] | None = None,
        many_tenants: bool | None = None,
        store_params: Mapping[str, object] | None = None,
        must_exist: bool = False,
    ) -> Self:
        """The knowledge base at a URL, made if there is none.

        What a crash left half done is finished or undone; on a server, by the next one who writes.

        In the engines that have collections, what a knowledge base knows about itself and its
        documents lies in a second one, whose name ends in ``__ledger``; the first is made when a
        document is added. Any number of processes may have one on a server open; one may write at a
        time. Another waits until a batch is written, or for 30 seconds if who began it is dead.

        Args:
            url: ``embedded:DIRECTORY``, or ``embedded::memory:`` for one that is gone when closed;
                ``qdrant://``, ``milvus://`` or ``elasticsearch://HOST:PORT/COLLECTION``,
                ``qdrant:DIRECTORY`` or ``milvus:FILE.db``, as for `open_store`.
            embed_model: The embedding model: a LlamaIndex object, or its notation, such as
                ``local`` or ``huggingface:NAME``. Always needed; the one it was made with.
            require_scope: Whether everything done with it needs a scope; None for what it was
                made with, or no. One that was made so, or whose first document was added so, cannot
                be opened with False; another may be opened with True, and this object then insists.
            tokenizer: For keyword search; None for the recorded one, or the default.
            transformations: What documents (not nodes) go through, in LlamaIndex's ingestion
                pipeline; None for a ``SentenceSplitter`` of 512 tokens, which is what current
                encoders read, with an overlap of 64. With others, documents that are added again
                count as changed.
            many_tenants: Whether the engine keeps the nodes of a tenant together, by its own
                means: Milvus's partition key, Elasticsearch's routing. Qdrant and the embedded
                engine have an index on the tenant in any case. What it was made with cannot be
                changed; None for that, or no.
            store_params: Settings of the engine, as for `open_store`: those for searches count for
                this object, the others when the collection is made, with the first document. Until
                then they are remembered.
            must_exist: Whether it is an error if there is none.

        Raises:
            ConfigurationError: An argument cannot work, it was made with other settings, or there
                is none that must be.
            ModelMismatchError: It was made with another embedding model, or with one whose vectors
                have another dimension.
            StoreFormatError: The directory holds something else, or a newer version wrote it.
            StoreUnavailableError: It cannot be reached, read or written, or another process has its
                directory open.
            MissingDependencyError: The engine's extra is not installed.
        """
        if embed_model is None:
            raise ConfigurationError(
                "KnowledgeBase.open needs embed_model=, there is no default: a LlamaIndex "
                "embedding model, or 'local' (no network, extra 'local'), 'huggingface:NAME', ..."
            )
        for name, value in (("require_scope", require_scope), ("many_tenants", many_tenants)):
            if value is not None:
                of_type(value, bool, name)
        model = resolve_embed_model(embed_model)
        splitter = Splitter(transformations)
        setup = RequestedSetup(tokenizer, many_tenants, store_params, must_exist)
        place = open_storage(url, setup)
        try:
            asked = KnowledgeBaseConfig(
                embed_model_name(model),
                place.tokenizer,
                require_scope=require_scope,
                dimension=embed_model_dimension(model),
                params=place.params,
            )
            ledger = opened_ledger(place, asked, url)
        except BaseException:
            place.close()
            raise
        workshop = IngestionParts(splitter, model, writer_of(place, ledger), ledger)
        kb = cls.__new__(cls)
        kb._set_up(url, place=place, ledger=ledger, workshop=workshop)  # noqa: SLF001 - of its own
        return kb

    @classmethod
    def remove(cls, url: str) -> None:
        """Remove a knowledge base: all its documents, and what it knows about them.

        Nothing is removed that is not a knowledge base, or that somebody is writing to. When it is
        interrupted, what is left can be neither opened nor searched, and is removed by calling this
        again. A folder goes with it, unless something else is in it; the files that Qdrant's local
        mode and Milvus Lite keep their collections in stay. Objects that other processes have open
        find nothing any more, and get an error when they write.

        Args:
            url: As for `open`; no embedding model is needed.

        Raises:
            ConfigurationError: There is no knowledge base.
            StoreFormatError: There is something else, or a newer version wrote it.
            StoreUnavailableError: It is open in this process or, on a server, somebody has written
                to it in this moment; it cannot be reached, or another process has its directory
                open. A writer that died counts as writing for half a minute.
            MissingDependencyError: The engine's extra is not installed.

        Examples:
            >>> KnowledgeBase.remove("embedded:./none")  # doctest: +ELLIPSIS
            Traceback (most recent call last):
                ...
            llama_retrieval_ext.errors.ConfigurationError: there is no knowledge base at embed...

        """
        remove_knowledge_base(url)

    @property
    def embed_model(self) -> BaseEmbedding:
        """The model that makes its vectors."""
        return self._workshop.embed_model

    def add(
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        show_progress: bool = True,
    ) -> IngestionReport:
        """Add documents, or replace those that have changed; what is there already stays.

        A document that fails is reported, and the others go in. Whatever happens, each document is
        stored as a whole or not at all, and its old version stays until the new one is there.

        Args:
            documents: LlamaIndex documents, which are split; nodes, which are taken as they are,
                with their embedding if they carry one; or both, from a list or an iterator. An
                iterator is read in batches, and has the nodes of a document in a row. A document
                is known by its id, and LlamaIndex makes up a random one: to add the same document
                again, give it an id, or read files with `read_documents`. Documents with random ids
                and a ``file_path`` in their metadata, as from ``SimpleDirectoryReader``, are known
                by their file and page, or their number within the file; parts that a file no longer
                has stay until `delete`. Nodes belong to the document that ``ref_doc_id`` names, and
                replace all it had.
            scope: Where the documents belong: a tenant, a knowledge base, or both. It goes into the
                metadata of the nodes. The same id in another scope is another document.
            show_progress: Whether there is a progress bar, on standard error.

        Returns:
            What came of each document; ``raise_for_failures()`` if you would rather have an error.

        Warns:
            UnstableIdWarning: Once: an id is random, and it cannot be said which part of which file
                the document is.

        Raises:
            ConfigurationError: Something is neither a document nor a node.
            ScopeRequiredError: The knowledge base requires a scope.
            ModelMismatchError: The embedding model gives vectors of another dimension.
            StoreUnavailableError: There is no room, or no right to write; what was added before
                stays.
        """
        self._check(scope)
        metadata = {} if scope is None else scope.metadata()
        return Addition(self._workshop, metadata).run(documents, show_progress=show_progress)

    async def aadd(
        self,
        documents: Iterable[BaseNode],
        *,
        scope: Scope | None = None,
        show_progress: bool = True,
    ) -> IngestionReport:
        """`add` in a thread."""
        return await asyncio.to_thread(
            self.add, documents, scope=scope, show_progress=show_progress
        )

    def delete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """Delete all documents of a source, such as the pages of a PDF, or a single document.

        Args:
            source_or_id: The path of the file, as in ``file_path`` of its nodes, or the id of a
                document.
            scope: Whose it is: with this name, all that the scope can see are deleted. Without
                one, only what is in no scope.

        Returns:
            How many documents are gone; 0 where there is no such source or document.

        Raises:
            ConfigurationError: The name is empty.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        if not isinstance(source_or_id, str) or not source_or_id:
            raise ConfigurationError(
                f"delete needs the path of a file or the id of a document, got {source_or_id!r}"
            )
        with self._place.lock:
            self._workshop.writer.settle()
            return self._delete(self._ledger.named(source_or_id, scope))

    async def adelete(self, source_or_id: str, *, scope: Scope | None = None) -> int:
        """`delete` in a thread."""
        return await asyncio.to_thread(self.delete, source_or_id, scope=scope)

    def delete_where(self, filters: MetadataFilters, *, scope: Scope | None = None) -> int:
        """Delete the documents that have a node which satisfies filters.

        Args:
            filters: Conditions on metadata, as for a search.
            scope: Whose documents; without one, everybody's.

        Returns:
            How many documents are gone, each with all its nodes.

        Raises:
            InvalidFilterError: The filters cannot mean anything, such as none.
            UnsupportedFilterError: The engine cannot evaluate them.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        with self._place.lock:
            return self._delete(self._contents.matching(filters, scope))

    def clear(self, *, scope: Scope | None = None) -> int:
        """Delete all documents that a scope can see; without a scope, all.

        Its settings stay, and what it is set up with in its engine: to be rid of these as well,
        `remove` it. Interrupted, some documents are deleted, and the others whole.

        Returns:
            How many documents are gone.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        with self._place.lock:
            gone = self._delete(self._ledger.visible(scope))
            if gone and not self._ledger.count()[1]:
                self._place.compact()
        return gone

    def compact(self) -> int:
        """Give back the disk space of what was deleted or replaced, on the embedded engine.

        It copies what there is, which takes room for both, and about 0.1 ms a node; searches go on
        meanwhile, and who adds waits. Servers do this by themselves; in the files of Qdrant's local
        mode and Milvus Lite nothing happens.

        Returns:
            How many bytes fewer it takes.

        Raises:
            StoreUnavailableError: There is no room for the copy; nothing has changed.
        """
        self._check_open()
        return self._place.compact()

    def get(self, source_or_id: str, *, scope: Scope | None = None) -> list[BaseNode]:
        """The nodes of all documents of a source, or of a single document, with their embeddings.

        Args:
            source_or_id: The path of the file, or the id of a document.
            scope: Whose it is, as for `delete`.

        Returns:
            Document by document as they came in; within one in the order of the text, where nodes
            say where they stand in it, and by node id. Empty where there is no such source or
            document.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        return self._contents.nodes(source_or_id, scope)

    def sources(self, *, scope: Scope | None = None) -> list[StoredSource]:
        """The sources that a scope can see, by name; without a scope, all.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        return self._ledger.sources(scope)

    def metadata_fields(
        self, *, scope: Scope | None = None, sample: int = 1000
    ) -> dict[str, dict[str, int]]:
        """Which metadata keys nodes have, and how many values of each type.

        Args:
            scope: Whose nodes; without one, everybody's.
            sample: How many nodes to look at, at least 1. They are the first by node id; ids that
                `add` makes up are random, so that these come from everywhere.

        Returns:
            For each key the types of its values (``str``, ``int``, ``float``, ``bool``, ``list``,
            ``dict`` or ``null``), with the number of nodes in the sample that have one.

        Raises:
            ConfigurationError: ``sample`` is below 1.
            ScopeRequiredError: The knowledge base requires a scope.

        Examples:
            >>> from llama_index.core import Document, MockEmbedding
            >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
            ...     _ = kb.add([Document(text="leave", metadata={"year": 2024})])
            ...     kb.metadata_fields()
            {'year': {'int': 1}}

        """
        self._check(scope)
        return self._contents.metadata_fields(scope, sample=check_count(sample, "sample"))

    def info(self) -> KnowledgeBaseInfo:
        """What it is and how much is in it, whoever can see it.

        Raises:
            StoreUnavailableError: The server does not answer.
        """
        self._check_open()
        return describe_knowledge_base(
            self.url,
            self._ledger,
            embed_model=embed_model_name(self.embed_model),
            require_scope=self.require_scope,
        )

    def documents(self, *, scope: Scope | None = None) -> list[StoredDocument]:
        """The documents that a scope can see, by id; without a scope, all.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        return self._ledger.documents(scope)

    def count(self, *, scope: Scope | None = None) -> int:
        """How many nodes a scope can see; without a scope, all.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._check(scope)
        if scope is None:
            return self._ledger.count()[1]
        return sum(document.n_nodes for document in self._ledger.documents(scope))

    def close(self) -> None:
        """Let go of the store, once what is being written is; twice does no harm."""
        with self._place.lock:
            if not self._is_closed:
                self._is_closed = True
                self._ledger.close()
                self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        facts = self._facts()
        shown = [
            repr(facts["url"]),
            *([str(facts["state"])] if "state" in facts else []),
            *(f"{facts[what]} {what}" for what in ("documents", "nodes") if what in facts),
            *([repr(facts["model"])] if "model" in facts else []),
        ]
        return f"KnowledgeBase({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.ingestion import facts_html  # noqa: PLC0415 - a view

        return facts_html("KnowledgeBase", self._facts())

    def _facts(self) -> dict[str, object]:
        """What there is to show of it, by name."""
        if self._is_closed:
            return {"url": self.url, "state": "closed"}
        model = embed_model_name(self.embed_model)
        try:
            documents, nodes = self._ledger.count()
        except RetrievalExtError as error:  # a server that is down is no reason not to be shown
            return {"url": self.url, "state": type(error).__name__, "model": model}
        counts = {"documents": documents, "nodes": nodes}
        return {"url": self.url, **counts, "model": model, "requires scope": self.require_scope}

    def _delete(self, entries: Sequence[Entry]) -> int:
        for batch in batches(entries):
            self._workshop.writer.delete([each.key for each in batch])
        return len(entries)

    def _check(self, scope: Scope | None) -> None:
        self._check_open()
        if scope is not None:
            check_scope(scope)
        if self.require_scope and scope is None:
            raise ScopeRequiredError(
                f"{self.url} requires a scope; pass scope=Scope(...), or on the command line "
                "--tenant or --kb-id"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")
