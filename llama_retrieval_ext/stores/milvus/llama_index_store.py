"""Searches in the collection of a LlamaIndex `MilvusVectorStore`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import grpc
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index.vector_stores.milvus.utils import BaseSparseEmbeddingFunction
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    ScoreRange,
    Search,
    UnbatchedSearches,
)
from llama_retrieval_ext.stores.milvus.errors import is_released, meaning
from llama_retrieval_ext.stores.milvus.llama_index_filters import Narrowing, narrowing
from llama_retrieval_ext.stores.milvus.search import Hit, best_hits, check_within

T = TypeVar("T")

_CONTENT: Final = ["_node_content", "_node_type"]


class ForeignSearcher:
    """Asks the client of such a store for hits, and makes LlamaIndex's nodes of them.

    Args:
        store: The store.
    """

    def __init__(self, store: MilvusVectorStore) -> None:
        self._store = store
        self._columns: Mapping[str, Mapping[str, Any]] | None = None
        self._metric: str | None = None

    @property
    def metric(self) -> str:
        """How the collection compares embeddings: the index says, the store's setting may err."""
        if self._metric is None:
            told = self._ask(
                lambda client: client.describe_index(self._name, self._store.embedding_field)
            )
            self._metric = str((told or {}).get("metric_type") or self._store.similarity_metric)
        return self._metric

    @property
    def keyword_metric(self) -> str | None:
        """How the collection compares sparse vectors; None where it has none."""
        if not self._store.enable_sparse:
            return None
        own = isinstance(self._store.sparse_embedding_function, BaseSparseEmbeddingFunction)
        return "IP" if own else "BM25"  # otherwise it is Milvus's function

    def dense(self, embedding: Sequence[float], search: Search) -> list[Candidate]:
        """Nearest nodes to an embedding.

        Raises:
            DimensionMismatchError: It has another dimension than the collection.
            UnsupportedFilterError: More nodes may satisfy the condition than Milvus returns.
        """
        dimension = int(self.columns[self._store.embedding_field]["params"]["dim"])
        if len(embedding) != dimension:
            raise DimensionMismatchError(
                f"the query has an embedding of dimension {len(embedding)}, the collection "
                f"{self._name!r} holds {dimension}; ask with the model that it was filled with"
            )
        return self._found(
            list(embedding), self._store.embedding_field, search, _SCORES[self.metric]
        )

    def keyword(self, text: str, search: Search) -> list[Candidate]:
        """Nodes that the store's sparse function finds for a text; only those above 0."""
        function = self._store.sparse_embedding_function
        sought: object = text
        if isinstance(function, BaseSparseEmbeddingFunction):
            sought = function.encode_queries([text])[0]
        score = _SCORES["BM25"] if sought is text else _SCORES["IP"]
        if not text.strip() or not sought:
            return []
        found = self._found(sought, self._store.sparse_embedding_field, search, score)
        return [each for each in found if each.score > 0]

    @property
    def columns(self) -> Mapping[str, Mapping[str, Any]]:
        """The collection's columns by name."""
        if self._columns is None:
            told = self._ask(lambda client: client.describe_collection(self._name))
            self._columns = {column["name"]: column for column in told["fields"]}
        return self._columns

    def _found(
        self, sought: object, column: str, search: Search, score: Callable[[float], float]
    ) -> list[Candidate]:
        check_within(search.top_k)
        condition = search.condition
        whole = Narrowing(expression=True)
        narrowed = (
            whole if condition is None else narrowing(condition, columns=frozenset(self.columns))
        )
        if narrowed.expression is False:
            return []

        def keep(hit: Hit) -> bool:
            return narrowed.exact or matches(condition, self._node(hit).metadata)

        hits, may_lack = self._ask(
            lambda client: best_hits(
                lambda limit: self._hits(client, sought, column, narrowed, limit),
                top_k=search.top_k,
                score=lambda hit: score(hit["distance"]),
                keep=keep,
            )
        )
        if may_lack:
            raise UnsupportedFilterError(
                f"of the {len(hits)} nodes that Milvus can filter for {condition} too few satisfy "
                "it, and it returns no more; filter by strings, or open the store by URL and index "
                "the documents again",
                "",
            )
        found = [Candidate(self._node(hit), score(hit["distance"])) for hit in hits]
        return sorted(found, key=lambda each: (-each.score, each.node_id))[: search.top_k]

    def _hits(
        self, client: MilvusClient, sought: object, column: str, narrowed: Narrowing, limit: int
    ) -> list[Hit]:
        expression = narrowed.expression
        sparse = self.columns[column]["type"] == DataType.SPARSE_FLOAT_VECTOR
        pages = client.search(
            self._name,
            data=[sought],
            anns_field=column,
            filter=expression if isinstance(expression, str) else "",
            limit=limit,
            output_fields=[*_CONTENT, self._store.text_key],
            search_params={"metric_type": self.keyword_metric if sparse else self.metric},
        )
        return list(pages[0])

    def _node(self, hit: Hit) -> BaseNode:
        entity = hit["entity"]
        return metadata_dict_to_node(dict(entity), text=entity.get(self._store.text_key))

    def _ask(self, function: Callable[[MilvusClient], T]) -> T:
        client = self._store.client
        try:
            try:
                return function(client)
            except MilvusException as error:
                if not is_released(error):
                    raise
            client.load_collection(self._name)  # Milvus Lite opens every collection released
            return function(client)
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise meaning(error, str(self._store.uri)) from error

    @property
    def _name(self) -> str:
        return str(self._store.collection_name)


