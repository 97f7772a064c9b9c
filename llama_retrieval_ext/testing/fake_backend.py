"""`FakeBackend`: an in-memory store with dense and keyword search and fusion."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import mul

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import DimensionMismatchError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.encoding.vectors import ScoreRange
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    HybridRankings,
    Search,
    fuse_candidates,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.testing.fakes import words_of

EVERYTHING = EngineFeatures(
    dense=ScoreRange("cosine", -1.0, 1.0), keyword=ScoreRange("bm25", low=0.0), one_round_trip=True
)


class FakeBackend:
    """Backend over a list of nodes: dense by cosine, keyword by the number of shared words.

    Override `shows` to simulate a backend whose filters leak.

    Args:
        nodes: The nodes, with embeddings of length 1 for dense search.
        features: The supported features; others are refused.
        drop_violations: As in `Backend`.

    Examples:
        >>> backend = FakeBackend([TextNode(id_="n1", text="annual leave")])
        >>> found = backend.keyword("leave days", Search(top_k=5)).function()
        >>> [(each.node_id, each.score) for each in found]
        [('n1', 1.0)]

    """

    engine = "fake"

    def __init__(
        self,
        nodes: Sequence[TextNode],
        *,
        features: EngineFeatures = EVERYTHING,
        drop_violations: bool = False,
    ) -> None:
        self.nodes = list(nodes)
        self._features = features
        self.drop_violations = drop_violations
        self.store: BasePydanticVectorStore = SimpleVectorStore()  # unused

    @property
    def features(self) -> EngineFeatures:
        """The configured features."""
        return self._features

    def describe(self) -> Mapping[str, object]:
        """Return its name and size."""
        return {"engine": self.engine, "nodes": len(self.nodes)}

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return nodes by cosine."""
        if self.features.dense is None:
            raise UnsupportedModeError("this fake has no vector search")
        return Call(lambda: self._best(search, lambda node: _cosine(embedding, node)))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return nodes by the number of words shared with the text."""
        if self.features.keyword is None:
            raise UnsupportedModeError("this fake has no keyword search")
        words = Counter(word for word in words_of(text) if word)
        return Call(lambda: self._best(search, lambda node: _shared(words, node)))

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        """Return both rankings, with their nodes."""
        del nodes_last
        dense, keyword = self.dense(embedding, search), self.keyword(text, search)
        return Call(lambda: HybridRankings.of(dense.function(), keyword.function()))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return both rankings, fused by the fusion's formula."""
        candidates = replace(search, top_k=how.candidates)
        dense, keyword = self.dense(embedding, candidates), self.keyword(text, candidates)
        fused = partial(fuse_candidates, fusion=how.fusion, weights=how.weights, top_k=search.top_k)
        return Call(lambda: fused(dense.function(), keyword.function()))

    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        """Return whether a search with this condition may find the node."""
        return matches(condition, node.metadata)

    def _best(self, search: Search, score: Callable[[TextNode], float | None]) -> list[Candidate]:
        visible = [node for node in self.nodes if self.shows(node, search.condition)]
        scored = [(node, score(node)) for node in visible]
        candidates = [Candidate(node, value) for node, value in scored if value is not None]
        return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.node.node_id))[
            : search.top_k
        ]


def _cosine(embedding: Sequence[float], node: TextNode) -> float:
    stored = node.get_embedding()
    if len(embedding) != len(stored):
        raise DimensionMismatchError(f"got {len(embedding)} numbers, the store has {len(stored)}")
    return math.fsum(map(mul, embedding, stored))


def _shared(words: Counter[str], node: TextNode) -> float | None:
    shared = (words & Counter(words_of(node.text))).total()
    return float(shared) if shared else None
