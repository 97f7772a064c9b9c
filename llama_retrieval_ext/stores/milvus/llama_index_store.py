"""Backend for the collection of a LlamaIndex `MilvusVectorStore`, which stores raw metadata.

On such values Milvus and Milvus Lite differ from `matches`: true may equal 1, and strings are
escaped in different ways. So only comparisons with plain strings are exact.
"""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.milvus import MilvusVectorStore
from llama_index.vector_stores.milvus.utils import BaseSparseEmbeddingFunction
from pymilvus import MilvusClient

from llama_retrieval_ext.execution.drivers import drive
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Scalar
from llama_retrieval_ext.stores.encoding.vectors import (
    SCORE_RANGES,
    Distance,
    ScoreRange,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.filters import FilterLanguage
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
from llama_retrieval_ext.stores.milvus.schema import read_rows
from llama_retrieval_ext.stores.milvus.store import MAX_HITS, SCORES, Hit

T = TypeVar("T")

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

    def __init__(self, store: MilvusVectorStore, *, drop_violations: bool = False) -> None:
        where = f"the collection {store.collection_name!r}"
        super().__init__(store, where, drop_violations=drop_violations)
        self.prefilters = prefilters_of(lambda: self._columns)

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

    def vector_search(self, embedding: Sequence[float], search: Search) -> PrefilteredSearch[Hit]:
        """Return the search for the nearest nodes."""
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
            name = store.collection_name
            rows = read_rows(client, name, columns, key=key, is_lite=is_lite)
            return [self.node({"entity": row}) for row in rows]

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


def prefilters_of(columns: Callable[[], Container[str]]) -> FilterLanguage[Prefilter[Expression]]:
    """Return the prefilters for a collection with these columns.

    Examples:
        >>> from llama_index.core.vector_stores import FilterOperator
        >>> from llama_retrieval_ext.filters import Compare
        >>> equal = Compare("lang", FilterOperator.EQ, "en")
        >>> prefilters_of(lambda: ()).write(equal).expression
        '((exists $meta["lang"]) and $meta["lang"] == "en")'

    """

    def field(key: str) -> str:
        """Return the field of a key in an expression; empty where LlamaIndex overwrites it."""
        is_plain = _KEY.fullmatch(key) and key not in _RESERVED and key not in columns()
        return f'$meta["{key}"]' if is_plain else ""

    def test(key: str, sign: str, value: Scalar, *, wildcard: str = "") -> str | None:
        """Return the comparison of a key; None where Milvus, Milvus Lite and Python differ."""
        operand, name = "", field(key)
        if isinstance(value, str):
            operand = f'"{wildcard}{value}{wildcard}"' if _PLAIN.fullmatch(value) else ""
        elif not isinstance(value, bool):  # true may equal 1
            operand = str(value) if abs(value) < _EXACT else ""
        return compare(name, f"{sign} {operand}") if name and operand else None

    def among(key: str, values: Sequence[Scalar]) -> Prefilter[Expression] | None:
        tests = [test(key, "==", value) for value in values]
        parts = [part for part in tests if part is not None]
        if len(parts) < len(tests):
            return None
        return Prefilter(any_of(parts), exact=all(isinstance(value, str) for value in values))

    return prefilters(
        LANGUAGE,
        everything=True,
        exists=lambda key: exists(field(key)) if field(key) else True,
        is_empty=lambda _: True,
        among=among,
        ordered=lambda key, operator, value: (
            None if isinstance(value, str) else test(key, operator.value, value)
        ),
        contains=lambda key, text: test(key, "like", text, wildcard="%") if text else None,
    )


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexMilvusBackend(store) if isinstance(store, MilvusVectorStore) else None
