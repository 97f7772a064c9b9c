"""The backend of collections that were opened by URL."""

from collections.abc import Callable

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.engine_backend import EngineBackend
from llama_retrieval_ext.stores.points.fusing import fusions_of
from llama_retrieval_ext.stores.points.wanted import Wanted, wanted
from llama_retrieval_ext.stores.qdrant.layout import range_of
from llama_retrieval_ext.stores.qdrant.manifest import DISTANCES
from llama_retrieval_ext.stores.qdrant.search import TalkingSearcher
from llama_retrieval_ext.stores.qdrant.store import QdrantStore
from llama_retrieval_ext.stores.searcher import Answer


class QdrantBackend(EngineBackend[QdrantStore, Wanted]):
    """Asks a `QdrantStore` for nearest nodes, for keywords, or for both at once.

    Servers before 1.19 take the rarity of terms over the whole collection, not over the scope.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Examples:
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     QdrantBackend(store).capabilities.dense
        ScoreRange(kind='cosine', low=-1.0, high=1.0)

    """

    engine = "qdrant"

    @property
    def capabilities(self) -> Capabilities:
        """Everything; async only on a server, as local mode computes in this process."""
        dense = range_of(DISTANCES[self.store.distance])
        return Capabilities(
            dense=dense,
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            fusions=fusions_of(dense.kind) if self.store.searcher.fuses else (),
            # Local mode would copy every payload for it.
            grouping=not self.store.connection.is_local,
            mmr=self._has_mmr,
            real_async=self.store.connection.real_async,
            operators=self.store.operators,
        )

    def grouped(self, asked: Asked, size: int) -> Call[list[Found]]:
        """The best nodes of the best documents, best first.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(asked.search), self._searcher
        return self._call(lambda: searcher.grouped(asked.sought, wanted, size))

    @property
    def _searcher(self) -> TalkingSearcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        return wanted(search)

    def _call(self, ask: Callable[[], Answer]) -> Call[Answer]:
        return self.store.connection.call(ask)
