"""Backend for the collection of a LlamaIndex `MilvusVectorStore`, which stores raw metadata.

On such values Milvus and Milvus Lite differ from `matches`: true may equal 1, and strings are
escaped in different ways. So only comparisons with plain strings are exact.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index.vector_stores.milvus.utils import BaseSparseEmbeddingFunction
from pymilvus import MilvusClient

from llama_retrieval_ext.execution.drivers import drive
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar
from llama_retrieval_ext.stores.encoding.vectors import (
    SCORE_RANGES,
    Distance,
    ScoreRange,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.filters import Comparison
from llama_retrieval_ext.stores.engine.llama_index import (
    Prefilter,
    PrefilteredBackend,
    PrefilteredSearch,
    prefilters,
)
from llama_retrieval_ext.stores.milvus.client import CLIENT_ERRORS, call_loaded, translate_error
from llama_retrieval_ext.stores.milvus.filters import (
    LANGUAGE,
    Expression,
    any_of,
    compare,
    exists,
    filter_text,
)
from llama_retrieval_ext.stores.milvus.params import METRICS
from llama_retrieval_ext.stores.milvus.schema import Rows
from llama_retrieval_ext.stores.milvus.store import MAX_HITS, SCORES, Hit, check_top_k_within

T = TypeVar("T")
_Prefilter: TypeAlias = Prefilter[Expression]

_CONTENT: Final = ["_node_content", "_node_type"]
_DISTANCES: Final[Mapping[str, Distance]] = {name: distance for distance, name in METRICS.items()}
# Keys whose values LlamaIndex overwrites.
_RESERVED: Final = {"id", "doc_id", "document_id", "ref_doc_id", *_CONTENT}
_KEY: Final = re.compile(r"[\w .:/@+-]+")
# No quotes, back-slashes, wildcards and control characters: the same in every dialect.
_PLAIN: Final = re.compile(r"[^\"'\\%_{}`\x00-\x1f\x7f]*")
# Below this, equal integers and floats compare equal in JSON and in Python.
_EXACT: Final = 2**53


class LlamaIndexMilvusBackend(PrefilteredBackend[MilvusVectorStore, Hit]):
    """Backend over the collection of a LlamaIndex `MilvusVectorStore`, with the store's client.

    The store's ``query`` is not used: it inverts or drops some filters, and does not escape values
    in them. Milvus evaluates filters on strings; for other filters the backend may fetch more nodes
    than it returns, at most 16,384, and filters them in Python.

    Keyword search uses the store's sparse function, if the store has ``enable_sparse``.
    """

    engine_name = "milvus"
    most_candidates: ClassVar[int] = MAX_HITS
    score_field = "distance"
    advice: ClassVar[Mapping[str, str]] = {
        "dense": "it was made with enable_dense=False",
        "keyword": "it was made without enable_sparse=True; use BM25Retriever over the nodes, or a "
        "store opened by URL",
    }

    @property
    def where(self) -> str:
        """The collection, for messages."""
        return f"the collection {self._store.collection_name!r}"

    @property
    def features(self) -> EngineFeatures:
        """The searches that the collection supports; async callers wait in threads."""
        store, keyword = self._store, None
        if store.enable_sparse:
            keyword = ScoreRange("bm25" if self._encoder is None else "unknown", 0.0)
        dense = SCORE_RANGES[_DISTANCES[self._metric]] if store.enable_dense else None
        return EngineFeatures(dense=dense, keyword=keyword, most_hits=MAX_HITS)

    def call(self, steps: Callable[[], Steps[T]], *, empty: T) -> Call[T]:
        """Return the call that runs steps, which are functions of the client."""
        del empty  # the store creates the collection
        return Call(lambda: drive(steps(), self._send))

    def prefilter(self, condition: Condition) -> _Prefilter:
        """Return the strictest prefilter for a condition on the collection."""
        return prefilter(condition, columns=frozenset(self._columns))

    def vector_search(self, embedding: Sequence[float], search: Search) -> PrefilteredSearch[Hit]:
        """Return the search for the nearest nodes."""
        check_top_k_within(search.top_k)
        column, metric = self._store.embedding_field, self._metric
        vector = query_vector(
            embedding,
            dimension=int(self._columns[column]["params"]["dim"]),
            distance=_DISTANCES[metric],
            where=self.where,
        )
        return self.prefiltered(search, (vector, column, metric), score=SCORES[metric])

    def keyword_search(self, text: str, search: Search) -> PrefilteredSearch[Hit] | None:
        """Return the search by the store's sparse function; None without terms."""
        check_top_k_within(search.top_k)
        data: object = text if self._encoder is None else self._encoder.encode_queries([text])[0]
        if not text.strip() or not data:
            return None
        # Without a function, Milvus computes the sparse vectors.
        metric = "BM25" if self._encoder is None else "IP"
        body = (data, self._store.sparse_embedding_field, metric)
        return self.prefiltered(search, body, score=SCORES[metric], positive=True)

    def send(self, body: Any, expression: Expression | None, limit: int) -> Steps[list[Hit]]:  # noqa: ANN401 - data of Milvus
        """Send a search with a filter."""
        data, column, metric = body
        if expression is False:
            return []
        pages = yield lambda client: client.search(
            self._store.collection_name,
            data=[data],
            anns_field=column,
            filter=filter_text(expression),
            limit=limit,
            output_fields=[*_CONTENT, self._store.text_key],
            search_params={"metric_type": metric},
        )
        return list(pages[0])

    def node(self, hit: Hit) -> BaseNode:
        """Return the node of a hit."""
        entity = hit["entity"]
        return metadata_dict_to_node(dict(entity), text=entity.get(self._store.text_key))

    def all_nodes(self) -> Call[list[BaseNode]]:
        """Return all nodes of the collection."""
        store = self._store

        def read(client: MilvusClient) -> list[BaseNode]:
            key = next(name for name, column in self._columns.items() if column.get("is_primary"))
            columns, is_lite = [*_CONTENT, store.text_key], "://" not in str(store.uri)
            rows = Rows(store.collection_name, key, columns, is_lite)
            return [self.node({"entity": row}) for row in rows.read(client)]

        return Call(lambda: self._send(read))

    @property
    def _encoder(self) -> BaseSparseEmbeddingFunction | None:
        function = self._store.sparse_embedding_function
        return function if isinstance(function, BaseSparseEmbeddingFunction) else None

    @cached_property
    def _metric(self) -> str:
        """Metric of the embeddings in the collection's index; the store's setting may differ."""
        column = self._store.embedding_field
        index = self._send(
            lambda client: client.describe_index(self._store.collection_name, column)
        )
        return str((index or {}).get("metric_type") or self._store.similarity_metric)

    @cached_property
    def _columns(self) -> Mapping[str, Mapping[str, Any]]:
        """The collection's columns by name."""
        described = self._send(
            lambda client: client.describe_collection(self._store.collection_name)
        )
        return {column["name"]: column for column in described["fields"]}

    def _send(self, function: Callable[[MilvusClient], Any]) -> Any:  # noqa: ANN401 - pymilvus's
        """Call a function with the store's client; Milvus Lite opens collections unloaded."""
        name = self._store.collection_name
        try:
            return call_loaded(self._store.client, function, lambda c: c.load_collection(name))
        except CLIENT_ERRORS as error:
            raise translate_error(error, str(self._store.uri)) from error


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexMilvusBackend(store) if isinstance(store, MilvusVectorStore) else None


