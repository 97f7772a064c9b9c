"""Searches of an index created by LlamaIndex's ``ElasticsearchStore``, with raw scores.

Its fields do not distinguish a string from a list that contains it, nor 0.1 from its neighbours,
and do not index substrings. So a query may match nodes that do not satisfy the condition; those
are then removed in Python.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from elasticsearch.helpers.vectorstore import AsyncDenseVectorStrategy
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.elasticsearch import ElasticsearchStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar
from llama_retrieval_ext.stores.elasticsearch.client import (
    ClientConfig,
    Json,
    Requests,
    Transport,
    hits_of,
    json_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import EVERYTHING, NOTHING, all_of, any_of
from llama_retrieval_ext.stores.elasticsearch.params import SIMILARITY_NAMES
from llama_retrieval_ext.stores.elasticsearch.schema import (
    SCORES,
    SEARCH_PARAMS,
    WINDOW,
    compact_vector,
)
from llama_retrieval_ext.stores.encoding.vectors import (
    BM25_RANGE,
    SCORE_RANGES,
    Distance,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import (
    Backend,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.engine_backend import EngineBackend
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage
from llama_retrieval_ext.stores.engine.llama_index import PrefilteredEngineSearch, PrefilteredSearch
from llama_retrieval_ext.stores.engine.search import EngineRequest

T = TypeVar("T")

_CANDIDATES: Final = 1_000
_MAX_WORDS: Final = 1_024
_RANGES: Final = {
    "COSINE": SCORE_RANGES["cosine"],
    "DOT_PRODUCT": SCORE_RANGES["cosine"],  # of vectors of length 1
    "EUCLIDEAN_DISTANCE": SCORE_RANGES["euclid"],
}
_DISTANCES: Final[Mapping[str, Distance]] = {
    **{name: distance for distance, name in SIMILARITY_NAMES.items()},
    "dot_product": "cosine",
}
# Types of fields for numbers, as the engine chooses or users declare them; the bits of integers.
_INTEGERS: Final = {"long": 63, "integer": 31, "short": 15, "byte": 7}
_NUMBERS: Final = {**_INTEGERS, **dict.fromkeys(("double", "float", "half_float"), 0)}
_UNLIMITED: Final = 2**31 - 1


class LlamaIndexElasticsearchSearch(PrefilteredEngineSearch[Json]):
    """Searches of such an index for one caller; the steps yield requests."""

    most_hits: ClassVar[int] = WINDOW

    def __init__(self, store: ElasticsearchStore) -> None:
        super().__init__()
        self.where = f"the index {store.index_name!r}"
        self._store = store
        self._fields = IndexFields()

    def if_exists(self, steps: Callable[[], Requests[T]], *, empty: T) -> Requests[T]:
        """Read the index's current fields, and run steps if the index exists."""
        params = {"ignore_unavailable": "true"}
        description = yield json_request("GET", self._store.index_name, "_mapping", params=params)
        if not description:
            return empty
        self._fields = IndexFields.of_index(description, vector_field=self._store.vector_field)
        return (yield from steps())

    def vector_search(
        self, query: VectorQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch[Json] | None:
        """Return the search for the nearest nodes; None for zeros with cosine."""
        if self._fields.similarity is None:
            raise UnsupportedModeError(f"{self.where} holds no embeddings")
        distance = _DISTANCES[self._fields.similarity]
        checked = query_vector(
            query.embedding,
            dimension=self._fields.dimension or len(query.embedding),
            distance=distance,
            where=self.where,
        )
        vector = compact_vector(checked, distance)
        if vector is None:
            return None
        filter_ = self._prefilter(request)

        def body(limit: int) -> Json:
            knn = {
                "field": self._store.vector_field,
                "query_vector": vector,
                "k": limit,
                "num_candidates": min(max(_CANDIDATES, 2 * limit), WINDOW),
                "filter": [filter_],
            }
            return {"knn": knn}

        return self._search_of(request, SCORES[distance], body)

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch[Json] | None:
        """Return the search for shared words; None without words."""
        words = " ".join(query.text.split()[:_MAX_WORDS])
        if not words:
            return None
        match: Json = {"match": {self._store.text_field: {"query": words}}}
        filtered = {"bool": {"must": [match], "filter": [self._prefilter(request)]}}
        return self._search_of(request, float, lambda _: {"query": filtered})

    def raw_scores(self, hits: Sequence[Json]) -> list[float]:
        """Return the engine's scores."""
        return [float(hit["_score"]) for hit in hits]

    def node(self, hit: Json) -> BaseNode:
        """Return the node of a hit."""
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self._store.text_field))

    def _prefilter(self, request: EngineRequest[Condition]) -> Json:
        return EVERYTHING if request.filter is None else self._fields.prefilter(request.filter)

    def _search_of(
        self,
        request: EngineRequest[Condition],
        score: Callable[[float], float],
        body: Callable[[int], Json],
    ) -> PrefilteredSearch[Json]:
        """Return the search whose requests have the body for a number of hits."""

        def page(limit: int) -> Requests[list[Json]]:
            parts = {
                **body(limit),
                "size": limit,
                "track_total_hits": False,
                "_source": [self._store.text_field, "metadata"],
            }
            index = self._store.index_name
            post = json_request("POST", index, "_search", params=SEARCH_PARAMS, body=parts)
            return (yield from read(post, hits_of))

        return PrefilteredSearch(
            top_k=request.top_k, score=score, page=page, condition=request.filter
        )


