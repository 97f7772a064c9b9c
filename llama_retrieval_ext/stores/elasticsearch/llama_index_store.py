"""Searches of an index created by LlamaIndex's ``ElasticsearchStore``, with raw scores."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from elasticsearch.helpers.vectorstore import AsyncDenseVectorStrategy
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.elasticsearch import ElasticsearchStore

from llama_retrieval_ext.errors import UnsupportedFilterError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.elasticsearch.client import (
    ClientConfig,
    Requests,
    Transport,
    hits_of,
    json_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.encoding import Json, compact_vector
from llama_retrieval_ext.stores.elasticsearch.filters import EVERYTHING
from llama_retrieval_ext.stores.elasticsearch.llama_index_filters import IndexFields, prefilter
from llama_retrieval_ext.stores.elasticsearch.schema import SEARCH_PARAMS, similarity_named
from llama_retrieval_ext.stores.elasticsearch.search import WINDOW
from llama_retrieval_ext.stores.encoding.vectors import (
    BM25_RANGE,
    SCORE_RANGES,
    ScoreRange,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import (
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.filtered_search import FilteredEngineSearch, FilteredSearch
from llama_retrieval_ext.stores.engine.search import EngineBackend, EngineRequest

T = TypeVar("T")

_CANDIDATES: Final = 1_000
_MAX_WORDS: Final = 1_024
_RANGES: Final[Mapping[str, ScoreRange]] = {
    "COSINE": SCORE_RANGES["cosine"],
    "DOT_PRODUCT": SCORE_RANGES["cosine"],  # of vectors of length 1
    "EUCLIDEAN_DISTANCE": SCORE_RANGES["euclid"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefilteredSearch(FilteredSearch):
    """One search; ``body`` returns the request's body for a number of hits."""

    body: Callable[[int], Json]


class LlamaIndexSearch(FilteredEngineSearch[Condition, PrefilteredSearch, Json]):
    """Searches of such an index for one caller; the steps yield requests."""

    most_hits: ClassVar[int] = WINDOW

    def __init__(self, store: ElasticsearchStore) -> None:
        super().__init__()
        self._index = store.index_name
        self._text_field = store.text_field
        self._vector_field = store.vector_field
        self._fields = IndexFields()

    def compile(self, condition: Condition) -> Condition:
        """Return the condition unchanged: its query depends on the fields at search time."""
        return condition

    def if_exists(self, steps: Callable[[], Requests[T]], *, empty: T) -> Requests[T]:
        """Read the index's current fields, and run steps if the index exists."""
        params = {"ignore_unavailable": "true"}
        description = yield json_request("GET", self._index, "_mapping", params=params)
        if not description:
            return empty
        self._fields = IndexFields.of_index(description, vector_field=self._vector_field)
        return (yield from steps())

    def vector_search(
        self, query: VectorQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch | None:
        """Return the search for the nearest nodes; None for zeros with cosine."""
        if self._fields.similarity is None:
            raise UnsupportedModeError(f"the index {self._index!r} holds no embeddings")
        similarity = similarity_named(self._fields.similarity)
        checked = query_vector(
            query.embedding,
            dimension=self._fields.dimension or len(query.embedding),
            distance=similarity.distance,
            where=f"the index {self._index!r}",
        )
        vector = compact_vector(checked, similarity.distance)
        if vector is None:
            return None
        filter_ = self._prefilter(request)

        def body(limit: int) -> Json:
            knn = {
                "field": self._vector_field,
                "query_vector": vector,
                "k": limit,
                "num_candidates": min(max(_CANDIDATES, 2 * limit), WINDOW),
                "filter": [filter_],
            }
            return {"knn": knn}

        return PrefilteredSearch(
            top_k=request.top_k, score=similarity.score, body=body, condition=request.filter
        )

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Condition]
    ) -> PrefilteredSearch | None:
        """Return the search for shared words; None without words."""
        words = " ".join(query.text.split()[:_MAX_WORDS])
        if not words:
            return None
        match: Json = {"match": {self._text_field: {"query": words}}}
        filtered = {"bool": {"must": [match], "filter": [self._prefilter(request)]}}
        return PrefilteredSearch(
            top_k=request.top_k,
            score=float,
            body=lambda _: {"query": filtered},
            condition=request.filter,
        )

    def page(self, search: PrefilteredSearch, limit: int) -> Requests[list[Json]]:
        """Return at most ``limit`` hits of a search."""
        body = {
            **search.body(limit),
            "size": limit,
            "track_total_hits": False,
            "_source": [self._text_field, "metadata"],
        }
        post = json_request("POST", self._index, "_search", params=SEARCH_PARAMS, body=body)
        return (yield from read(post, hits_of))

    def raw_scores(self, hits: Sequence[Json]) -> list[float]:
        """Return the engine's scores."""
        return [float(hit["_score"]) for hit in hits]

    def node(self, hit: Json) -> BaseNode:
        """Return the node of a hit."""
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self._text_field))

    def too_few(self, search: PrefilteredSearch) -> UnsupportedFilterError:
        """Return the error for a search that may miss hits beyond the limit."""
        del search
        return UnsupportedFilterError(
            f"the filter cannot be decided by the fields of index {self._index!r}, nor among "
            f"its best {WINDOW} nodes; copy them into a store opened by URL, where the engine "
            "decides",
            "",
        )

    def _prefilter(self, request: EngineRequest[Condition]) -> Json:
        return EVERYTHING if request.filter is None else prefilter(request.filter, self._fields)


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
    batches = False

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
            real_async=True,
        )

    @property
    def searcher(self) -> LlamaIndexSearch:
        """New searches; each reads the index's current fields."""
        return LlamaIndexSearch(self.store)

    def call(self, steps: Callable[[], Requests[T]]) -> Call[T]:
        """Return the call that executes the requests."""
        return self._transport.call(steps)

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


def backend_of_llama_index(
    store: BasePydanticVectorStore,
) -> LlamaIndexElasticsearchBackend | None:
    """Return the backend of a LlamaIndex ``ElasticsearchStore``; None for any other store."""
    if not isinstance(store, ElasticsearchStore):
        return None
    return LlamaIndexElasticsearchBackend(store)
