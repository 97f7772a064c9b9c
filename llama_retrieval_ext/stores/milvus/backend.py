"""The backend of Milvus."""

from collections.abc import Mapping
from typing import Final

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.engine_backend import EngineBackend
from llama_retrieval_ext.stores.milvus.conditions import compiled
from llama_retrieval_ext.stores.milvus.fusing import fusions_of
from llama_retrieval_ext.stores.milvus.hits import MOST
from llama_retrieval_ext.stores.milvus.search import Searcher, Wanted
from llama_retrieval_ext.stores.milvus.store import MilvusStore
from llama_retrieval_ext.stores.nodes.distance import Distance

SCORES: Final[Mapping[Distance, ScoreRange]] = {
    "cosine": ScoreRange("cosine", -1.0, 1.0),
    "dot": ScoreRange("dot"),
    "euclid": ScoreRange("negative_distance", None, 0.0),
}


class MilvusBackend(EngineBackend[MilvusStore, Wanted]):
    """Asks a `MilvusStore` for nearest nodes, for keywords, or for what it makes of both.

    There is no request for both that keeps their scores: ``hybrid_search`` returns fused ones only,
    so that no hit can say what either search gave to it.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "milvus"

    @property
    def capabilities(self) -> Capabilities:
        """Vector and keyword search; async callers wait in threads."""
        dense = SCORES[self.store.distance]
        return Capabilities(
            dense=dense,
            keyword=ScoreRange("bm25", 0.0),
            grouping=self.store.searcher.groups,
            most_hits=MOST,
            fusions=fusions_of(dense.kind, lite=self.store.searcher.is_lite),
            mmr=self._has_mmr,
        )

    def grouped(self, asked: Asked, size: int) -> Call[list[Found]]:
        """The best nodes of the best documents, best first.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(asked.search), self._searcher
        return self._call(lambda: searcher.grouped(asked.sought, wanted, size))

    @property
    def _searcher(self) -> Searcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        condition = search.condition
        return Wanted(search.top_k, True if condition is None else compiled(condition))