@dataclass(frozen=True, slots=True)
class IndexFields:
    """The fields of an index: strings with the longest that is indexed, numbers with their bits."""

    similarity: str | None = None
    dimension: int | None = None
    strings: dict[str, tuple[str, int]] = field(default_factory=dict)
    numbers: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def of_index(cls, description: Json, *, vector_field: str) -> "IndexFields":
        """Return the fields from the engine's description of an index."""
        for index in description.values():
            properties: Json = index.get("mappings", {}).get("properties", {})
            vector = properties.get(vector_field, {})
            fields = cls(vector.get("similarity"), vector.get("dims"))
            fields._collect(properties.get("metadata", {}), "")
            return fields
        return cls()

    def _collect(self, parent: Json, key: str) -> None:
        """Collect the fields of a metadata mapping, nested ones included."""
        for name, mapping in parent.get("properties", {}).items():
            own = f"{key}.{name}" if key else name
            path, kind = f"metadata.{own}", mapping.get("type")
            below = mapping.get("fields", {}).get("keyword", {})
            if kind == "keyword":
                self.strings[own] = path, mapping.get("ignore_above", _UNLIMITED)
            elif below.get("type") == "keyword":
                self.strings[own] = f"{path}.keyword", below.get("ignore_above", _UNLIMITED)
            elif kind in _NUMBERS:
                self.numbers[own] = path, _NUMBERS[kind]
            self._collect(mapping, own)

    def prefilter(self, condition: Condition) -> Json:
        """Return a query for every node that satisfies the condition; it may match others."""
        comparisons: Mapping[FilterOperator, Comparison[Json]] = {
            FilterOperator.EQ: lambda key, value: self._among(key, [value]),
            FilterOperator.IN: self._among,
            **{
                operator: self._bounded(f"{operator.name[0].lower()}te")
                for operator in ORDER_OPERATORS
            },
            FilterOperator.ANY: self._among,
            FilterOperator.ALL: lambda key, values: all_of(
                [self._among(key, [value]) for value in values]  # without values, empty lists match
            ),
            FilterOperator.CONTAINS: lambda key, value: self._among(key, [value]),
            FilterOperator.TEXT_MATCH: lambda key, _: _exists(key),
            FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, _: _exists(key),
            FilterOperator.IS_EMPTY: lambda key, _: {"bool": {"must_not": [_exists(key)]}},
        }
        return FilterLanguage(comparisons, all_of, any_of, _negated).write(condition)

    def _among(self, key: str, values: Sequence[Scalar]) -> Json:
        if not values:
            return NOTHING
        if any(isinstance(value, bool) for value in values):
            return _exists(key)
        path, longest = self.strings.get(key, ("", -1))
        if all(isinstance(value, str) and len(value) <= longest for value in values):
            return {"terms": {path: list(values)}}
        if key in self.numbers and all(not isinstance(value, str) for value in values):
            return any_of([self._within(key, {"gte": value, "lte": value}) for value in values])
        return _exists(key)

    def _bounded(self, bound: str) -> Comparison[Json]:
        def compare(key: str, value: Scalar) -> Json:
            if isinstance(value, str) or key not in self.numbers:  # a string is a date
                return _exists(key)
            return self._within(key, {bound: value})

        return compare

    def _within(self, key: str, bounds: Mapping[str, Scalar]) -> Json:
        path, bits = self.numbers[key]
        if bits:  # the engine cuts decimals off what it indexes, and refuses larger bounds
            least, most = -(2**bits), 2**bits - 1
            bounds = {name: max(least, min(int(each), most)) for name, each in bounds.items()}
        return {"range": {path: dict(bounds)}}


