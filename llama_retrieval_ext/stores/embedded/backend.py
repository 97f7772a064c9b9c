"""The backend of the embedded engine."""

from collections.abc import Mapping, Sequence
from typing import Final

from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.points.fusing import fusions_of
from llama_retrieval_ext.stores.points.wanted import wanted

_SCORES: Final[Mapping[Distance, ScoreRange]] = {
    "cosine": ScoreRange("cosine", -1.0, 1.0),
    "dot": ScoreRange("dot"),
    "euclid": ScoreRange("negative_distance", None, 0.0),
}


class EmbeddedBackend:
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

    def __init__(self, store: EmbeddedVectorStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    def capabilities(self) -> Capabilities:
        """Everything but async: the engine blocks, for milliseconds."""
        return Capabilities(
            dense=_SCORES[self.store.distance],
            keyword=ScoreRange("bm25", 0.0, None),
            one_round_trip=True,
            fusions=fusions_of(_SCORES[self.store.distance].kind),
            mmr=True,
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, by the store's distance.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        what = wanted(search)
        return Call(lambda: self.store.searcher.dense(embedding, what))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes that share terms with a text, by BM25 with the rarity of terms in the scope.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        what = wanted(search)
        return Call(lambda: self.store.searcher.keyword(text, what))

    def batch(self, asked: Sequence[Asked]) -> Call[list[list[Found]]]:
        """Any number of searches in one request.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate a condition.
        """
        what = [(each.sought, wanted(each.search)) for each in asked]
        return Call(lambda: self.store.searcher.batch(what))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Found]]:
        """The best of both as the engine fuses them.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition.
        """
        what = wanted(search)
        return Call(lambda: self.store.searcher.fused(embedding, text, what, how))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is, how it is set up and how much is in it."""
        return {"engine": "qdrant-edge", **self.store.describe()}
