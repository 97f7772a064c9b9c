"""Searches in the collection of a LlamaIndex `MilvusVectorStore`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

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
from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.encoding.vectors import SCORE_RANGES, ScoreRange, cosine_score
from llama_retrieval_ext.stores.engine.backend import (
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.filtered_search import FilteredEngineSearch, FilteredSearch
from llama_retrieval_ext.stores.engine.search import EngineBackend, EngineRequest
from llama_retrieval_ext.stores.milvus.client import is_released, translate_error
from llama_retrieval_ext.stores.milvus.filters import Expression, filter_text
from llama_retrieval_ext.stores.milvus.llama_index_filters import Prefilter, prefilter
from llama_retrieval_ext.stores.milvus.search import (
    MAX_HITS,
    Hit,
    check_top_k_within,
    negative_root,
)

T = TypeVar("T")

_CONTENT: Final = ["_node_content", "_node_type"]
_SCORES: Final[Mapping[str, Callable[[float], float]]] = {
    "COSINE": cosine_score,
    "IP": float,
    "L2": negative_root,
    "BM25": abs,
}
_RANGES: Final = {
    "COSINE": SCORE_RANGES["cosine"],
    "IP": SCORE_RANGES["dot"],
    "L2": SCORE_RANGES["euclid"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefilteredSearch(FilteredSearch):
    """Search of a column."""

    data: object
    column: str
    filter: Expression


class LlamaIndexSearch(FilteredEngineSearch[Condition, PrefilteredSearch, Hit]):
    """Searches by a LlamaIndex store's client; the steps yield functions of the client."""

    most_hits: ClassVar[int] = MAX_HITS

    def __init__(self, store: MilvusVectorStore) -> None:
        super().__init__()
        self._store = store
        self._columns: Mapping[str, Mapping[str, Any]] | None = None
        self._metric: str | None = None

    @property
    def metric(self) -> str:
        """Metric of the embeddings in the collection's index; the store's setting may differ."""
        if self._metric is None:
            index = self.call(
                lambda client: client.describe_index(self._name, self._store.embedding_field)
            )
            self._metric = str((index or {}).get("metric_type") or self._store.similarity_metric)
        return self._metric

    @property
    def keyword_metric(self) -> str | None:
        """Metric of the sparse vectors; None if the collection has none."""
        if not self._store.enable_sparse:
            return None
        own = isinstance(self._store.sparse_embedding_function, BaseSparseEmbeddingFunction)
        return "IP" if own else "BM25"  # otherwise Milvus computes the sparse vectors

    @property
    def columns(self) -> Mapping[str, Mapping[str, Any]]:
        """The collection's columns by name."""
        if self._columns is None:
            description: dict[str, Any] = self.call(  # pyright: ignore[reportAssignmentType]
                lambda client: client.describe_collection(self._name)
            )
            self._columns = {column["name"]: column for column in description["fields"]}
        return self._columns

    def call(self, function: Callable[[MilvusClient], T]) -> T:
        """Call a function with the store's client; load the collection if it is not loaded."""
        client = self._store.client
        try:
            try:
                return function(client)
            except MilvusException as error:
                if not is_released(error):
                    raise
            client.load_collection(self._name)  # Milvus Lite opens collections unloaded
            return function(client)
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise translate_error(error, str(self._store.uri)) from error

    def compile(self, condition: Condition) -> Condition:
        """Return the condition unchanged: its expression depends on the columns."""
        return condition

    def vector_search(
        self, query: VectorQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch | None:
        """Return the search for the nearest nodes."""
        dimension = int(self.columns[self._store.embedding_field]["params"]["dim"])
        if len(query.embedding) != dimension:
            raise DimensionMismatchError(
                f"the query has an embedding of dimension {len(query.embedding)}, the collection "
                f"{self._name!r} holds {dimension}; ask with the model that it was filled with"
            )
        column = self._store.embedding_field
        return self._search_of(request, list(query.embedding), column, self.metric)

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch | None:
        """Return the search by the store's sparse function; None without terms."""
        function = self._store.sparse_embedding_function
        data: object = query.text
        if isinstance(function, BaseSparseEmbeddingFunction):
            data = function.encode_queries([query.text])[0]
        if not query.text.strip() or not data:
            return None
        column = self._store.sparse_embedding_field
        return self._search_of(request, data, column, "BM25" if data is query.text else "IP")

    def page(self, search: PrefilteredSearch, limit: int) -> Steps[list[Hit]]:
        """Return at most ``limit`` hits of a search."""
        hits: list[Hit] = yield lambda: self._send(search, limit)
        return hits

    def raw_scores(self, hits: Sequence[Hit]) -> list[float]:
        """Return Milvus's scores (its ``distance`` values)."""
        return [float(hit["distance"]) for hit in hits]

    def node(self, hit: Hit) -> BaseNode:
        """Return the node of a hit."""
        entity = hit["entity"]
        return metadata_dict_to_node(dict(entity), text=entity.get(self._store.text_key))

    def too_few(self, search: PrefilteredSearch) -> UnsupportedFilterError:
        """Return the error for a search that may miss hits beyond the limit."""
        return UnsupportedFilterError(
            f"of the {MAX_HITS} nodes that Milvus can filter for {search.condition} too few "
            "satisfy it, and it returns no more; filter by strings, or open the store by URL "
            "and index the documents again",
            "",
        )

    def _search_of(
        self, request: EngineRequest[Condition], data: object, column: str, metric: str
    ) -> PrefilteredSearch | None:
        check_top_k_within(request.top_k)
        compiled = Prefilter(expression=True)
        if request.filter is not None:
            compiled = prefilter(request.filter, columns=frozenset(self.columns))
        if compiled.expression is False:
            return None
        return PrefilteredSearch(
            top_k=request.top_k,
            score=_SCORES[metric],
            positive=column != self._store.embedding_field,
            data=data,
            column=column,
            filter=compiled.expression,
            condition=None if compiled.exact else request.filter,
        )

    def _send(self, search: PrefilteredSearch, limit: int) -> list[Hit]:
        sparse = self.columns[search.column]["type"] == DataType.SPARSE_FLOAT_VECTOR
        pages = self.call(
            lambda client: client.search(
                self._name,
                data=[search.data],
                anns_field=search.column,
                filter=filter_text(search.filter),
                limit=limit,
                output_fields=[*_CONTENT, self._store.text_key],
                search_params={"metric_type": self.keyword_metric if sparse else self.metric},
            )
        )
        return list(pages[0])

    @property
    def _name(self) -> str:
        return str(self._store.collection_name)


class LlamaIndexMilvusBackend(EngineBackend[MilvusVectorStore]):
    """Backend over the collection of a LlamaIndex `MilvusVectorStore`, with the store's client.

    The store's ``query`` is not used: it inverts or drops some filters, and does not escape values
    in them. Milvus evaluates filters on strings; for other filters the backend may fetch more nodes
    than it returns, at most 16,384, and filters them in Python.

    Keyword search uses the store's sparse function, if the store has ``enable_sparse``.
    """

    engine = "milvus"
    batches = False

    def __init__(self, store: MilvusVectorStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self._searcher = LlamaIndexSearch(store)

    @property
    def searcher(self) -> LlamaIndexSearch:
        """The engine's searches."""
        return self._searcher

    @property
    def features(self) -> EngineFeatures:
        """The searches that the collection supports; async callers wait in threads."""
        keyword = self._searcher.keyword_metric
        kind = "bm25" if keyword == "BM25" else "unknown"
        return EngineFeatures(
            dense=_RANGES[self._searcher.metric] if self.store.enable_dense else None,
            keyword=None if keyword is None else ScoreRange(kind, 0.0),
        )

    def check(self, query: EngineQuery) -> None:
        """Raise if the store does not support this search."""
        if isinstance(query, VectorQuery) and not self.store.enable_dense:
            raise UnsupportedModeError("the MilvusVectorStore was made with enable_dense=False")
        if isinstance(query, KeywordQuery) and self._searcher.keyword_metric is None:
            raise UnsupportedModeError(
                "the MilvusVectorStore was made without enable_sparse=True; use BM25Retriever over "
                "the nodes, or a store opened by URL"
            )

    def describe(self) -> Mapping[str, object]:
        """Return the engine and the collection's configuration."""
        return {
            "engine": self.engine,
            "store": type(self.store).__name__,
            "collection": str(self.store.collection_name),
            "metric": self._searcher.metric,
        }
