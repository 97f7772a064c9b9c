"""The backend for any LlamaIndex vector store: vector search, by the store's own `query`."""

import math
from collections.abc import Callable, Mapping, Sequence

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScoreError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.effects import Call
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.backend import Capabilities, Found, ScoreRange, Search
from llama_retrieval_ext.stores.metadata_filters import as_metadata_filters

Lookup = Callable[[Sequence[str]], Sequence[BaseNode]]


class GenericBackend:
    """Asks any LlamaIndex vector store for the nearest nodes.

    What else such a store can do is not known, and asking may silently give something else, so
    keyword search is refused. Filters go to the store as LlamaIndex filters; for
    ``SimpleVectorStore``, which knows no nested ones, they are evaluated here.

    Args:
        store: The vector store.
        lookup: Nodes by the ids that the store returns, for a store that keeps no text.
        lower_is_better: Whether the store's "similarities" are distances.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.

    Raises:
        ConfigurationError: The store keeps no text, and there is no lookup.
    """

    def __init__(
        self,
        store: BasePydanticVectorStore,
        *,
        lookup: Lookup | None = None,
        lower_is_better: bool = False,
        drop_violations: bool = False,
    ) -> None:
        if lookup is None and not store.stores_text:
            raise ConfigurationError(
                f"{type(store).__name__} keeps no text; hand in the VectorStoreIndex over it, "
                "whose docstore does"
            )
        self.store = store
        self.drop_violations = drop_violations
        self.capabilities = Capabilities(
            dense=ScoreRange("negative_distance", high=0.0) if lower_is_better else ScoreRange(),
            real_async=type(store).aquery is not BasePydanticVectorStore.aquery,
        )
        self._lookup = lookup
        self._sign = -1.0 if lower_is_better else 1.0

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Found]]:
        """Nearest nodes to an embedding, as the store scores them.

        Raises:
            UnsupportedFilterError: The store says that it cannot evaluate the condition.
            ScoreError: The store returns hits without scores.
        """
        query = self._query(embedding, search)

        async def ask() -> list[Found]:
            return self._found(await self.store.aquery(query))

        def ask_blocking() -> list[Found]:
            try:
                return self._found(self.store.query(query))
            except NotImplementedError as error:
                raise UnsupportedFilterError(
                    f"{type(self.store).__name__} cannot evaluate {search.condition}: {error}", ""
                ) from error

        return Call(ask_blocking, ask if self.capabilities.real_async else None)

    def keyword(self, text: str, search: Search) -> Call[list[Found]]:  # noqa: ARG002 - refused
        """Refused.

        Raises:
            UnsupportedModeError: Always.
        """
        raise UnsupportedModeError(
            f"{type(self.store).__name__} has no keyword search that is known here; use "
            "BM25Retriever over the nodes or the docstore, or a store opened by URL"
        )

    def dense_and_keyword(
        self,
        embedding: Sequence[float],  # noqa: ARG002 - the protocol's
        text: str,  # noqa: ARG002 - the protocol's
        search: Search,  # noqa: ARG002 - the protocol's
    ) -> None:
        """None: there is no such request."""
        return

    def describe(self) -> Mapping[str, object]:
        """The store's class."""
        return {"engine": type(self.store).__name__}

    def _query(self, embedding: Sequence[float], search: Search) -> VectorStoreQuery:
        query = VectorStoreQuery(query_embedding=list(embedding), similarity_top_k=search.top_k)
        if search.condition is None:
            return query
        if isinstance(self.store, SimpleVectorStore):
            query.node_ids = _matching(self.store, search.condition)
        else:
            query.filters = as_metadata_filters(search.condition)
        return query

    def _found(self, result: VectorStoreQueryResult) -> list[Found]:
        nodes = result.nodes
        if nodes is None:
            nodes = self._lookup(result.ids or []) if self._lookup is not None else []
        scores = result.similarities or []
        if len(scores) != len(nodes):
            raise ScoreError(
                f"{type(self.store).__name__} returned {len(nodes)} nodes and {len(scores)} "
                "scores; a ranking needs a score for each"
            )
        pairs = zip(nodes, scores, strict=True)
        found = [Found(node, self._sign * self._finite(score, node)) for node, score in pairs]
        return sorted(found, key=lambda each: (-each.score, each.node_id))

    def _finite(self, score: float | None, node: BaseNode) -> float:
        if score is None or not math.isfinite(score):
            raise ScoreError(
                f"{type(self.store).__name__} gave node {node.node_id!r} the score {score}; "
                "it must be a finite number: check its embedding for zeros and NaN"
            )
        return float(score)


def _matching(store: SimpleVectorStore, condition: Condition) -> list[str]:
    known = store.data.metadata_dict
    return [node_id for node_id, metadata in known.items() if matches(condition, metadata)]
