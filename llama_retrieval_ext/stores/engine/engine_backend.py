"""`EngineBackend`: the backend of a store whose engine is searched by an `EngineSearch`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.execution.plan import Call, Steps, blocking_call
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    Choose,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    Search,
    VectorQuery,
    hybrid_queries,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.search import AnySearch

B = TypeVar("B", bound=BasePydanticVectorStore)
T = TypeVar("T")


class EngineBackend(ABC, Generic[B]):
    """Sends searches to a store's engine.

    A subclass declares the features, and has the engine's search and what runs its steps.

    Args:
        store: The store; the caller closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Attributes:
        engine: Its name.
        requires_scope: Whether retrievers over it refuse queries without a scope.
    """

    engine: ClassVar[str]
    requires_scope: bool = False

    def __init__(self, store: B, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    @abstractmethod
    def features(self) -> EngineFeatures:
        """What the engine does natively."""

    @property
    @abstractmethod
    def searcher(self) -> AnySearch:
        """The engine's searches."""

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Return the engine, where it is and its configuration; never a secret."""

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps; in a thread, where the engine blocks."""
        return blocking_call(steps)

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nearest nodes to an embedding, by the store's distance."""
        return self.batch([VectorQuery(tuple(embedding), search)]).then(_only)

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return nodes that share terms with a text, by BM25; each has a score above 0."""
        return self.batch([KeywordQuery(text, search)]).then(_only)

    def batch(self, queries: Sequence[EngineQuery]) -> Call[list[list[Candidate]]]:
        """Return one ranking a query, from as few requests as the engine can."""
        searcher = self.searcher
        requests = [searcher.request(query) for query in queries]
        return self.call(lambda: searcher.search(requests))

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]]:
        """Return the candidates that a function chooses from both searches."""
        searcher = self.searcher
        near, sharing = searcher.request(vector), searcher.request(keyword)
        return self.call(lambda: searcher.hybrid(near, sharing, choose, top_k=top_k))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return the best of both searches as the engine fuses them."""
        searcher = self.searcher
        vector, keyword = hybrid_queries(embedding, text, search)
        near, sharing = searcher.request(vector), searcher.request(keyword)
        return self.call(lambda: searcher.fused(near, sharing, how))


def _only(rankings: list[list[Candidate]]) -> list[Candidate]:
    (ranking,) = rankings
    return ranking