def _cosine(score: float) -> float:
    return min(1.0, max(-1.0, score))


def _negative_root(squared: float) -> float:
    return -math.sqrt(max(0.0, squared))


_SCORES: Final[Mapping[str, Callable[[float], float]]] = {
    "COSINE": _cosine,
    "IP": float,
    "L2": _negative_root,
    "BM25": abs,
}


_RANGES: Final = {
    "COSINE": ScoreRange("cosine", -1.0, 1.0),
    "IP": ScoreRange("dot"),
    "L2": ScoreRange("negative_distance", None, 0.0),
}


class ForeignBackend(UnbatchedSearches):
    """Asks the collection of a LlamaIndex `MilvusVectorStore`, by the store's own client.

    The store's ``query`` is not used: its filters turn into their opposites, are dropped, or let
    values break out of them. Filters by strings are Milvus's work; for others more nodes may be
    fetched than are wanted, 16,384 at most, and sorted out here.

    Keyword search is what the store's sparse function makes of it, where the store was made with
    ``enable_sparse``.

    Args:
        store: The store; whoever made it closes its clients.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "milvus"

    def __init__(self, store: MilvusVectorStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations
        self._searcher = ForeignSearcher(store)

    @property
    def features(self) -> EngineFeatures:
        """What the collection has; async callers wait in threads."""
        keyword = self._searcher.keyword_metric
        kind = "bm25" if keyword == "BM25" else "unknown"
        return EngineFeatures(
            dense=_RANGES[self._searcher.metric] if self.store.enable_dense else None,
            keyword=None if keyword is None else ScoreRange(kind, 0.0),
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nearest nodes to an embedding, by the collection's metric.

        Raises:
            UnsupportedModeError: The store was made with ``enable_dense=False``.
            UnsupportedFilterError: More nodes may satisfy the condition than Milvus returns.
        """
        if not self.store.enable_dense:
            raise UnsupportedModeError("the MilvusVectorStore was made with enable_dense=False")
        return Call(lambda: self._searcher.dense(embedding, search))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes that the store's sparse function finds for a text.

        Raises:
            UnsupportedModeError: The store was made without ``enable_sparse=True``.
        """
        if self._searcher.keyword_metric is None:
            raise UnsupportedModeError(
                "the MilvusVectorStore was made without enable_sparse=True; use BM25Retriever over "
                "the nodes, or a store opened by URL"
            )
        return Call(lambda: self._searcher.keyword(text, search))

    def describe(self) -> Mapping[str, object]:
        """The engine, and how the collection is set up."""
        return {
            "engine": self.engine,
            "store": type(self.store).__name__,
            "collection": str(self.store.collection_name),
            "metric": self._searcher.metric,
        }
