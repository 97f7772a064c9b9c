"""The backend of collections that were opened by URL."""

from collections.abc import Mapping, Sequence

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.points.fusing import fusions_of
from llama_retrieval_ext.stores.points.wanted import wanted
from llama_retrieval_ext.stores.qdrant.layout import range_of
from llama_retrieval_ext.stores.qdrant.manifest import DISTANCES
from llama_retrieval_ext.stores.qdrant.store import QdrantStore


class QdrantBackend:
    """Asks a `QdrantStore` for nearest nodes, for keywords, or for both at once.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Examples:
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     QdrantBackend(store).capabilities.dense
        ScoreRange(kind='cosine', low=-1.0, high=1.0)

    """

    def __init__(self, store: QdrantStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    def capabilities(self) -> Capabilities:
        """Everything; async only on a server, as local mode computes in this process."""
        dense = range_of(DISTANCES[self.store.distance])
        return Capabilities(
            dense=dense,
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            fusions=fusions_of(dense.kind) if self.store.searcher.fuses else (),
            mmr=True,
            real_async=self.store.connection.real_async,
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, by the store's distance.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        what, searcher = wanted(search), self.store.searcher
        return self.store.connection.call(lambda: searcher.dense(embedding, what))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes that share terms with a text, by BM25 with the rarity of terms in the scope.

        Servers before 1.19 take the rarity over the whole collection.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        what, searcher = wanted(search), self.store.searcher
        return self.store.connection.call(lambda: searcher.keyword(text, what))

    def batch(self, asked: Sequence[Asked]) -> Call[list[list[Found]]]:
        """Any number of searches in one request.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate a condition.
        """
        what = [(each.sought, wanted(each.search)) for each in asked]
        searcher = self.store.searcher
        return self.store.connection.call(lambda: searcher.batch(what))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Found]]:
        """The best of both as the engine fuses them.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        what, searcher = wanted(search), self.store.searcher
        return self.store.connection.call(lambda: searcher.fused(embedding, text, what, how))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is and how it is set up."""
        return {"engine": "qdrant", **self.store.describe()}
