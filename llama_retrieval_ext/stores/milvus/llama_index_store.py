"""Searches in the collection of a LlamaIndex `MilvusVectorStore`, which stores raw metadata.

On such values Milvus and Milvus Lite differ from `matches`: true may equal 1, and strings are
escaped in different ways. So a condition becomes an expression that every matching node satisfies,
and a flag for whether other nodes may satisfy it; those are then removed in Python.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index.vector_stores.milvus.utils import BaseSparseEmbeddingFunction
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar
from llama_retrieval_ext.stores.encoding.vectors import (
    SCORE_RANGES,
    Distance,
    ScoreRange,
    cosine_score,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import (
    Backend,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.engine_backend import EngineBackend
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage
from llama_retrieval_ext.stores.engine.llama_index import PrefilteredEngineSearch, PrefilteredSearch
from llama_retrieval_ext.stores.engine.search import EngineRequest
from llama_retrieval_ext.stores.milvus.client import CLIENT_ERRORS, call_loaded, translate_error
from llama_retrieval_ext.stores.milvus.filters import (
    Expression,
    all_of,
    any_of,
    compare,
    exists,
    filter_text,
    negated,
)
from llama_retrieval_ext.stores.milvus.nodes import Rows
from llama_retrieval_ext.stores.milvus.params import METRICS
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
_DISTANCES: Final[Mapping[str, Distance]] = {
    metric: distance for distance, metric in METRICS.items()
}
# Keys whose values LlamaIndex overwrites.
_RESERVED: Final = {"id", "doc_id", "document_id", "ref_doc_id", "_node_content", "_node_type"}
_KEY: Final = re.compile(r"[\w .:/@+-]+")
# No quotes, back-slashes, wildcards, control characters or surrogates: the same in every dialect.
_PLAIN: Final = re.compile(r"[^\"'\\%_{}`\x00-\x1f\x7f\ud800-\udfff]*")
# Below this, equal integers and floats compare equal in JSON and in Python.
_EXACT: Final = 2**53


class LlamaIndexMilvusSearch(PrefilteredEngineSearch[Hit]):
    """Searches by a LlamaIndex store's client; the steps yield functions of the client."""

    most_hits: ClassVar[int] = MAX_HITS

    def __init__(self, store: MilvusVectorStore) -> None:
        super().__init__()
        self._name = str(store.collection_name)
        self.where = f"the collection {self._name!r}"
        self._store = store

    @cached_property
    def metric(self) -> str:
        """Metric of the embeddings in the collection's index; the store's setting may differ."""
        index = self.call(
            lambda client: client.describe_index(self._name, self._store.embedding_field)
        )
        return str((index or {}).get("metric_type") or self._store.similarity_metric)

    @property
    def keyword_metric(self) -> str | None:
        """Metric of the sparse vectors; None if the collection has none."""
        if not self._store.enable_sparse:
            return None
        own = isinstance(self._store.sparse_embedding_function, BaseSparseEmbeddingFunction)
        return "IP" if own else "BM25"  # otherwise Milvus computes the sparse vectors

    @cached_property
    def columns(self) -> Mapping[str, Mapping[str, Any]]:
        """The collection's columns by name."""
        description: dict[str, Any] = self.call(  # pyright: ignore[reportAssignmentType]
            lambda client: client.describe_collection(self._name)
        )
        return {column["name"]: column for column in description["fields"]}

    def call(self, function: Callable[[MilvusClient], T]) -> T:
        """Call a function with the store's client; load the collection if it is not loaded."""
        name = self._name  # Milvus Lite opens collections unloaded
        try:
            return call_loaded(self._store.client, function, lambda c: c.load_collection(name))
        except CLIENT_ERRORS as error:
            raise translate_error(error, str(self._store.uri)) from error

    def vector_search(
        self, query: VectorQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch[Hit] | None:
        """Return the search for the nearest nodes."""
        column = self._store.embedding_field
        vector = query_vector(
            query.embedding,
            dimension=int(self.columns[column]["params"]["dim"]),
            distance=_DISTANCES[self.metric],
            where=self.where,
        )
        return self._search_of(request, vector, column, self.metric)

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch[Hit] | None:
        """Return the search by the store's sparse function; None without terms."""
        function = self._store.sparse_embedding_function
        data: object = query.text
        if isinstance(function, BaseSparseEmbeddingFunction):
            data = function.encode_queries([query.text])[0]
        if not query.text.strip() or not data:
            return None
        column = self._store.sparse_embedding_field
        return self._search_of(request, data, column, self.keyword_metric or "BM25")

    def raw_scores(self, hits: Sequence[Hit]) -> list[float]:
        """Return Milvus's scores (its ``distance`` values)."""
        return [float(hit["distance"]) for hit in hits]

    def node(self, hit: Hit) -> BaseNode:
        """Return the node of a hit."""
        entity = hit["entity"]
        return metadata_dict_to_node(dict(entity), text=entity.get(self._store.text_key))

    def all_nodes(self) -> list[BaseNode]:
        """Return all nodes of the collection."""
        key = next(name for name, column in self.columns.items() if column.get("is_primary"))
        columns = [*_CONTENT, self._store.text_key]
        query = Rows(self._name, key, columns, is_lite="://" not in str(self._store.uri))
        rows = self.call(lambda client: query.read(client, ""))
        return [self.node({"entity": row}) for row in rows]

    def _search_of(
        self, request: EngineRequest[Condition], data: object, column: str, metric: str
    ) -> PrefilteredSearch[Hit] | None:
        check_top_k_within(request.top_k)
        compiled = Prefilter(expression=True)
        if request.filter is not None:
            compiled = prefilter(request.filter, columns=frozenset(self.columns))
        if compiled.expression is False:
            return None

        def send(client: MilvusClient, limit: int) -> list[Hit]:
            pages = client.search(
                self._name,
                data=[data],
                anns_field=column,
                filter=filter_text(compiled.expression),
                limit=limit,
                output_fields=[*_CONTENT, self._store.text_key],
                search_params={"metric_type": metric},
            )
            return list(pages[0])

        def page(limit: int) -> Steps[list[Hit]]:
            hits: list[Hit] = yield lambda: self.call(lambda client: send(client, limit))
            return hits

        return PrefilteredSearch(
            top_k=request.top_k,
            score=_SCORES[metric],
            positive=column != self._store.embedding_field,
            page=page,
            condition=None if compiled.exact else request.filter,
        )


@dataclass(frozen=True, slots=True)
class Prefilter:
    """An expression that every matching node satisfies; if exact, no other node does."""

    expression: Expression
    exact: bool = True


_PASS_ALL: Final = Prefilter(expression=True, exact=False)


def prefilter(condition: Condition, *, columns: frozenset[str] = frozenset()) -> Prefilter:
    """Return the strictest prefilter for a condition.

    Examples:
        >>> from llama_retrieval_ext.filters import Compare
        >>> prefilter(Compare("lang", FilterOperator.EQ, "en")).expression
        '((exists $meta["lang"]) and $meta["lang"] == "en")'

    """

    def on_field(comparison: Comparison[Prefilter]) -> Comparison[Prefilter]:
        def test(key: str, value: object) -> Prefilter:
            if key in _RESERVED | columns or not _KEY.fullmatch(key):
                return _PASS_ALL
            return comparison(f'$meta["{key}"]', value)

        return test

    comparisons = {operator: on_field(each) for operator, each in _COMPARISONS.items()}
    return FilterLanguage(comparisons, _joined(all_of), _any_of, _negated).write(condition)


def _joined(
    join: Callable[[Sequence[Expression]], Expression],
) -> Callable[[Sequence[Prefilter]], Prefilter]:
    def joined(parts: Sequence[Prefilter]) -> Prefilter:
        expression = join([part.expression for part in parts])
        return Prefilter(expression, exact=all(part.exact for part in parts))

    return joined


_any_of: Final = _joined(any_of)


def _negated(part: Prefilter) -> Prefilter:
    return Prefilter(negated(part.expression)) if part.exact else _PASS_ALL


def _equal(field: str, value: Scalar) -> Prefilter:
    if isinstance(value, bool):  # true may equal 1
        return _exists(field, value)
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value)
        return Prefilter(compare(field, f'== "{value}"')) if is_plain else _PASS_ALL
    return _compared("==")(field, value)


