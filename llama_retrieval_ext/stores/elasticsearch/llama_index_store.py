"""Backend for an index created by LlamaIndex's ``ElasticsearchStore``, with raw scores.

Its fields do not distinguish a string from a list that contains it, nor 0.1 from its neighbours,
and do not index substrings. So no comparison is exact.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias, TypeVar

from elasticsearch.helpers.vectorstore import AsyncDenseVectorStrategy
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.elasticsearch import ElasticsearchStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.elasticsearch.client import (
    ClientConfig,
    Json,
    Requests,
    Transport,
    hits_of,
    json_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import EVERYTHING, IndexFields
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
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.llama_index import (
    Prefilter,
    PrefilteredBackend,
    PrefilteredSearch,
)

T = TypeVar("T")
_Prefilter: TypeAlias = Prefilter[Json]

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


class LlamaIndexElasticsearchBackend(PrefilteredBackend[ElasticsearchStore, Json]):
    """Backend over the index of a LlamaIndex ``ElasticsearchStore``, with its own clients.

    The store's ``query`` is not used: it runs on one event loop only, stretches the scores of each
    answer to 0 to 1, and drops or inverts most filters. This backend returns raw scores, and its
    filters are exact: those that the engine cannot evaluate on such an index (NOT, NE, NIN, text
    within strings, strings beside lists) are evaluated in Python, on the best 10,000 nodes. If too
    few of these match, the query is refused. Keyword search depends on the analyser of the text
    field, which cuts Chinese into single characters.
    """

    engine_name = "elasticsearch"
    most_candidates: ClassVar[int] = WINDOW
    score_field = "_score"
    advice: ClassVar[Mapping[str, str]] = {
        "dense": "it was made for keyword search alone; make it with AsyncDenseVectorStrategy, or "
        "open a store by URL"
    }

    def __init__(self, store: ElasticsearchStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self._transport = Transport(ClientConfig.of_client(store.client))
        self._fields = IndexFields()
        weakref.finalize(self, self._transport.close)

    @property
    def where(self) -> str:
        """The index, for messages."""
        return f"the index {self._store.index_name!r}"

    @property
    def features(self) -> EngineFeatures:
        """Vector search if the store supports it, and keyword search."""
        has_vectors = isinstance(self._store.retrieval_strategy, AsyncDenseVectorStrategy)
        return EngineFeatures(
            dense=_RANGES[self._store.distance_strategy or "COSINE"] if has_vectors else None,
            keyword=BM25_RANGE,
            most_hits=self.most_candidates,
            real_async=True,
        )

    def call(self, steps: Callable[[], Requests[T]], *, empty: T) -> Call[T]:
        """Return the call that reads the index's fields and runs steps, if the index exists."""

        def if_exists() -> Requests[T]:
            name, params = self._store.index_name, {"ignore_unavailable": "true"}
            description = yield json_request("GET", name, "_mapping", params=params)
            if not description:
                return empty
            self._fields = IndexFields.of_index(description, vector_field=self._store.vector_field)
            return (yield from steps())

        return self._transport.call(if_exists)

    def prefilter(self, condition: Condition) -> _Prefilter:
        """Return the strictest prefilter for a condition."""
        return self._fields.prefilter(condition)

    def vector_search(
        self, embedding: Sequence[float], search: Search
    ) -> PrefilteredSearch[Json] | None:
        """Return the search for the nearest nodes; None for zeros with cosine."""
        fields = self._fields
        if fields.similarity is None:
            raise UnsupportedModeError(f"{self.where} holds no embeddings")
        distance, dimension = _DISTANCES[fields.similarity], fields.dimension or len(embedding)
        vector = compact_vector(
            query_vector(embedding, dimension=dimension, distance=distance, where=self.where),
            distance,
        )
        if vector is None:
            return None
        knn = {"field": self._store.vector_field, "query_vector": vector}
        return self.prefiltered(search, {"knn": knn}, score=SCORES[distance])

    def keyword_search(self, text: str, search: Search) -> PrefilteredSearch[Json] | None:
        """Return the search for shared words; None without words."""
        words = " ".join(text.split()[:_MAX_WORDS])
        if not words:
            return None
        match: Json = {"match": {self._store.text_field: {"query": words}}}
        return self.prefiltered(search, {"query": match}, score=float)

    def send(self, body: Json, expression: Json | None, limit: int) -> Requests[list[Json]]:
        """Send a search with a filter."""
        filters = [expression or EVERYTHING]
        if "knn" in body:
            most = min(max(_CANDIDATES, 2 * limit), WINDOW)
            part = {**body["knn"], "k": limit, "num_candidates": most, "filter": filters}
            body = {"knn": part}
        else:
            body = {"query": {"bool": {"must": [body["query"]], "filter": filters}}}
        parts = {
            **body,
            "size": limit,
            "track_total_hits": False,
            "_source": [self._store.text_field, "metadata"],
        }
        name = self._store.index_name
        post = json_request("POST", name, "_search", params=SEARCH_PARAMS, body=parts)
        return (yield from read(post, hits_of))

    def node(self, hit: Json) -> BaseNode:
        """Return the node of a hit."""
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self._store.text_field))

    def nodes(self, ids: Sequence[str]) -> Call[dict[str, BaseNode]]:
        """Return the nodes with these ids, with their embeddings; the store omits these."""
        body = {"query": {"ids": {"values": [*ids]}}, "size": len(ids)}

        def steps() -> Requests[dict[str, BaseNode]]:
            request = json_request("POST", self._store.index_name, "_search", body=body)
            nodes = {}
            for hit in (yield from read(request, hits_of)):
                node = self.node(hit)
                node.embedding = hit["_source"].get(self._store.vector_field)
                nodes[node.node_id] = node
            return nodes

        return self._transport.call(steps)

    def describe(self) -> dict[str, object]:
        """Return the engine, its hosts, and the fields that are searched."""
        store = self._store
        return {
            **super().describe(),
            "url": self._transport.where,
            "text_field": store.text_field,
            "vector_field": store.vector_field,
        }


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexElasticsearchBackend(store) if isinstance(store, ElasticsearchStore) else None
