"""Keeps a keyword index in sync with a LlamaIndex docstore."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.utils import get_tqdm_iterable

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.retrievers.bm25.index import KeywordIndex
from llama_retrieval_ext.stores.open import StoreNodes
from llama_retrieval_ext.wording import counted


@dataclass(frozen=True, slots=True)
class DocstoreLimits:
    """Refresh interval and size limit of a docstore."""

    cache_ttl_s: float | None = 60.0
    max_chunks: int | None = None

    def __post_init__(self) -> None:
        ttl = self.cache_ttl_s
        if ttl is not None and (not is_number(ttl) or ttl < 0):
            raise ConfigurationError(
                f"cache_ttl_s must be a number of seconds from 0, got {ttl!r}; 0 looks at every "
                "query whether the docstore has changed, None never looks again"
            )
        if self.max_chunks is not None:
            check_count(self.max_chunks, "max_chunks")


class DocstoreFollower:
    """Updates an index from a docstore, at most once per cache time; nothing else may change it.

    Changes are found by the hashes of text and metadata that the docstore keeps; only changed nodes
    are read and tokenised again.

    Attributes:
        what: The docstore, in words.
        overflow: Reason why nodes of the docstore are not in the index; empty if all are.
    """

    def __init__(
        self,
        docstore: BaseDocumentStore | StoreNodes,
        index: KeywordIndex,
        *,
        limits: DocstoreLimits,
        hashes: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.what = "the store" if isinstance(docstore, StoreNodes) else "the docstore"
        self.overflow = ""
        self._docstore = docstore
        self._index = index
        self._clock = clock
        self._indexed: Mapping[str, str] = hashes or {}
        self._seen: Mapping[str, str] | None = None
        self._looked_at = -math.inf
        self._looking = Lock()

    def __getstate__(self) -> dict[str, object]:
        # Clocks differ between processes, and locks cannot be pickled.
        return {**self.__dict__, "_looked_at": -math.inf, "_looking": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _looking=Lock())

    def refresh_if_due(self) -> None:
        """Update the index if the cache time since the last check has passed.

        If the docstore has more than ``max_chunks`` nodes, added ones are left out and `overflow`
        is set.
        """
        if not self._is_due():
            return
        # With a cache time of 0, wait for a refresh that another thread runs; else skip it.
        if self._looking.acquire(blocking=self.limits.cache_ttl_s == 0):
            try:
                if self._is_due():
                    self._refresh(show_progress=False)
            finally:
                self._looking.release()

    def refresh(self, *, show_progress: bool = False) -> None:
        """Update the index now."""
        with self._looking:
            self._refresh(show_progress=show_progress)
            if self.overflow:
                raise ConfigurationError(self.overflow)

    def _is_due(self) -> bool:
        if self.limits.cache_ttl_s is None:
            return self._looked_at == -math.inf
        return self._clock() - self._looked_at >= self.limits.cache_ttl_s

    def _refresh(self, *, show_progress: bool) -> None:
        began = self._clock()
        hashes = _hashes(self._docstore)
        if hashes != self._seen:
            self._follow(hashes, show_progress=show_progress)
            self._seen = hashes
        self._looked_at = began

    def _follow(self, hashes: Mapping[str, str], *, show_progress: bool) -> None:
        changed = [i for i, value in hashes.items() if self._indexed.get(i) != value]
        nodes = _read(self._docstore, changed, of=len(hashes))
        # A node with a hash that cannot be read is deleted, too.
        gone = {*(self._indexed.keys() - hashes.keys()), *changed}
        indexed = self._index.entries.keys()
        overflow = self._overflow(len((indexed - gone).union(node.node_id for node in nodes)))
        if overflow:  # indexed nodes are still updated and deleted
            nodes = [node for node in nodes if node.node_id in indexed]
            hashes = {i: value for i, value in hashes.items() if i in indexed}
        self._index.replace(
            gone=gone, nodes=get_tqdm_iterable(nodes, show_progress, "Indexing nodes")
        )
        self._indexed, self.overflow = hashes, overflow

    def _overflow(self, size: int) -> str:
        most = self.limits.max_chunks
        if most is None or size <= most:
            return ""
        return (
            f"the docstore has {counted(size, 'node')} and max_chunks is {most}: nodes added "
            "beyond that are not indexed and cannot be found; make the retriever again with a "
            "higher max_chunks, index a part with BM25Retriever(nodes), or use a store on disk "
            "(KeywordRetriever)"
        )


def _hashes(docstore: BaseDocumentStore | StoreNodes) -> Mapping[str, str]:
    if isinstance(docstore, StoreNodes):
        return docstore.hashes()
    if not isinstance(docstore, KVDocumentStore):
        return {node_id: node.hash for node_id, node in docstore.docs.items()}
    # The public get_all_document_hashes maps hash to id: of two nodes with the same text one is
    # missing, and its deletion would go unnoticed.
    kept = docstore._kvstore.get_all(docstore._metadata_collection)  # noqa: SLF001
    return {node_id: record.get("doc_hash", "") for node_id, record in kept.items()}


def _read(docstore: BaseDocumentStore | StoreNodes, ids: list[str], *, of: int) -> list[BaseNode]:
    if isinstance(docstore, StoreNodes):
        return docstore.take(ids)
    if 2 * len(ids) < of:
        return docstore.get_nodes(ids, raise_error=False)  # one request per node
    needed = set(ids)
    return [node for node_id, node in docstore.docs.items() if node_id in needed]
