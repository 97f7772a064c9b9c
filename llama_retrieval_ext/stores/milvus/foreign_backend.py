"""The backend of LlamaIndex's `MilvusVectorStore`, as users have it already."""

from collections.abc import Mapping, Sequence
from typing import Final

from llama_index.vector_stores.milvus import MilvusVectorStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.milvus.foreign_search import ForeignSearcher
from llama_retrieval_ext.stores.one_by_one import OneByOne

_RANGES: Final = {
    "COSINE": ScoreRange("cosine", -1.0, 1.0),
    "IP": ScoreRange("dot"),
    "L2": ScoreRange("negative_distance", None, 0.0),
}


class ForeignBackend(OneByOne):
    """Asks the collection of a LlamaIndex `MilvusVectorStore`, by the store's own client.

    The store's ``query`` is not used: its filters turn into their opposites, are dropped, or let
    values break out of them. Filters by strings are Milvus's work; for others more nodes may be
    fetched than are wanted, 16,384 at most, and sorted out here.

    Keyword search is what the store's sparse function makes of it, where the store was made with
    ``enable_sparse``.

    Args:
        store: The store; whoever made it closes its clients.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "milvus"

    def __init__(self, store: MilvusVectorStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations
        self._searcher = ForeignSearcher(store)

    @property
    def capabilities(self) -> Capabilities:
        """What the collection has; async callers wait in threads."""
        keyword = self._searcher.keyword_metric
        kind = "bm25" if keyword == "BM25" else "unknown"
        return Capabilities(
            dense=_RANGES[self._searcher.metric] if self.store.enable_dense else None,
            keyword=None if keyword is None else ScoreRange(kind, 0.0),
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, by the collection's metric.

        Raises:
            UnsupportedModeError: The store was made with ``enable_dense=False``.
            UnsupportedFilterError: More nodes may satisfy the condition than Milvus returns.
        """
        if not self.store.enable_dense:
            raise UnsupportedModeError("the MilvusVectorStore was made with enable_dense=False")
        return Call(lambda: self._searcher.dense(embedding, search))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes that the store's sparse function finds for a text.

        Raises:
            UnsupportedModeError: The store was made without ``enable_sparse=True``.
        """
        if self._searcher.keyword_metric is None:
            raise UnsupportedModeError(
                "the MilvusVectorStore was made without enable_sparse=True; use BM25Retriever over "
                "the nodes, or a store opened by URL"
            )
        return Call(lambda: self._searcher.keyword(text, search))

    def describe(self) -> Mapping[str, object]:
        """The engine, and how the collection is set up."""
        return {
            "engine": self.engine,
            "store": type(self.store).__name__,
            "collection": str(self.store.collection_name),
            "metric": self._searcher.metric,
        }