def _exists(key: str) -> Json:
    return {"exists": {"field": f"metadata.{key}"}}


def _negated(part: Json) -> Json:
    match part:
        case {"bool": {"must_not": [{"exists": field_}]}}:
            return {"exists": field_}
        case _:  # it may match too many nodes, so its negation would match too few
            return EVERYTHING


class LlamaIndexElasticsearchBackend(EngineBackend[ElasticsearchStore]):
    """Backend over the index of a LlamaIndex ``ElasticsearchStore``, with its own clients.

    The store's ``query`` is not used: it runs on one event loop only, stretches the scores of each
    answer to 0 to 1, and drops or inverts most filters. This backend returns raw scores, and its
    filters are exact: those that the engine cannot evaluate on such an index (NOT, NE, NIN, text
    within strings, strings beside lists) are evaluated in Python, on the best 10,000 nodes. If too
    few of these match, the query is refused. Keyword search depends on the analyser of the text
    field, which cuts Chinese into single characters.
    """

    engine = "elasticsearch"

    def __init__(self, store: ElasticsearchStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self._transport = Transport(ClientConfig.of_client(store.client))
        weakref.finalize(self, self._transport.close)

    @property
    def features(self) -> EngineFeatures:
        """Vector search if the store supports it, and keyword search."""
        has_vectors = isinstance(self.store.retrieval_strategy, AsyncDenseVectorStrategy)
        return EngineFeatures(
            dense=_RANGES[self.store.distance_strategy or "COSINE"] if has_vectors else None,
            keyword=BM25_RANGE,
            most_hits=LlamaIndexElasticsearchSearch.most_hits,
            real_async=True,
        )

    @property
    def searcher(self) -> LlamaIndexElasticsearchSearch:
        """New searches; each reads the index's current fields."""
        return LlamaIndexElasticsearchSearch(self.store)

    def call(self, steps: Callable[[], Requests[T]]) -> Call[T]:
        """Return the call that executes the requests."""
        return self._transport.call(steps)

    def nodes(self, ids: Sequence[str]) -> Call[dict[str, BaseNode]]:
        """Return the nodes with these ids, with their embeddings; the store omits these."""
        index, store = self.store.index_name, self.store
        body = {"query": {"ids": {"values": [*ids]}}, "size": len(ids)}

        def steps() -> Requests[dict[str, BaseNode]]:
            found = {}
            for hit in (
                yield from read(json_request("POST", index, "_search", body=body), hits_of)
            ):
                node = self.searcher.node(hit)
                node.embedding = hit["_source"].get(store.vector_field)
                found[node.node_id] = node
            return found

        return self.call(steps)

    def check(self, query: EngineQuery) -> None:
        """Raise if the store does not support vector search."""
        if isinstance(query, VectorQuery) and self.features.dense is None:
            raise UnsupportedModeError(
                "this ElasticsearchStore was made for keyword search alone; make it with "
                "AsyncDenseVectorStrategy, or open a store by URL"
            )

    def describe(self) -> Mapping[str, object]:
        """Return the engine, its hosts, and the fields that are searched."""
        return {
            "engine": self.engine,
            "store": "ElasticsearchStore",
            "url": self._transport.config.where,
            "index": self.store.index_name,
            "text_field": self.store.text_field,
            "vector_field": self.store.vector_field,
        }


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexElasticsearchBackend(store) if isinstance(store, ElasticsearchStore) else None
