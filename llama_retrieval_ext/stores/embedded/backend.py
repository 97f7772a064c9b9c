"""The backend of the embedded engine."""

from collections.abc import Mapping
from typing import Final

from llama_retrieval_ext.stores.backend import Capabilities, ScoreRange, Search
from llama_retrieval_ext.stores.embedded.search import Searcher
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.engine_backend import EngineBackend
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.points.fusing import fusions_of
from llama_retrieval_ext.stores.points.wanted import Wanted, wanted

_SCORES: Final[Mapping[Distance, ScoreRange]] = {
    "cosine": ScoreRange("cosine", -1.0, 1.0),
    "dot": ScoreRange("dot"),
    "euclid": ScoreRange("negative_distance", None, 0.0),
}


class EmbeddedBackend(EngineBackend[EmbeddedVectorStore, Wanted]):
    """Asks an `EmbeddedVectorStore` for nearest nodes, for keywords, or for both at once.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Examples:
        >>> with EmbeddedVectorStore(":memory:") as store:
        ...     EmbeddedBackend(store).capabilities.dense
        ScoreRange(kind='cosine', low=-1.0, high=1.0)

    """

    engine = "embedded"

    @property
    def capabilities(self) -> Capabilities:
        """Everything but async: the engine blocks, for milliseconds."""
        return Capabilities(
            dense=_SCORES[self.store.distance],
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            fusions=fusions_of(_SCORES[self.store.distance].kind),
            mmr=self._has_mmr,
        )

    @property
    def _searcher(self) -> Searcher:
        return self.store.searcher

    def _wanted(self, search: Search) -> Wanted:
        return wanted(search)
