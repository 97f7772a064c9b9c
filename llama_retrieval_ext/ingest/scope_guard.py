"""A backend that answers nobody without a scope."""

from collections.abc import Mapping, Sequence

from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.errors import ScopeRequiredError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.engine.backend import (
    Backend,
    Candidate,
    Choose,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    Search,
    VectorQuery,
    fusing,
)
from llama_retrieval_ext.stores.engine.pushdown import FusedSearch


class GuardedBackend:
    """Refuses every search without a scope, whoever sends it; otherwise the backend it is given.

    The retrievers of a knowledge base refuse such queries themselves, before anything is embedded.
    This stands behind them, for those who build others from their ``backend``.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def store(self) -> BasePydanticVectorStore:
        """The LlamaIndex vector store behind it."""
        return self._backend.store

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._backend.engine

    @property
    def features(self) -> EngineFeatures:
        """What the engine does natively."""
        return self._backend.features

    @property
    def drop_violations(self) -> bool:
        """Whether hits from outside scope or filters degrade the answer instead of raising."""
        return self._backend.drop_violations

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nearest nodes to an embedding.

        Raises:
            ScopeRequiredError: The search has no scope.
        """
        return self._backend.dense(embedding, _scoped(search))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes that share terms with a text.

        Raises:
            ScopeRequiredError: The search has no scope.
        """
        return self._backend.keyword(text, _scoped(search))

    def batch(self, queries: Sequence[EngineQuery]) -> Call[list[list[Candidate]]] | None:
        """Several searches in as few requests as the engine can.

        Raises:
            ScopeRequiredError: One of them has no scope.
        """
        for each in queries:
            _scoped(each.search)
        return self._backend.batch(queries)

    def hybrid(
        self, vector: VectorQuery, keyword: KeywordQuery, choose: Choose, *, top_k: int
    ) -> Call[list[Candidate]] | None:
        """The chosen candidates of both searches.

        Raises:
            ScopeRequiredError: One of them has no scope.
        """
        _scoped(vector.search)
        _scoped(keyword.search)
        return self._backend.hybrid(vector, keyword, choose, top_k=top_k)

    def fused(
        self, embedding: Sequence[float], text: str, search: Search, how: FusedSearch
    ) -> Call[list[Candidate]]:
        """Both searches, fused by the engine.

        Raises:
            ScopeRequiredError: The search has no scope.
            UnsupportedModeError: The engine fuses nothing.
        """
        return fusing(self._backend).fused(embedding, text, _scoped(search), how)

    def describe(self) -> Mapping[str, object]:
        """What the engine is and how it is set up."""
        return self._backend.describe()


def _scoped(search: Search) -> Search:
    if search.scope is None:
        raise ScopeRequiredError(
            "this knowledge base requires a scope; pass scope=Scope(...) with the query, or bind "
            "the retriever with for_scope"
        )
    return search
