"""A backend in plain Python: it looks at every node."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import DimensionMismatchError, UnsupportedModeError
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.backend import Asked, Capabilities, Dense, Found, ScoreRange, Search
from llama_retrieval_ext.stores.fused_here import fused_here
from llama_retrieval_ext.stores.native_fusion import FusedSearch
from llama_retrieval_ext.testing.fake_embedding import words_of

EVERYTHING = Capabilities(
    dense=ScoreRange("cosine", -1.0, 1.0), keyword=ScoreRange("bm25", low=0.0), one_round_trip=True
)


class FakeBackend:
    """Searches a list of nodes: dense by cosine, keyword by the number of shared words.

    Override `shows` for a backend whose filters leak.

    Args:
        nodes: What it finds; with embeddings of length 1 for dense search.
        capabilities: What it serves; the rest it refuses.
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
        capabilities: Capabilities = EVERYTHING,
        drop_violations: bool = False,
    ) -> None:
        self.nodes = list(nodes)
        self._capabilities = capabilities
        self._drop_violations = drop_violations
        self._store = SimpleVectorStore()

    @property
    def store(self) -> BasePydanticVectorStore:
        """A store that is not asked anything."""
        return self._store

    @property
    def capabilities(self) -> Capabilities:
        """What it was told to serve."""
        return self._capabilities

    @property
    def drop_violations(self) -> bool:
        """What it was told to do."""
        return self._drop_violations

    def describe(self) -> Mapping[str, object]:
        """Its name and size."""
        return {"engine": self.engine, "nodes": len(self.nodes)}

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nodes by cosine."""
        if self._capabilities.dense is None:
            raise UnsupportedModeError("this fake has no vector search")
        return Call(lambda: self._best(search, lambda node: _cosine(embedding, node)))

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:
        """Nodes by the number of words they share with the text."""
        if self._capabilities.keyword is None:
            raise UnsupportedModeError("this fake has no keyword search")
        words = Counter(word for word in words_of(text) if word)
        return Call(lambda: self._best(search, lambda node: _shared(words, node)))

    def batch(self, asked: Sequence[Asked]) -> Call[list[list[Found]]] | None:
        """All of them, where it was told to serve two at once."""
        if not self._capabilities.one_round_trip:
            return None
        calls = [
            self.dense(each.embedding, each.search)
            if isinstance(each, Dense)
            else self.keyword(each.text, each.search)
            for each in asked
        ]
        return Call(lambda: [each.function() for each in calls])

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Found]]:
        """Both, fused by the formula that the fusion has."""
        candidates = replace(search, top_k=how.candidates)
        dense, keyword = self.dense(embedding, candidates), self.keyword(text, candidates)
        return Call(
            lambda: fused_here(dense.function(), keyword.function(), how, top_k=search.top_k)
        )

    def shows(self, node: TextNode, condition: Condition | None) -> bool:
        """Whether a search with this condition may find the node."""
        return matches(condition, node.metadata)

    def _best(self, search: Search, score: Callable[[TextNode], float | None]) -> list[Found]:
        visible = [node for node in self.nodes if self.shows(node, search.condition)]
        scored = [(node, score(node)) for node in visible]
        found = [Found(node, value) for node, value in scored if value is not None]
        return sorted(found, key=lambda each: (-each.score, each.node.node_id))[: search.top_k]


def _cosine(embedding: Sequence[float], node: TextNode) -> float:
    own = node.get_embedding()
    if len(embedding) != len(own):
        raise DimensionMismatchError(f"got {len(embedding)} numbers, the store has {len(own)}")
    return math.fsum(a * b for a, b in zip(embedding, own, strict=True))


def _shared(words: Counter[str], node: TextNode) -> float | None:
    shared = (words & Counter(words_of(node.text))).total()
    return float(shared) if shared else None
