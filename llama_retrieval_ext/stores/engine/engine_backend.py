"""`EngineBackend`: backend over the searches of an engine; `StoreBackend`: of our own stores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.execution.drivers import drive
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    EngineQuery,
    HybridRankings,
    KeywordQuery,
    Search,
    VectorQuery,
    check_exact,
)
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch
from llama_retrieval_ext.stores.engine.search import AnySearch, EngineRequest
from llama_retrieval_ext.stores.engine.vector_store import EngineStore

B = TypeVar("B", bound=BasePydanticVectorStore)
T = TypeVar("T")

_FIRST: Final[Callable[[list[list[Candidate]]], list[Candidate]]] = itemgetter(0)


class EngineBackend(ABC, Generic[B]):
    """Backend that sends searches to a store's engine.

    A subclass declares the features, provides the engine's search, and runs its steps.

    Attributes:
        engine: Engine name.
        requires_scope: Whether retrievers refuse queries without a scope.
        requires_principals: Whether retrievers refuse scopes without principals.
    """

    engine: str
    requires_scope: bool = False
    requires_principals: bool = False

    def __init__(self, store: B, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations

    @property
    @abstractmethod
    def features(self) -> EngineFeatures:
        """Operations that the engine supports natively."""

    @property
    @abstractmethod
    def searcher(self) -> AnySearch:
        """The engine's searches."""

    def nodes(self, ids: Sequence[str]) -> Call[dict[str, BaseNode]] | None:  # noqa: ARG002 - as subclasses
        """Return the nodes with these ids and their embeddings; None if the store reads them."""
        return None

    def all_nodes(self) -> Call[list[BaseNode]] | None:
        """Return all nodes, for keyword search in memory; None if the engine has its own."""
        return None

    def index_used(self, *, exact: bool) -> str | None:
        """Return a description of the index for vector searches; None if unknown."""
        del exact
        return None

    @abstractmethod
    def describe(self) -> Mapping[str, object]:
        """Return the engine, its location and its configuration, without secrets."""

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps, in a thread if the engine blocks."""
        return blocking_call(steps)

    def check(self, query: EngineQuery) -> None:
        """Raise `UnsupportedModeError` if the store does not support the search."""

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nearest nodes to an embedding, by the store's distance."""
        return self._ranking(VectorQuery(tuple(embedding), search))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return the nodes that share terms with a text; BM25 scores are above 0."""
        return self._ranking(KeywordQuery(text, search))

    def hybrid(
        self, embedding: Sequence[float], text: str, search: Search, *, nodes_last: bool
    ) -> Call[HybridRankings]:
        """Return the rankings of both searches, from one request."""
        searcher, (vector, keyword) = self._requests(_both_queries(embedding, text, search))

        def read(keys: Sequence[str]) -> Call[Mapping[str, Candidate]]:
            return self.call(lambda: searcher.read(keys, vector))

        rankings = self.call(lambda: searcher.hybrid(vector, keyword, nodes_last=nodes_last))
        return rankings.then(lambda found: replace(found, read=read))

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Return the candidates of the engine's native fusion."""
        searcher, (vector, keyword) = self._requests(_both_queries(embedding, text, search))
        return self.call(lambda: searcher.fused(vector, keyword, how))

    def _ranking(self, query: EngineQuery) -> Call[list[Candidate]]:
        searcher, requests = self._requests([query])
        return self.call(lambda: searcher.search(requests)).then(_FIRST)

    def _requests(
        self, queries: Sequence[EngineQuery]
    ) -> tuple[AnySearch, list[EngineRequest[Any]]]:
        for query in queries:
            if query.search.exact:
                check_exact(self.engine, self.features, query)
            self.check(query)
        searcher = self.searcher
        return searcher, searcher.requests(queries)


def _both_queries(
    embedding: Sequence[float], text: str, search: Search
) -> tuple[VectorQuery, KeywordQuery]:
    return VectorQuery(tuple(embedding), search), KeywordQuery(text, search)


S = TypeVar("S", bound=EngineStore)


class StoreBackend(EngineBackend[S]):
    """Backend of a store of this package."""

    @property
    def searcher(self) -> AnySearch:
        """The engine's searches."""
        return self.store.searcher

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps."""
        return self.store.call(steps)

    def describe(self) -> Mapping[str, object]:
        """Return the engine, its location and its configuration, without secrets."""
        return {"engine": self.engine, **self.store.describe()}


class CollectionBackend(StoreBackend[CollectionStore]):
    """Backend of a store in a collection, which declares the features of its engine."""

    def __init__(self, store: CollectionStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self.engine = store.engine

    @property
    def features(self) -> EngineFeatures:
        """Operations that the engine supports natively."""
        return self.store.features


def blocking_call(steps: Callable[[], Steps[T]]) -> Call[T]:
    """Return the call that runs steps whose requests are blocking functions.

    Examples:
        >>> def doubled():
        ...     number = yield lambda: 21
        ...     return 2 * number
        >>> blocking_call(doubled).function()
        42

    """
    return Call(lambda: drive(steps(), _call))


def _call(function: Callable[[], object]) -> object:
    return function()
