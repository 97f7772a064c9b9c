"""Keyword search in process: our extension of LlamaIndex's ``BM25Retriever``."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.indices.base import BaseIndex
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.utils import get_tqdm_iterable
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.execution.context import call, note_degraded, step
from llama_retrieval_ext.execution.plan import Call, Plan, finished
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.formulas.normalisation import min_max
from llama_retrieval_ext.pipeline.index_nodes import objects_by_id
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope, check_top_k
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.bm25.docstore_sync import DocstoreFollower, DocstoreLimits
from llama_retrieval_ext.retrievers.bm25.index import KeywordIndex, Parameters, Snapshot
from llama_retrieval_ext.retrievers.bm25.llama_index_arguments import (
    DEFAULT_TOP_K,
    TOKEN_PATTERN,
    LlamaIndexOptions,
    Stemmer,
    check_names,
    tokenizer_by_default,
    tokenizer_from,
    top_k_from,
)
from llama_retrieval_ext.retrievers.bm25.persistence import (
    BM25Options,
    BM25Settings,
    DocstoreOptions,
    Stored,
    read,
    write,
)
from llama_retrieval_ext.stores.engine.backend import Candidate
from llama_retrieval_ext.text.tokenizer import Tokenizer


class BM25Retriever(Retriever):
    """The nodes that share terms with the query, ranked by BM25 in this process.

    For some hundred thousand nodes; beyond that, or to keep them on disk, use a store and its
    ``KeywordRetriever``. What is searched is what LlamaIndex would embed, text and metadata,
    without the names of tenant and knowledge base.

    Scores are raw BM25, above 0 and unbounded, by the formula of the embedded engine: Lucene's
    times the constant ``k1 + 1`` (`formulas.bm25`; to bm25s ``method="atire"`` with
    ``idf_method="lucene"``). A term that the query repeats counts as often.

    Term and length statistics are taken over all nodes, whatever the scope: scores, not hits,
    depend on other tenants' nodes. Where that matters, give each tenant a retriever of its own, or
    use the embedded engine, which counts by scope.

    Threads may share a retriever, also while nodes are added and deleted: a query sees all of a
    change or nothing of it. Every change takes time linear in the size of the index, about 80 ms
    for 20,000 nodes of 80 words; change many nodes in one call.

    Args:
        nodes: What to search; of a repeated id the last.
        top_k: How many hits to return when the query does not say, at least 1.
        tokenizer: Cuts nodes and queries; the default is for English, Chinese and code.
        filters: Conditions on metadata that every hit satisfies.
        scope: Bounds every query.
        normalise: Whether the scores of an answer are stretched from 0, for its last hit, to 1.
            They depend on ``top_k`` then, and cannot be compared across queries.
        k1: How slowly repetitions of a term saturate; 1.2 as in Lucene.
        b: How much the length of a document counts, from 0 to 1; 0.75 as in Lucene.
        name: Name in traces and ``Hit.source``; ``bm25`` unless given.
        llama_index: LlamaIndex's names: ``similarity_top_k`` for ``top_k``; ``language``,
            ``stemmer`` and ``skip_stemming`` in place of ``tokenizer``; ``verbose``, ``objects``,
            ``object_map``, ``callback_manager``, and ``token_pattern`` at its default.

    Raises:
        ConfigurationError: A number is out of range, something that is no node is among them, or an
            argument is unknown, cannot be honoured or contradicts another.

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

    _unrecorded: ClassVar = frozenset({"nodes"})  # the index has them, as they are now

    def __init__(  # noqa: PLR0913 - the four that every retriever has, and what BM25 depends on
        self,
        nodes: Iterable[BaseNode] = (),
        *,
        top_k: int = DEFAULT_TOP_K,
        tokenizer: Tokenizer | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        normalise: bool = False,
        k1: float = 1.2,
        b: float = 0.75,
        name: str = "bm25",
        **llama_index: Unpack[LlamaIndexOptions],
    ) -> None:
        check_names(llama_index)
        super().__init__(
            top_k=check_top_k(top_k_from(llama_index, top_k)),
            filters=filters,
            scope=scope,
            name=name,
            callback_manager=llama_index.get("callback_manager"),
        )
        self.normalise = normalise
        self.object_map = objects_by_id(llama_index.get("objects"), llama_index.get("object_map"))
        self._index = KeywordIndex.empty(tokenizer_from(llama_index, tokenizer), Parameters(k1, b))
        verbose = llama_index.get("verbose", False)
        self._index.replace(nodes=get_tqdm_iterable(nodes, verbose, "Indexing nodes"))
        self._follower: DocstoreFollower | None = None
        self._limits: DocstoreLimits | None = None

    @classmethod
    def from_docstore(
        cls,
        docstore: BaseDocumentStore,
        *,
        cache_ttl_s: float | None = 60.0,
        max_chunks: int | None = None,
        show_progress: bool = False,
        **options: Unpack[BM25Options],  # typed, and written down once, in the class
    ) -> Self:
        """A retriever over the nodes of a docstore, which follows the docstore's changes.

        Only nodes that have changed are read again. `refresh` looks for changes at once.

        Args:
            docstore: Any LlamaIndex docstore.
            cache_ttl_s: For how many seconds answers may miss a change. 0 looks for changes at
                every query, which costs a request to the docstore (3 ms for 20,000 nodes in
                memory); None never looks again.
            max_chunks: How many nodes the docstore may have; more are refused. Where it outgrows
                them later, queries are answered without what was added to it then, and every
                answer is degraded with a reason that says so.
            show_progress: Whether a progress bar is shown while nodes are indexed now.
            options: As the class takes them.

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
        index: BaseIndex[Any],  # Any: of whatever structure
        **options: Unpack[DocstoreOptions],
    ) -> Self:
        """A retriever over the docstore of a LlamaIndex index; see `from_docstore`.

        Everything in the docstore is searched, also what ``index.delete_ref_doc`` leaves there
        unless ``delete_from_docstore=True``.

        Args:
            index: Of any kind.
            options: As `from_docstore` takes them.

        Raises:
            ConfigurationError: The index keeps its nodes in its vector store and has none in its
                docstore.
        """
        retriever = cls.from_docstore(index.docstore, **options)
        elsewhere = isinstance(index, VectorStoreIndex) and index.vector_store.stores_text
        if elsewhere and not len(retriever._index):  # noqa: SLF001 - our own
            raise ConfigurationError(
                "this index keeps its nodes in its vector store and its docstore is empty; build "
                "it with store_nodes_override=True, write BM25Retriever(nodes), or use "
                "KeywordRetriever if the store has keyword search"
            )
        return retriever

    @classmethod
    def from_defaults(  # noqa: PLR0913, PLR0917 - LlamaIndex's arguments
        cls,
        index: BaseIndex[Any] | None = None,
        nodes: Iterable[BaseNode] | None = None,
        docstore: BaseDocumentStore | None = None,
        stemmer: Stemmer | None = None,
        language: str | Sequence[str] | None = "en",
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        verbose: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        skip_stemming: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        token_pattern: str | None = TOKEN_PATTERN,
        filters: MetadataFilters | None = None,
        tokenizer: Tokenizer | Callable[[str], list[str]] | None = None,
    ) -> Self:
        """A retriever from LlamaIndex's own arguments: changing the import is enough.

        Args:
            index: Whose docstore is searched; see `from_index`. Give it, nodes or a docstore.
            nodes: What to search.
            docstore: What to search; see `from_docstore`.
            stemmer: Not needed: it must be the one of the language.
            language: Of the texts, as bm25s names it: its words are stemmed, which LlamaIndex only
                does for English, and its stop words left out of queries. A list is stop words.
            similarity_top_k: ``top_k``, at least 1; 2 as in LlamaIndex.
            verbose: Whether a progress bar is shown while nodes are indexed.
            skip_stemming: Whether words keep their endings.
            token_pattern: LlamaIndex's default; another is refused: the tokenizer is no pattern.
            filters: Conditions on metadata that every hit satisfies.
            tokenizer: A `Tokenizer`, in place of language, stemmer and skip_stemming. A function,
                which LlamaIndex has deprecated and does not use, is not used here either; a warning
                says so.

        Raises:
            ConfigurationError: An argument cannot be honoured.
        """
        if sum(source is not None for source in (index, nodes, docstore)) != 1:
            raise ConfigurationError("give exactly one of index, nodes and docstore")
        check_names({"token_pattern": token_pattern})
        options = BM25Options(
            top_k=similarity_top_k,
            tokenizer=tokenizer_by_default(
                tokenizer, language, stemmer=stemmer, skip_stemming=skip_stemming
            ),
            filters=filters,
        )
        if index is not None:
            return cls.from_index(index, show_progress=verbose, **options)
        if docstore is not None:
            return cls.from_docstore(docstore, show_progress=verbose, **options)
        return cls(nodes or (), verbose=verbose, **options)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        scope: Scope | None = None,
        docstore: BaseDocumentStore | None = None,
    ) -> Self:
        """The retriever that `persist` wrote: its nodes, its index and all its settings.

        The scope is not stored, because write access to the file must not grant access to nodes;
        nor is the docstore. One that followed a docstore comes back over the nodes it had;
        with ``docstore`` it follows again, by the ``cache_ttl_s`` and ``max_chunks`` it had.

        Args:
            path: The directory.
            scope: Bounds every query.
            docstore: What it follows from now on; only nodes that have changed are read.

        Raises:
            ConfigurationError: The docstore has more nodes than ``max_chunks``.
            ScopeRequiredError: It was bound to a scope, and none is given.
            StoreFormatError: The directory holds none, a damaged one, or one of a newer version.
            StoreUnavailableError: The file may not be read.
        """
        stored = read(Path(path))
        if stored.scoped and scope is None:
            raise ScopeRequiredError(
                f"the retriever in {path} was bound to a scope, which is not written down; pass "
                "scope=Scope(...)"
            )
        retriever = cls((), scope=scope, **stored.settings)
        parameters = retriever._index.snapshot.parameters
        retriever._index.snapshot = Snapshot(stored.nodes, stored.postings, parameters)
        retriever._limits = stored.limits
        if docstore is not None:
            retriever._limits = stored.limits or DocstoreLimits()
            retriever._follow(docstore, retriever._limits)
        return retriever

    @classmethod
    def from_persist_dir(cls, path: str | Path, encoding: str = "utf-8") -> Self:
        """`load`, under LlamaIndex's name and with its arguments.

        Args:
            path: The directory.
            encoding: As in LlamaIndex; the file is UTF-8, whatever it says.
        """
        del encoding
        return cls.load(path)

    def persist(self, path: str | Path, encoding: str = "utf-8") -> None:
        """Write the retriever into a directory, from which `load` makes it again.

        All nodes are written, also those outside the retriever's scope. They are written whole or
        not at all: a retriever that is in the directory is kept until then.

        Args:
            path: The directory, made if it is missing.
            encoding: As in LlamaIndex; the file is UTF-8, whatever it says.

        Raises:
            ConfigurationError: A node cannot be written as JSON.
            StoreUnavailableError: The directory cannot be written to.
        """
        del encoding
        snapshot = self._index.snapshot
        settings = BM25Settings(
            top_k=self.top_k or 1,
            tokenizer=self._index.tokenizer,
            filters=self.filters,
            normalise=self.normalise,
            k1=snapshot.parameters.k1,
            b=snapshot.parameters.b,
            name=self.name,
        )
        scoped = self.scope is not None
        write(Path(path), Stored(settings, self._limits, scoped, snapshot.nodes, snapshot.postings))

    def add(self, nodes: Iterable[BaseNode]) -> None:
        """Add nodes, which replace those of the same id; the next query finds them.

        A node that was changed must be added again to be found by what it is now.

        Args:
            nodes: What to add; of a repeated id the last.

        Raises:
            ConfigurationError: The retriever follows a docstore.
            ScopeError: The retriever is bound to a scope, and a node is outside it.
            DuplicateNodeError: A node outside that scope has the id of one of these.
        """
        self._check_changeable()
        self._index.replace(nodes=nodes, within=self._visible)

    def delete(self, node_ids: Collection[str]) -> int:
        """Delete nodes by their ids; the next query does not find them.

        Args:
            node_ids: Unknown ones, and those of nodes outside the retriever's scope, are passed
                over.

        Returns:
            How many nodes were deleted.

        Raises:
            ConfigurationError: The retriever follows a docstore, or got a string.
        """
        self._check_changeable()
        if isinstance(node_ids, str):
            raise ConfigurationError(f"node_ids is a list of ids, got {node_ids!r}; write [...]")
        return self._index.replace(gone=node_ids, within=self._visible)

    def refresh(self) -> None:
        """Look now for what has changed in the docstore; without one there is nothing to do.

        Raises:
            ConfigurationError: The docstore has more nodes than ``max_chunks``; what was added to
                it is left out.
        """
        if self._follower is not None:
            self._follower.refresh()

    def _current_arguments(self) -> Mapping[str, object]:
        return {"nodes": list(self._index.snapshot.nodes.values()), **super()._current_arguments()}

    @property
    def _visible(self) -> Condition | None:
        return None if self.scope is None else self.scope.condition

    def _follow(
        self, docstore: BaseDocumentStore, limits: DocstoreLimits, *, show_progress: bool = False
    ) -> None:
        nodes = self._index.snapshot.nodes
        hashes = {node_id: node.hash for node_id, node in nodes.items()}
        self._follower = DocstoreFollower(docstore, self._index, limits=limits, hashes=hashes)
        self._follower.refresh(show_progress=show_progress)

    def _check_changeable(self) -> None:
        if self._follower is not None:
            raise ConfigurationError(
                "this retriever follows a docstore; change that, and call refresh() to see it now"
            )

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        return self._hits((yield from step("search", call(Call(partial(self._find, query))))))

    def read_node(self, node_id: str) -> Plan[BaseNode | None]:
        """The node from the index, whatever its scope."""
        return finished(self._index.snapshot.nodes.get(node_id))

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
            scores = min_max({each.node_id: each.score for each in candidates})
            candidates = [Candidate(each.node, scores[each.node_id]) for each in candidates]
        return [
            Hit(node=_own(each.node), score=each.score, source=self.name) for each in candidates
        ]


def _own(node: BaseNode) -> BaseNode:
    # LlamaIndex's postprocessors change text and metadata of the nodes they get; these are indexed.
    return node.model_copy(update={"metadata": dict(node.metadata)})