_EVERYTHING: Final[_Prefilter] = Prefilter(expression=True)


def prefilter(condition: Condition, *, columns: frozenset[str] = frozenset()) -> _Prefilter:
    """Return the strictest prefilter for a condition.

    Examples:
        >>> from llama_retrieval_ext.filters import Compare
        >>> prefilter(Compare("lang", FilterOperator.EQ, "en")).expression
        '((exists $meta["lang"]) and $meta["lang"] == "en")'

    """

    def on_field(comparison: Comparison[_Prefilter]) -> Comparison[_Prefilter]:
        def test(key: str, value: object) -> _Prefilter:
            if key in _RESERVED | columns or not _KEY.fullmatch(key):
                return _EVERYTHING
            return comparison(f'$meta["{key}"]', value)

        return test

    comparisons = {operator: on_field(test) for operator, test in _COMPARISONS.items()}
    return prefilters(comparisons, LANGUAGE, everything=True).write(condition)


def _equal(field: str, value: Scalar) -> _Prefilter:
    if isinstance(value, bool):  # true may equal 1
        return Prefilter(exists(field))
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value)
        return Prefilter(compare(field, f'== "{value}"'), exact=True) if is_plain else _EVERYTHING
    return _compared("==")(field, value)


def _compared(sign: str) -> Comparison[_Prefilter]:
    def compared(field: str, value: Scalar) -> _Prefilter:
        if isinstance(value, str):  # a date
            return Prefilter(exists(field))
        is_exact = abs(value) < _EXACT
        return Prefilter(compare(field, f"{sign} {value}")) if is_exact else _EVERYTHING

    return compared


_COMPARISONS: Final[Mapping[FilterOperator, Comparison[_Prefilter]]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.IN: lambda field, values: Prefilter.joined(
        any_of, [_equal(field, value) for value in values]
    ),
    **{operator: _compared(operator.value) for operator in ORDER_OPERATORS},
    **dict.fromkeys(
        (FilterOperator.ANY, FilterOperator.CONTAINS, FilterOperator.TEXT_MATCH_INSENSITIVE),
        lambda field, _: Prefilter(exists(field)),
    ),
    **dict.fromkeys((FilterOperator.ALL, FilterOperator.IS_EMPTY), lambda *_: _EVERYTHING),
    FilterOperator.TEXT_MATCH: lambda field, text: (
        Prefilter(compare(field, f'like "%{text}%"'))
        if text and _PLAIN.fullmatch(text)
        else _EVERYTHING
    ),
}