def _compared(sign: str) -> Comparison[Prefilter]:
    def compared(field: str, value: Scalar) -> Prefilter:
        if isinstance(value, str):  # a date
            return _exists(field, value)
        if abs(value) >= _EXACT:
            return _PASS_ALL
        return Prefilter(compare(field, f"{sign} {value}"), exact=False)

    return compared


def _contains_text(field: str, text: str) -> Prefilter:
    if not text or not _PLAIN.fullmatch(text):
        return _PASS_ALL
    return Prefilter(compare(field, f'like "%{text}%"'), exact=False)


def _exists(field: str, _: object) -> Prefilter:
    return Prefilter(exists(field), exact=False)


_COMPARISONS: Final[Mapping[FilterOperator, Comparison[Prefilter]]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.IN: lambda field, values: _any_of([_equal(field, value) for value in values]),
    **{operator: _compared(operator.value) for operator in ORDER_OPERATORS},
    FilterOperator.ANY: _exists,
    FilterOperator.ALL: lambda _, __: _PASS_ALL,
    FilterOperator.CONTAINS: _exists,
    FilterOperator.TEXT_MATCH: _contains_text,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _exists,
    FilterOperator.IS_EMPTY: lambda _, __: _PASS_ALL,
}


class LlamaIndexMilvusBackend(EngineBackend[MilvusVectorStore]):
    """Backend over the collection of a LlamaIndex `MilvusVectorStore`, with the store's client.

    The store's ``query`` is not used: it inverts or drops some filters, and does not escape values
    in them. Milvus evaluates filters on strings; for other filters the backend may fetch more nodes
    than it returns, at most 16,384, and filters them in Python.

    Keyword search uses the store's sparse function, if the store has ``enable_sparse``.
    """

    engine = "milvus"

    def __init__(self, store: MilvusVectorStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self._searcher = LlamaIndexMilvusSearch(store)

    @property
    def searcher(self) -> LlamaIndexMilvusSearch:
        """The engine's searches."""
        return self._searcher

    @property
    def features(self) -> EngineFeatures:
        """The searches that the collection supports; async callers wait in threads."""
        keyword = self._searcher.keyword_metric
        kind = "bm25" if keyword == "BM25" else "unknown"
        return EngineFeatures(
            dense=SCORE_RANGES[_DISTANCES[self._searcher.metric]]
            if self.store.enable_dense
            else None,
            keyword=None if keyword is None else ScoreRange(kind, 0.0),
            most_hits=self._searcher.most_hits,
        )

    def all_nodes(self) -> Call[list[BaseNode]]:
        """Return all nodes of the collection."""
        return Call(self._searcher.all_nodes)

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


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexMilvusBackend(store) if isinstance(store, MilvusVectorStore) else None
