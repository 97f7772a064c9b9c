"""Backend for an index created by LlamaIndex's ``ElasticsearchStore``, with raw scores."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

from elasticsearch.helpers.vectorstore import AsyncDenseVectorStrategy
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.elasticsearch import ElasticsearchStore

from llama_retrieval_ext.errors import UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Scalar
from llama_retrieval_ext.stores.elasticsearch.client import (
    Json,
    Requests,
    Transport,
    hits_of,
    read,
    request_of,
)
from llama_retrieval_ext.stores.elasticsearch.filters import EVERYTHING, LANGUAGE
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
    prefilters,
)

T = TypeVar("T")

_CANDIDATES: Final = 1_000
_MAX_WORDS: Final = 1_024
_DISTANCES: Final[Mapping[str, Distance]] = {
    **{name: distance for distance, name in SIMILARITY_NAMES.items()},
    "dot_product": "cosine",  # of vectors of length 1
}
# Types of fields for numbers, as the engine chooses or users declare them; the bits of integers.
_BITS: Final = {"long": 63, "integer": 31, "short": 15, "byte": 7}
_NUMBERS: Final = {**_BITS, "double": 0, "float": 0, "half_float": 0}
_UNLIMITED: Final = 2**31 - 1


class LlamaIndexElasticsearchBackend(PrefilteredBackend[ElasticsearchStore, Json]):
    """Backend over the index of a LlamaIndex ``ElasticsearchStore``, with its own clients.

    The store's ``query`` is not used: it runs on one event loop only, stretches the scores of each
    answer to 0 to 1, and drops or inverts most filters. This backend returns raw scores, and its
    filters are exact: those that the engine cannot evaluate on such an index are evaluated in
    Python, on the best 10,000 nodes. If too few of these match, the query is refused. The fields do
    not distinguish a string from a list that contains it, nor 0.1 from its neighbours, and do not
    index substrings; so the engine evaluates no comparison exactly. Keyword search depends on the
    analyser of the text field, which cuts Chinese into single characters.
    """

    engine_name = "elasticsearch"
    most_candidates: ClassVar[int] = WINDOW
    score_field = "_score"
    advice: ClassVar[Mapping[str, str]] = {
        "dense": "it was made for keyword search alone; make it with AsyncDenseVectorStrategy, or "
        "open a store by URL"
    }

    def __init__(self, store: ElasticsearchStore, *, drop_violations: bool = False) -> None:
        where = f"the index {store.index_name!r}"
        super().__init__(store, where, drop_violations=drop_violations)
        self._transport = Transport.of_client(store.client)
        self._vectors: Json = {}
        # Path of each field, with the longest string that is indexed, or the bits of its integers.
        self._strings: dict[str, tuple[str, int]] = {}
        self._numbers: dict[str, tuple[str, int]] = {}
        self.prefilters = prefilters(
            LANGUAGE,
            EVERYTHING,
            exists=lambda key: {"exists": {"field": f"metadata.{key}"}},
            # A value of [None] does not exist for the engine, either.
            is_empty=lambda key: LANGUAGE.negated({"exists": {"field": f"metadata.{key}"}}),
            among=self._among,
            ordered=lambda key, operator, value: self._within(
                key, **{"gte" if operator.name.startswith("G") else "lte": value}
            ),
            sees_lists=True,
        )
        weakref.finalize(self, self._transport.close)

    @property
    def features(self) -> EngineFeatures:
        """Vector search if the store supports it, and keyword search."""
        has_vectors = isinstance(self._store.retrieval_strategy, AsyncDenseVectorStrategy)
        is_euclid = self._store.distance_strategy == "EUCLIDEAN_DISTANCE"
        return EngineFeatures(
            dense=SCORE_RANGES["euclid" if is_euclid else "cosine"] if has_vectors else None,
            keyword=BM25_RANGE,
            most_hits=self.most_candidates,
            real_async=True,
        )

    def call(self, steps: Callable[[], Requests[T]], *, empty: T) -> Call[T]:
        """Return the call that reads the index's fields and runs steps, if the index exists."""

        def if_exists() -> Requests[T]:
            name, params = self._store.index_name, {"ignore_unavailable": "true"}
            description = yield request_of("GET", name, "_mapping", params=params)
            if not description:
                return empty
            properties = next(iter(description.values()))["mappings"].get("properties", {})
            self._vectors = properties.get(self._store.vector_field, {})
            fields = [*_fields(properties.get("metadata", {}), "metadata")]
            self._strings = {
                key: (path, field.get("ignore_above", _UNLIMITED))
                for key, path, field in fields
                if field.get("type") == "keyword"
            }
            self._numbers = {
                key: (path, _NUMBERS[field["type"]])
                for key, path, field in fields
                if field.get("type") in _NUMBERS
            }
            return (yield from steps())

        return self._transport.call(if_exists)

    def vector_search(
        self, embedding: Sequence[float], search: Search
    ) -> PrefilteredSearch[Json] | None:
        """Return the search for the nearest nodes; None for zeros with cosine."""
        if "similarity" not in self._vectors:
            raise UnsupportedModeError(f"{self.where} holds no embeddings")
        distance = _DISTANCES[self._vectors["similarity"]]
        dimension = self._vectors.get("dims", len(embedding))
        checked = query_vector(embedding, dimension=dimension, distance=distance, where=self.where)
        vector = compact_vector(checked, distance)
        if vector is None:
            return None
        knn = {"field": self._store.vector_field, "query_vector": vector}
        return self.prefiltered(search, {"knn": knn}, score=SCORES[distance])

    def keyword_search(self, text: str, search: Search) -> PrefilteredSearch[Json] | None:
        """Return the search for shared words; None without words."""
        words = " ".join(text.split()[:_MAX_WORDS])
        match: Json = {"match": {self._store.text_field: {"query": words}}}
        return self.prefiltered(search, {"query": match}, score=float) if words else None

    def send(self, body: Json, expression: Json | None, limit: int) -> Requests[list[Json]]:
        """Send a search with a filter."""
        filters = [expression or EVERYTHING]
        if "knn" in body:
            most = min(max(_CANDIDATES, 2 * limit), WINDOW)
            part = {**body["knn"], "k": limit, "num_candidates": most, "filter": filters}
            body = {"knn": part}
        else:
            body = {"query": {"bool": {"must": [body["query"]], "filter": filters}}}
        sources = [self._store.text_field, "metadata"]
        return self._search({**body, "size": limit, "track_total_hits": False, "_source": sources})

    def node(self, hit: Json) -> BaseNode:
        """Return the node of a hit."""
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self._store.text_field))

    def nodes(self, ids: Sequence[str]) -> Call[dict[str, BaseNode]]:
        """Return the nodes with these ids, with their embeddings; the store omits these."""

        def steps() -> Requests[dict[str, BaseNode]]:
            nodes = {}
            query = {"ids": {"values": [*ids]}}
            for hit in (yield from self._search({"query": query, "size": len(ids)})):
                node = self.node(hit)
                node.embedding = hit["_source"].get(self._store.vector_field)
                nodes[node.node_id] = node
            return nodes

        return self._transport.call(steps)

    def describe(self) -> dict[str, object]:
        """Return the engine, its hosts, and the fields that are searched."""
        fields = {"text_field": self._store.text_field, "vector_field": self._store.vector_field}
        return {**super().describe(), "url": self._transport.where, **fields}

    def _search(self, body: Json) -> Requests[list[Json]]:
        name = self._store.index_name
        request = request_of("POST", name, "_search", params=SEARCH_PARAMS, body=body)
        return (yield from read(request, hits_of))

    def _among(self, key: str, values: Sequence[Scalar]) -> Prefilter[Json] | None:
        path, longest = self._strings.get(key, ("", -1))
        if all(isinstance(value, str) and len(value) <= longest for value in values):
            return Prefilter({"terms": {path: [*values]}})
        ranges = [self._within(key, gte=value, lte=value) for value in values]
        parts = [part for part in ranges if part is not None]
        return Prefilter(LANGUAGE.any_of(parts)) if len(parts) == len(ranges) else None

    def _within(self, key: str, **bounds: Scalar) -> Json | None:
        path, bits = self._numbers.get(key, ("", 0))
        if not path or any(isinstance(bound, str | bool) for bound in bounds.values()):  # a date
            return None
        if bits:  # the engine cuts decimals off what it indexes, and refuses larger bounds
            least, most = -(2**bits), 2**bits - 1
            bounds = {name: max(least, min(int(value), most)) for name, value in bounds.items()}
        return {"range": {path: bounds}}


def _fields(parent: Json, path: str) -> Iterator[tuple[str, str, Json]]:
    """Yield the key, the path and the mapping of each metadata field, nested ones included."""
    for name, mapping in parent.get("properties", {}).items():
        inner = f"{path}.{name}"
        key = inner.removeprefix("metadata.")
        yield key, f"{inner}.keyword", mapping.get("fields", {}).get("keyword", {})
        yield key, inner, mapping
        yield from _fields(mapping, inner)


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexElasticsearchBackend(store) if isinstance(store, ElasticsearchStore) else None
