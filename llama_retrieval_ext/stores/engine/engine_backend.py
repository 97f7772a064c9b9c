"""`EngineBackend`: what the backends of our own stores share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.engine.backend import Candidate, EngineFeatures, EngineQuery, Search
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.query_modes import Answer, DiverseSearcher, FusingSearcher
from llama_retrieval_ext.stores.engine.vector_store import EngineStore

S = TypeVar("S", bound=EngineStore)
# An engine's own words for which nodes are wanted, and how many.
W = TypeVar("W")


class EngineBackend(ABC, Generic[S, W]):
    """Asks a store of ours for nearest nodes, for keywords, or for both.

    A subclass says what the engine can do, who asks it, and what a search is in its words.

    Args:
        store: The store; whoever opened it closes it.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Attributes:
        engine: Its name.
        requires_scope: Whether retrievers over it refuse queries without a scope.
    """

    engine: ClassVar[str]
    requires_scope: bool = False

    def __init__(self, store: S, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    @abstractmethod
    def features(self) -> EngineFeatures:
        """What the engine does natively."""

    @property
    @abstractmethod
    def _searcher(self) -> FusingSearcher[W]:
        """Who asks it."""

    @cached_property
    def _has_mmr(self) -> bool:
        """Whether the engine has MMR; by this the store serves or refuses that mode too."""
        return isinstance(self._searcher, DiverseSearcher)

    @abstractmethod
    def _wanted(self, search: Search) -> W:
        """A search in its words.

        Raises:
            UnsupportedFilterError: It cannot evaluate the condition.
        """

    def _call(self, ask: Callable[[], Answer]) -> Call[Answer]:
        """What carries out what the searcher returns; a thread, where the engine blocks."""
        return Call(ask)

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nearest nodes to an embedding, by the store's distance.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        return self._call(lambda: searcher.dense(embedding, wanted))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes that share terms with a text, by BM25; each has a score above 0.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        return self._call(lambda: searcher.keyword(text, wanted))

    def batch(self, asked: Sequence[EngineQuery]) -> Call[list[list[Candidate]]]:
        """Any number of searches, in as few requests as the engine can.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate a condition; nothing was sent.
        """
        wanted = [(each.sought, self._wanted(each.search)) for each in asked]
        searcher = self._searcher
        return self._call(lambda: searcher.batch(wanted))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """The best of both as the engine fuses them.

        Raises:
            UnsupportedFilterError: The engine cannot evaluate the condition; nothing was sent.
        """
        wanted, searcher = self._wanted(search), self._searcher
        return self._call(lambda: searcher.fused(embedding, text, wanted, how))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is and how it is set up; never a secret."""
        return {"engine": self.engine, **self.store.describe()}
