"""Searches of an index that LlamaIndex's ``ElasticsearchStore`` made, with raw scores."""

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
from llama_retrieval_ext.filters import Condition, matches
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
    Candidate,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    Search,
    UnbatchedSearches,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.search import EngineRequest, EngineSearch, NativeSearch

T = TypeVar("T")

_CANDIDATES: Final = 1_000
_MAX_WORDS: Final = 1_024
_RANGES: Final[Mapping[str, ScoreRange]] = {
    "COSINE": SCORE_RANGES["cosine"],
    "DOT_PRODUCT": SCORE_RANGES["cosine"],  # of vectors of length 1
    "EUCLIDEAN_DISTANCE": SCORE_RANGES["euclid"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredSearch(NativeSearch):
    """One search, with a filter that the engine may evaluate in part.

    Attributes:
        body: The request's body for a number of hits.
        condition: What every hit must satisfy.
    """

    body: Callable[[int], Json]
    condition: Condition | None


class LlamaIndexSearch(EngineSearch[Condition, FilteredSearch, Json]):
    """Searches of such an index by one caller; its steps are requests.

    Args:
        store: The store that made the index; it is not searched itself.
    """

    most_hits: ClassVar[int] = WINDOW
    scoped_rarity: ClassVar[bool] = False

    def __init__(self, store: ElasticsearchStore) -> None:
        self._index = store.index_name
        self._text_field = store.text_field
        self._vector_field = store.vector_field
        self._fields = IndexFields()

    def compile(self, condition: Condition) -> Condition:
        """Return the condition: its query depends on the fields that the index has by then."""
        return condition

    def if_exists(self, steps: Callable[[], Requests[T]], *, empty: T) -> Requests[T]:
        """Read the index's fields, which documents add, and run steps if there is an index."""
        params = {"ignore_unavailable": "true"}
        description = yield json_request("GET", self._index, "_mapping", params=params)
        if not description:
            return empty
        self._fields = IndexFields.of_index(description, vector_field=self._vector_field)
        return (yield from steps())

    def vector_search(
        self, query: VectorQuery, request: EngineRequest[Condition]
    ) -> FilteredSearch | None:
        """Return the search for the nearest nodes; None for zeros, which have no cosine."""
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

        return FilteredSearch(
            top_k=request.top_k, score=similarity.score, body=body, condition=request.filter
        )

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Condition]
    ) -> FilteredSearch | None:
        """Return the search for shared words; None without words."""
        words = " ".join(query.text.split()[:_MAX_WORDS])
        if not words:
            return None
        match: Json = {"match": {self._text_field: {"query": words}}}
        filtered = {"bool": {"must": [match], "filter": [self._prefilter(request)]}}
        return FilteredSearch(
            top_k=request.top_k,
            score=float,
            body=lambda _: {"query": filtered},
            condition=request.filter,
        )

    def pages(
        self, searches: Sequence[FilteredSearch], limits: Sequence[int], *, with_nodes: bool
    ) -> Requests[list[list[Json]]]:
        """Send each search, again for more hits where too few satisfy its condition."""
        del with_nodes  # the condition needs them
        pages = []
        for search, limit in zip(searches, limits, strict=True):
            pages.append((yield from self._page(search, limit)))
        return pages

    def raw_score(self, hit: Json) -> float:
        """Return the engine's score."""
        return float(hit["_score"])

    def candidate(self, hit: Json, score: float) -> Candidate:
        """Return the candidate of a hit."""
        return Candidate(self._node(hit), score)

    def _prefilter(self, request: EngineRequest[Condition]) -> Json:
        return EVERYTHING if request.filter is None else prefilter(request.filter, self._fields)

    def _page(self, search: FilteredSearch, limit: int) -> Requests[list[Json]]:
        """The best hits that satisfy the condition; raise if more of them may be out of reach."""
        size = min(limit, WINDOW)
        while True:
            body = {
                **search.body(size),
                "size": size,
                "track_total_hits": False,
                "_source": [self._text_field, "metadata"],
            }
            post = json_request("POST", self._index, "_search", params=SEARCH_PARAMS, body=body)
            hits = yield from read(post, hits_of)
            kept = [hit for hit in hits if matches(search.condition, self._node(hit).metadata)]
            if len(kept) >= limit or len(hits) < size:
                return kept[:limit]
            if size == WINDOW:
                break
            size = min(4 * size, WINDOW)
        if len(kept) < search.top_k:
            raise UnsupportedFilterError(
                f"the filter cannot be decided by the fields of index {self._index!r}, nor among "
                f"its best {WINDOW} nodes; copy them into a store opened by URL, where the engine "
                "decides",
                "",
            )
        return kept

    def _node(self, hit: Json) -> BaseNode:
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self._text_field))


class LlamaIndexElasticsearchBackend(UnbatchedSearches):
    """Searches the index of a LlamaIndex ``ElasticsearchStore``, with clients of its own.

    The store's ``query`` is not used: it runs on one event loop only, stretches the scores of each
    answer to 0 to 1, and drops or inverts most filters. Raw scores come back here, and filters are
    exact: what the engine cannot evaluate on such an index (NOT, NE, NIN, text within strings,
    strings beside lists) is evaluated here, among the best 10,000 nodes. If these are too few, the
    query is refused. Keyword search depends on the analyser of the text field, which cuts Chinese
    into single characters.

    Args:
        store: The store; its client shows where the server is, and is not used.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "elasticsearch"

    def __init__(self, store: ElasticsearchStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations
        self._transport = Transport(ClientConfig.of_client(store.client))
        weakref.finalize(self, self._transport.close)

    @property
    def features(self) -> EngineFeatures:
        """Vector search if the store was made for it, and keyword search."""
        has_vectors = isinstance(self.store.retrieval_strategy, AsyncDenseVectorStrategy)
        return EngineFeatures(
            dense=_RANGES[self.store.distance_strategy or "COSINE"] if has_vectors else None,
            keyword=BM25_RANGE,
            real_async=True,
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Return the nearest nodes to an embedding, by the index's similarity.

        Raises:
            UnsupportedModeError: The store was not made for vector search.
            UnsupportedFilterError: More than 10,000 nodes would have to be read.
        """
        if self.features.dense is None:
            raise UnsupportedModeError(
                "this ElasticsearchStore was made for keyword search alone; make it with "
                "AsyncDenseVectorStrategy, or open a store by URL"
            )
        return self._call(VectorQuery(tuple(embedding), search))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Return nodes that share words with a text, by BM25 with the index's term statistics.

        Raises:
            UnsupportedFilterError: More than 10,000 nodes would have to be read.
        """
        return self._call(KeywordQuery(text, search))

    def describe(self) -> Mapping[str, object]:
        """Return the engine, where it is, and the fields that are searched."""
        return {
            "engine": self.engine,
            "store": "ElasticsearchStore",
            "url": self._transport.config.where,
            "index": self.store.index_name,
            "text_field": self.store.text_field,
            "vector_field": self.store.vector_field,
        }

    def _call(self, query: EngineQuery) -> Call[list[Candidate]]:
        searcher = LlamaIndexSearch(self.store)
        requests = [searcher.request(query)]
        call = self._transport.call(lambda: searcher.search(requests))
        return call.then(lambda rankings: rankings[0])


def backend_of_llama_index(
    store: BasePydanticVectorStore,
) -> LlamaIndexElasticsearchBackend | None:
    """Return the backend of a LlamaIndex ``ElasticsearchStore``; None for any other store."""
    if not isinstance(store, ElasticsearchStore):
        return None
    return LlamaIndexElasticsearchBackend(store)
