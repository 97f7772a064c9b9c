"""The backend of Milvus."""

from collections.abc import Mapping, Sequence
from typing import Final

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.milvus.conditions import compiled
from llama_retrieval_ext.stores.milvus.fusing import fusions_of
from llama_retrieval_ext.stores.milvus.search import Wanted
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.nodes.distance import Distance

SCORES: Final[Mapping[Distance, ScoreRange]] = {
    "cosine": ScoreRange("cosine", -1.0, 1.0),
    "dot": ScoreRange("dot"),
    "euclid": ScoreRange("negative_distance", None, 0.0),
}


class MilvusBackend:
    """Asks a `MilvusStore` for nearest nodes, for keywords, or for what it makes of both.

    There is no request for both that keeps their scores: ``hybrid_search`` returns fused ones only,
    so that no hit can say what either search gave to it.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    def __init__(self, store: MilvusStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    def capabilities(self) -> Capabilities:
        """Vector and keyword search; async callers wait in threads."""
        dense = SCORES[self.store.distance]
        return Capabilities(
            dense=dense,
            keyword=ScoreRange("bm25", 0.0),
            fusions=fusions_of(dense.kind, lite=self.store.searcher.is_lite),
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, by the store's distance.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        wanted = _wanted(search)
        return Call(lambda: self.store.searcher.dense(embedding, wanted))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes that share terms with a text, by BM25 with the rarity of terms in the collection.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        wanted = _wanted(search)
        return Call(lambda: self.store.searcher.keyword(text, wanted))

    def batch(self, asked: Sequence[Asked]) -> Call[list[list[Found]]]:
        """Any number of searches, those of one kind and filter in one request.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate a condition.
        """
        wanted = [(each.sought, _wanted(each.search)) for each in asked]
        return Call(lambda: self.store.searcher.batch(wanted))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Found]]:
        """The best of both as the engine fuses them.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        wanted = _wanted(search)
        return Call(lambda: self.store.searcher.fused(embedding, text, wanted, how))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is, how it is set up and how much is in it."""
        return {"engine": "milvus", **self.store.describe()}


def _wanted(search: Search) -> Wanted:
    condition = search.condition
    return Wanted(search.top_k, True if condition is None else compiled(condition))
