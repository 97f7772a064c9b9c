"""In-process keyword search on bm25s, for nodes or a docstore."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict, Unpack

from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.indices.base import BaseIndex
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.utils import get_tqdm_iterable
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call, one_top_k
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.execution.context import call, note_degraded, note_hint, note_inquiry, step
from llama_retrieval_ext.execution.hints import Metadata, Passages, note_keys
from llama_retrieval_ext.execution.plan import Call, Plan, finished
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.formulas.normalisation import min_max
from llama_retrieval_ext.hits import node_copy
from llama_retrieval_ext.parameters import Count
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.bm25.docstore_sync import DocstoreFollower, DocstoreLimits
from llama_retrieval_ext.retrievers.bm25.index import KeywordIndex
from llama_retrieval_ext.retrievers.bm25.llama_index_arguments import Stemmer, tokenizer_for
from llama_retrieval_ext.retrievers.bm25.persistence import BM25Settings, Header, read, write
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.stores.open import StoreNodes
from llama_retrieval_ext.text.tokenizer import Tokenizer


class BM25Options(TypedDict, total=False):
    """Keyword arguments of `BM25Retriever`, documented there."""

    top_k: int
    tokenizer: Tokenizer | None
    filters: MetadataFilters | None
    scope: Scope | None
    normalise: bool
    k1: float
    b: float
    name: str


class DocstoreOptions(BM25Options, total=False):
    """Keyword arguments of `BM25Retriever.from_docstore`, documented there."""

    cache_ttl_s: float | None
    max_chunks: int | None
    show_progress: bool


class BM25Retriever(Retriever):
    """Retriever of nodes that share terms with the query, ranked by BM25 in this process.

    Suitable for up to some hundred thousand nodes; for more, or to keep them on disk, use a store
    and its ``KeywordRetriever``. The searched text is the one that LlamaIndex would embed (text and
    metadata), without the names of tenant and knowledge base.

    Scores are raw BM25, above 0 and unbounded, by the formula of the embedded engine: Lucene's
    times the constant ``k1 + 1`` (`formulas.bm25`; to bm25s ``method="atire"`` with
    ``idf_method="lucene"``). A repeated term in the query counts each time.

    Term and length statistics cover all nodes, for any scope: scores, but not hits, depend on the
    nodes of other tenants. If that matters, use one retriever per tenant, or the embedded engine,
    which counts by scope.

    The index is that of bm25s, which cannot be changed in place: the first query after an addition
    or a deletion builds it again, which takes about a second for 20,000 nodes of 70 words, and
    other queries wait for it. Change many nodes in one call.

    Thread-safe, also while nodes are added and deleted: a query sees a change completely or not at
    all.

    Args:
        nodes: Nodes to search; for a repeated id the last one counts.
        top_k: Number of hits if the query sets none, at least 1.
        similarity_top_k: LlamaIndex's name of ``top_k``; pass one of them.
        tokenizer: Tokenizer of nodes and queries; the default is for English, Chinese and code.
        filters: Conditions on metadata that every hit satisfies.
        scope: Scope that limits every query.
        normalise: Whether to scale the scores of an answer to [0, 1], with 0 for its last hit. They
            then depend on ``top_k`` and cannot be compared across queries.
        k1: Saturation of repeated terms: larger saturates later; 1.2 as in Lucene.
        b: Effect of the document length, from 0 to 1; 0.75 as in Lucene.
        name: Name in traces and ``Hit.source``; ``bm25`` unless given.

    Raises:
        ConfigurationError: A number is out of range, or an item of ``nodes`` is not a node.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> nodes = [TextNode(id_="n1", text="年假 annual leave"), TextNode(id_="n2", text="Lunch")]
        >>> retriever = BM25Retriever(nodes)
        >>> [hit.node_id for hit in retriever.retrieve("how is 年假 counted?")]
        ['n1']
        >>> retriever.add([TextNode(id_="n3", text="Leave the room")])
        >>> [hit.node_id for hit in retriever.retrieve("leaves")]
        ['n3', 'n1']

    """

    _unrecorded: ClassVar = frozenset({"nodes"})  # the index holds the current ones

    def __init__(  # noqa: PLR0913 - the four that every retriever has, and what BM25 depends on
        self,
        nodes: Iterable[BaseNode] = (),
        *,
        top_k: Count = 10,
        similarity_top_k: int | None = None,
        tokenizer: Tokenizer | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        normalise: bool = False,
        k1: float = 1.2,
        b: float = 0.75,
        name: str = "bm25",
    ) -> None:
        hits = one_top_k(top_k, similarity_top_k)
        super().__init__(top_k=hits, filters=filters, scope=scope, name=name)
        self.normalise = normalise
        words = Tokenizer() if tokenizer is None else tokenizer
        self._index = KeywordIndex(words, k1=k1, b=b)
        self._index.replace(nodes=nodes)
        self._follower: DocstoreFollower | None = None
        self._limits: DocstoreLimits | None = None

    @classmethod
    def from_docstore(
        cls,
        docstore: BaseDocumentStore | StoreNodes,
        *,
        cache_ttl_s: float | None = 60.0,
        max_chunks: int | None = None,
        show_progress: bool = False,
        **options: Unpack[BM25Options],  # typed, and written down once, in the class
    ) -> Self:
        """Return a retriever over the nodes of a docstore that follows changes of the docstore.

        Only changed nodes are read again. `refresh` checks for changes immediately.

        Args:
            docstore: Any LlamaIndex docstore.
            cache_ttl_s: Seconds for which answers may miss a change. 0 checks at every query, which
                costs a request to the docstore (3 ms for 20,000 nodes in memory); None never checks
                again.
            max_chunks: Maximum number of nodes in the docstore; more raise an error. If it grows
                beyond this later, queries ignore the nodes added after that, and every answer is
                marked degraded with this reason.
            show_progress: Whether to show a progress bar during this indexing.
            options: Keyword arguments of the class.

        Raises:
            ConfigurationError: A value is out of range, or the docstore has too many nodes.
        """
        retriever = cls((), **options)
        retriever._limits = DocstoreLimits(cache_ttl_s, max_chunks)
        retriever._follow(docstore, retriever._limits, show_progress=show_progress)
        return retriever

    @classmethod
    def from_index(
        cls,
        index: BaseIndex[Any],  # Any: of any structure
        **options: Unpack[DocstoreOptions],
    ) -> Self:
        """Return a retriever over the docstore of a LlamaIndex index; see `from_docstore`.

        The whole docstore is searched, including nodes that ``index.delete_ref_doc`` leaves there
        without ``delete_from_docstore=True``.

        Args:
            index: Any LlamaIndex index.
            options: Keyword arguments of `from_docstore`.

        Raises:
            ConfigurationError: The index keeps its nodes in its vector store and has none in its
                docstore.
        """
        retriever = cls.from_docstore(index.docstore, **options)
        elsewhere = isinstance(index, VectorStoreIndex) and index.vector_store.stores_text
        if elsewhere and not retriever._index.entries:  # noqa: SLF001 - our own
            raise ConfigurationError(
                "this index keeps its nodes in its vector store and its docstore is empty; build "
                "it with store_nodes_override=True, write BM25Retriever(nodes), or use "
                "KeywordRetriever if the store has keyword search"
            )
        return retriever

    @classmethod
    @checked_call
    def from_defaults(  # noqa: PLR0913 - LlamaIndex's arguments
        cls,
        index: BaseIndex[Any] | None = None,
        nodes: Iterable[BaseNode] | None = None,
        docstore: BaseDocumentStore | None = None,
        *,
        stemmer: Stemmer | None = None,
        language: str | Sequence[str] | None = "en",
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        verbose: bool = False,
        skip_stemming: bool = False,
        filters: MetadataFilters | None = None,
    ) -> Self:
        """Return a retriever from LlamaIndex's own arguments, so that only the import changes.

        LlamaIndex's ``token_pattern`` and deprecated ``tokenizer`` do not exist: the tokenizer is
        not a pattern.

        Args:
            index: Index whose docstore is searched; see `from_index`. Pass it, nodes or a docstore.
            nodes: Nodes to search.
            docstore: Docstore to search; see `from_docstore`.
            stemmer: Not needed: must be the stemmer of the language.
            language: Language of the texts, by its bm25s name. Words are stemmed (in LlamaIndex
                only for English), and stop words removed from queries. A list gives stop words.
            similarity_top_k: ``top_k``, at least 1; 2 as in LlamaIndex.
            verbose: Whether to show a progress bar during indexing.
            skip_stemming: Whether to skip stemming.
            filters: Conditions on metadata that every hit satisfies.

        Raises:
            ConfigurationError: An argument is not supported.
        """
        if sum(source is not None for source in (index, nodes, docstore)) != 1:
            raise ConfigurationError("give exactly one of index, nodes and docstore")
        tokenizer = tokenizer_for(language, stemmer=stemmer, skip_stemming=skip_stemming)
        options = BM25Options(top_k=similarity_top_k, tokenizer=tokenizer, filters=filters)
        if index is not None:
            return cls.from_index(index, show_progress=verbose, **options)
        if docstore is not None:
            return cls.from_docstore(docstore, show_progress=verbose, **options)
        return cls(get_tqdm_iterable(nodes or (), verbose, "Indexing nodes"), **options)

    @classmethod
    def from_persist_dir(
        cls,
        path: str | Path,
        *,
        scope: Scope | None = None,
        docstore: BaseDocumentStore | None = None,
    ) -> Self:
        """Return the retriever that `persist` wrote, with its nodes, index and settings.

        The scope is not stored, because write access to the file must not grant access to nodes.
        The docstore is not stored either: the loaded retriever has the nodes of that time, and
        follows ``docstore`` if given, with the stored ``cache_ttl_s`` and ``max_chunks``.

        Args:
            path: The directory.
            scope: Scope that limits every query.
            docstore: Docstore to follow from now on; only changed nodes are read.

        Raises:
            ConfigurationError: The docstore has more nodes than ``max_chunks``.
            ScopeRequiredError: The stored retriever had a scope, and none is given.
            StoreFormatError: The directory holds no retriever, a damaged one, or one of another
                version.
            StoreUnavailableError: The file cannot be read.
        """
        header, built = read(Path(path))
        if header.scoped and scope is None:
            raise ScopeRequiredError(
                f"the retriever in {path} was bound to a scope, which is not written down; pass "
                "scope=Scope(...)"
            )
        retriever = cls((), scope=scope, **vars(header.settings))
        retriever._index.load(built)
        retriever._limits = header.docstore
        if docstore is not None:
            retriever._limits = header.docstore or DocstoreLimits()
            retriever._follow(docstore, retriever._limits)
        return retriever

    def persist(self, path: str | Path) -> None:
        """Write the retriever into a directory, for `from_persist_dir`.

        All nodes are written, also those outside the retriever's scope, in bm25s's format. It
        replaces a retriever that is already in the directory. A write that fails leaves none.

        Args:
            path: The directory, created if missing.

        Raises:
            ConfigurationError: A node cannot be written as JSON.
            StoreUnavailableError: The directory cannot be written to.
        """
        index = self._index
        settings = BM25Settings(
            top_k=self.top_k or 1,
            tokenizer=index.tokenizer,
            filters=self.filters,
            normalise=self.normalise,
            k1=index.k1,
            b=index.b,
            name=self.name,
        )
        header = Header(settings, self._limits, scoped=self.scope is not None)
        write(Path(path), header, index.built())

    def add(self, nodes: Iterable[BaseNode]) -> None:
        """Add nodes, which replace those with the same id; the next query finds them.

        Add a changed node again to update its index entry.

        Args:
            nodes: Nodes to add; for a repeated id the last one counts.

        Raises:
            ConfigurationError: The retriever follows a docstore.
            ScopeError: The retriever is bound to a scope, and a node is outside it.
            DuplicateNodeError: A node outside that scope has the same id as one of these.
        """
        self._check_changeable()
        self._index.replace(nodes=nodes, within=self._visible)

    def delete(self, node_ids: Collection[str]) -> int:
        """Delete nodes by their ids; the next query does not find them.

        Args:
            node_ids: Ids to delete; unknown ids and ids outside the retriever's scope are ignored.

        Returns:
            Number of deleted nodes.

        Raises:
            ConfigurationError: The retriever follows a docstore, or ``node_ids`` is a string.
        """
        self._check_changeable()
        if isinstance(node_ids, str):
            raise ConfigurationError(f"node_ids is a list of ids, got {node_ids!r}; write [...]")
        return self._index.replace(gone=node_ids, within=self._visible)

    def refresh(self) -> None:
        """Update the index from the docstore now; no-op without a docstore.

        Raises:
            ConfigurationError: The docstore has more nodes than ``max_chunks``; added ones are left
                out.
        """
        if self._follower is not None:
            self._follower.refresh()

    def _current_arguments(self) -> Mapping[str, object]:
        nodes = [entry.node for entry in self._index.entries.values()]
        return {"nodes": nodes, **super()._current_arguments()}

    @property
    def _visible(self) -> Condition | None:
        return None if self.scope is None else self.scope.condition

    def _follow(
        self,
        docstore: BaseDocumentStore | StoreNodes,
        limits: DocstoreLimits,
        *,
        show_progress: bool = False,
    ) -> None:
        hashes = {node_id: entry.node.hash for node_id, entry in self._index.entries.items()}
        self._follower = DocstoreFollower(docstore, self._index, limits=limits, hashes=hashes)
        self._follower.refresh(show_progress=show_progress)

    def _check_changeable(self) -> None:
        if self._follower is not None:
            raise ConfigurationError(
                "this retriever follows a docstore; change that, and call refresh() to see it now"
            )

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Search the index in memory."""
        hits = self._hits((yield from step("search", call(Call(partial(self._find, query))))))
        note_keys(query, [hit.node.metadata for hit in hits], self._passages)
        if not hits and not self._index.entries:
            whose = self._follower
            reason = "there are no nodes" if whose is None else f"{whose.what} is empty"
            note_hint(f"keyword search had no texts: {reason}")
        elif not hits:
            key = ("keywords", id(self._index), query.condition)
            note_inquiry(key, lambda: self._passages().hints(query), always=False)
        return hits

    def _passages(self) -> Passages:
        """Return what hints look at: the passages that may be found."""
        nodes = [entry.node.metadata for entry in self._index.entries.values()]

        def read(condition: Condition | None, limit: int) -> Plan[Sequence[Metadata]]:
            fitting = (node for node in nodes if matches(condition, node))
            return (yield from call(Call(lambda: [*islice(fitting, limit)])))

        return Passages(read, by_words=True)

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """Return the node from the index, ignoring scope."""
        entry = self._index.entries.get(node_id)
        return finished(None if entry is None else entry.node)

    def _find(self, query: Query) -> list[Candidate]:
        if self._follower is not None:
            self._follower.refresh_if_due()
            overflow = self._follower.overflow
            if overflow:
                note_degraded("docstore", overflow)
        return self._index.search(
            query.query_str, top_k=query.top_k or 1, condition=query.condition
        )

    def _hits(self, candidates: Sequence[Candidate]) -> list[Hit]:
        if self.normalise:
            scores = min_max({candidate.node_id: candidate.score for candidate in candidates})
            candidates = [
                Candidate(candidate.node, scores[candidate.node_id]) for candidate in candidates
            ]
        # Copies: LlamaIndex's postprocessors change the nodes that they get, and these are indexed.
        return [
            Hit(node=node_copy(candidate.node), score=candidate.score, source=self.name)
            for candidate in candidates
        ]
