"""Keeps a keyword index in step with a LlamaIndex docstore."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from threading import Lock

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.utils import get_tqdm_iterable

from llama_retrieval_ext.basic.bm25.index import KeywordIndex
from llama_retrieval_ext.errors import ConfigurationError


class DocstoreFollower:
    """Brings an index up to date with a docstore, when that is due.

    What has changed is told by the hashes the docstore keeps, of text and metadata; only changed
    nodes are read and tokenised again.

    Args:
        docstore: Whose nodes the index holds.
        index: What to keep in step; nothing else changes it.
        cache_ttl_s: For how many seconds the index is good without another look; None for ever.
        max_chunks: How many nodes the docstore may have; None for any number.
        clock: Seconds that only go up.

    Raises:
        ConfigurationError: A value is out of range.
    """

    def __init__(
        self,
        docstore: BaseDocumentStore,
        index: KeywordIndex,
        *,
        cache_ttl_s: float | None,
        max_chunks: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if cache_ttl_s is not None and not 0 <= cache_ttl_s < math.inf:
            raise ConfigurationError(
                f"cache_ttl_s must be a number of seconds from 0, got {cache_ttl_s}; 0 looks at "
                "every query whether the docstore has changed, None never looks again"
            )
        if max_chunks is not None and max_chunks < 1:
            raise ConfigurationError(
                f"max_chunks must be at least 1, got {max_chunks}; for no limit leave it out"
            )
        self._docstore = docstore
        self._index = index
        self._cache_ttl_s = cache_ttl_s
        self._max_chunks = max_chunks
        self._clock = clock
        self._hashes: Mapping[str, str] = {}
        self._looked_at = -math.inf
        self._looking = Lock()

    def __getstate__(self) -> dict[str, object]:
        # Another process has another clock, and a lock stays where it is.
        return {**self.__dict__, "_looked_at": -math.inf, "_looking": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _looking=Lock())

    def refresh_if_due(self) -> None:
        """Bring the index up to date, if the last look is longer ago than it may be."""
        if not self._is_due():
            return
        # Only who must see the newest waits for another who is looking already.
        if self._looking.acquire(blocking=self._cache_ttl_s == 0):
            try:
                if self._is_due():
                    self._refresh(show_progress=False)
            finally:
                self._looking.release()

    def refresh(self, *, show_progress: bool = False) -> None:
        """Bring the index up to date now.

        Raises:
            ConfigurationError: The docstore has more than ``max_chunks`` nodes.
        """
        with self._looking:
            self._refresh(show_progress=show_progress)

    def _is_due(self) -> bool:
        if self._cache_ttl_s is None:
            return self._looked_at == -math.inf
        return self._clock() - self._looked_at >= self._cache_ttl_s

    def _refresh(self, *, show_progress: bool) -> None:
        began = self._clock()
        hashes = _hashes(self._docstore)
        if hashes != self._hashes:
            changed = [i for i, value in hashes.items() if self._hashes.get(i) != value]
            nodes = _read(self._docstore, changed, of=len(hashes))
            # What is not there any more although it has a hash is gone, too.
            gone = {*(self._hashes.keys() - hashes.keys()), *changed}
            self._check_size(gone, nodes)
            self._index.replace(
                gone=gone, nodes=get_tqdm_iterable(nodes, show_progress, "Indexing nodes")
            )
            self._hashes = hashes
        self._looked_at = began

    def _check_size(self, gone: set[str], nodes: Iterable[BaseNode]) -> None:
        stay = self._index.snapshot.nodes.keys() - gone
        size = len(stay.union(node.node_id for node in nodes))
        if self._max_chunks is not None and size > self._max_chunks:
            raise ConfigurationError(
                f"the docstore has {size} nodes and max_chunks is {self._max_chunks}; nothing was "
                "indexed, because to leave some out would make them unfindable: raise max_chunks, "
                "index a part with BM25Retriever(nodes), or use a store on disk (KeywordRetriever)"
            )


def _hashes(docstore: BaseDocumentStore) -> Mapping[str, str]:
    if not isinstance(docstore, KVDocumentStore):
        return {node_id: node.hash for node_id, node in docstore.docs.items()}
    # The public get_all_document_hashes gives ids by hash, so that of two nodes with the same text
    # one is missing, and its deletion would not be seen.
    kept = docstore._kvstore.get_all(docstore._metadata_collection)  # noqa: SLF001
    return {node_id: each.get("doc_hash", "") for node_id, each in kept.items()}


def _read(docstore: BaseDocumentStore, ids: list[str], *, of: int) -> list[BaseNode]:
    if 2 * len(ids) < of:
        return docstore.get_nodes(ids, raise_error=False)  # one request a node
    wanted = set(ids)
    return [node for node_id, node in docstore.docs.items() if node_id in wanted]
