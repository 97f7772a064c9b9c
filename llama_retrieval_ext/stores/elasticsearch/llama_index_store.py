"""Searches of an index that LlamaIndex's ``ElasticsearchStore`` made, with raw scores.

Conditions on what LlamaIndex's ``ElasticsearchStore`` stores, never narrower than `matches`.

Its fields cannot tell a string from a list with it, nor 0.1 from its neighbours, and text within
strings is not in them, so that a query lets some through that do not belong; `matches` then drops
them.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from elasticsearch.helpers.vectorstore import AsyncDenseVectorStrategy
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator
from llama_index.core.vector_stores.utils import metadata_dict_to_node
from llama_index.vector_stores.elasticsearch import ElasticsearchStore

from llama_retrieval_ext.errors import UnsupportedFilterError, UnsupportedModeError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar, matches
from llama_retrieval_ext.stores.elasticsearch.client import Connection, Transport, answer
from llama_retrieval_ext.stores.elasticsearch.documents import query_vector
from llama_retrieval_ext.stores.elasticsearch.filters import (
    EVERYTHING,
    NOTHING,
    all_of,
    any_of,
)
from llama_retrieval_ext.stores.elasticsearch.index import SEARCH_PARAMS, SIMILARITIES, of_engine
from llama_retrieval_ext.stores.elasticsearch.requests import Json, Steps, request
from llama_retrieval_ext.stores.elasticsearch.search import WINDOW, hits_in
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    ScoreRange,
    Search,
    UnbatchedSearches,
)

# What the engine makes of a string it meets first, and what users declare instead.
_WORDS: Final = {"keyword"}
_NUMBERS: Final = {"long", "integer", "short", "byte", "double", "float", "half_float"}
_UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KeywordField:
    """A field of whole strings.

    Attributes:
        path: Its name.
        longest: Characters of a string that it takes; longer ones are not in it.
    """

    path: str
    longest: int


@dataclass(frozen=True, slots=True)
class ForeignLayout:
    """The fields of an index.

    Attributes:
        similarity: The engine's name of how embeddings are compared; None where there are none.
        dimension: Of the embeddings.
        keywords: Fields of whole strings by metadata key.
        numbers: Fields of numbers, by metadata key.
    """

    similarity: str | None = None
    dimension: int | None = None
    keywords: Mapping[str, KeywordField] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_index(cls, told: Json, *, vector_field: str) -> "ForeignLayout":
        """The layout that the engine's description of an index shows."""
        for index in told.values():
            properties: Json = index.get("mappings", {}).get("properties", {})
            vector = properties.get(vector_field, {})
            keywords: dict[str, KeywordField] = {}
            numbers: dict[str, str] = {}
            _collect(properties.get("metadata", {}), "", keywords, numbers)
            return cls(vector.get("similarity"), vector.get("dims"), keywords, numbers)
        return cls()


def _collect(
    parent: Json, key: str, keywords: dict[str, KeywordField], numbers: dict[str, str]
) -> None:
    for name, mapping in parent.get("properties", {}).items():
        own = f"{key}.{name}" if key else name
        path, kind = f"metadata.{own}", mapping.get("type")
        below = mapping.get("fields", {}).get("keyword", {})
        if kind in _WORDS:
            keywords[own] = KeywordField(path, mapping.get("ignore_above", _UNLIMITED))
        elif below.get("type") in _WORDS:
            longest = below.get("ignore_above", _UNLIMITED)
            keywords[own] = KeywordField(f"{path}.keyword", longest)
        elif kind in _NUMBERS:
            numbers[own] = path
        _collect(mapping, own, keywords, numbers)


_CANDIDATES: Final = 1_000
_MOST_WORDS: Final = 1_024


@dataclass(frozen=True)
class ForeignSearcher:
    """Asks such an index.

    Attributes:
        index: Its name.
        text_field: Where texts are.
        vector_field: Where embeddings are.
    """

    index: str
    text_field: str
    vector_field: str

    def dense(self, embedding: Sequence[float], search: Search) -> Steps[list[Candidate]]:
        """Nearest nodes to an embedding.

        Raises:
            DimensionMismatchError: It has another dimension than the index.
            UnsupportedModeError: The index has no embeddings.
        """
        layout = yield from self._layout()
        if layout is None:
            return []
        if layout.similarity is None:
            raise UnsupportedModeError(f"the index {self.index!r} holds no embeddings")
        similarity = of_engine(layout.similarity)
        vector = query_vector(
            embedding,
            dimension=layout.dimension or len(embedding),
            distance=similarity.checked_as,
            index=self.index,
        )
        if vector is None:  # zeros, which are near to nothing
            return []
        found = yield from self._verified(
            lambda size: {
                "knn": {
                    "field": self.vector_field,
                    "query_vector": vector,
                    "k": size,
                    "num_candidates": min(max(_CANDIDATES, 2 * size), WINDOW),
                    "filter": [_query(search.condition, layout)],
                }
            },
            search,
        )
        return [Candidate(node, similarity.raw(score)) for node, score in found]

    def keyword(self, text: str, search: Search) -> Steps[list[Candidate]]:
        """Nodes that share words with a text, as the analyser of the field cuts them."""
        layout = yield from self._layout()
        words = " ".join(text.split()[:_MOST_WORDS])
        if layout is None or not words:
            return []
        query = {
            "bool": {
                "must": [{"match": {self.text_field: {"query": words}}}],
                "filter": [_query(search.condition, layout)],
            }
        }
        found = yield from self._verified(lambda _: {"query": query}, search)
        return [Candidate(node, score) for node, score in found]

    def _verified(
        self, body: Callable[[int], Json], search: Search
    ) -> Steps[list[tuple[BaseNode, float]]]:
        """The best nodes that really satisfy the condition, equal scores by node id."""
        size = min(search.top_k + 1, WINDOW)
        while True:
            page = {"size": size, "track_total_hits": False, "_source": self._fields()}
            asked = request(
                "POST", self.index, "_search", params=SEARCH_PARAMS, body={**body(size), **page}
            )
            hits = yield from answer(asked, hits_in)
            found = [(self._node(hit), float(hit["_score"])) for hit in hits]
            kept = [each for each in found if matches(search.condition, each[0].metadata)]
            enough = len(kept) > search.top_k and kept[search.top_k - 1][1] > found[-1][1]
            if enough or len(hits) < size:
                break
            if size == WINDOW:
                if len(kept) < search.top_k:
                    raise UnsupportedFilterError(_too_many(self.index), "")
                break
            size = min(4 * size, WINDOW)
        kept.sort(key=lambda each: (-each[1], each[0].node_id))
        return kept[: search.top_k]

    def _layout(self) -> Steps[ForeignLayout | None]:
        """What the index looks like now; None where it is not there. Fields come with documents."""
        told = yield request("GET", self.index, "_mapping", params={"ignore_unavailable": "true"})
        return ForeignLayout.of_index(told, vector_field=self.vector_field) if told else None

    def _fields(self) -> list[str]:
        return [self.text_field, "metadata"]

    def _node(self, hit: Json) -> BaseNode:
        source: Json = hit["_source"]
        return metadata_dict_to_node(source["metadata"], text=source.get(self.text_field))


def _query(condition: Condition | None, layout: ForeignLayout) -> Json:
    return EVERYTHING if condition is None else widened(condition, layout)


def _too_many(index: str) -> str:
    return (
        f"the filter cannot be decided by the fields of index {index!r}, nor among its "
        f"best {WINDOW} nodes; copy them into a store opened by URL, where the engine decides"
    )


T = TypeVar("T")

_RANGES: Final[Mapping[str, ScoreRange]] = {
    "COSINE": SIMILARITIES["cosine"].range,
    "DOT_PRODUCT": SIMILARITIES["cosine"].range,  # of vectors of length 1
    "EUCLIDEAN_DISTANCE": SIMILARITIES["euclid"].range,
}


class ForeignElasticsearchBackend(UnbatchedSearches):
    """Asks the index of a LlamaIndex ``ElasticsearchStore``, with clients of its own.

    The store itself is not asked: it runs on one event loop only, stretches the scores of each
    answer to 0 to 1, and drops or turns round most filters. Raw scores come back here, and filters
    hold exactly: what the engine cannot decide on such an index (NOT, NE, NIN, text within
    strings, strings beside lists) is decided here, among the best 10,000. Where that does not
    suffice, the query is refused. Keyword search is what the analyser of the text field makes of
    it, which cuts Chinese into single characters.

    Args:
        store: The store; its client is used to learn where the server is, and left alone.
        drop_violations: Whether hits from outside scope or filters degrade the answer instead of
            raising.
    """

    engine = "elasticsearch"

    def __init__(self, store: ElasticsearchStore, *, drop_violations: bool = False) -> None:
        self.store = store
        self.drop_violations = drop_violations
        self._transport = Transport(Connection.of_client(store.client))
        self._searcher = ForeignSearcher(store.index_name, store.text_field, store.vector_field)
        weakref.finalize(self, self._transport.close)

    @property
    def features(self) -> EngineFeatures:
        """Vector search where the store was made for it, and keyword search."""
        has_vectors = isinstance(self.store.retrieval_strategy, AsyncDenseVectorStrategy)
        return EngineFeatures(
            dense=_RANGES[self.store.distance_strategy or "COSINE"] if has_vectors else None,
            keyword=ScoreRange("bm25", 0.0, None),
            real_async=True,
        )

    def dense(self, embedding: Sequence[float], search: Search) -> Call[list[Candidate]]:
        """Nearest nodes to an embedding, by the index's similarity.

        Raises:
            UnsupportedModeError: The store was not made for vector search.
            UnsupportedFilterError: More than 10,000 nodes would have to be looked at here.
        """
        if self.features.dense is None:
            raise UnsupportedModeError(
                "this ElasticsearchStore was made for keyword search alone; make it with "
                "AsyncDenseVectorStrategy, or open a store by URL"
            )
        return self._call(lambda: self._searcher.dense(embedding, search))

    def keyword(self, text: str, search: Search) -> Call[list[Candidate]]:
        """Nodes that share words with a text, by BM25 with the rarity of words in the index.

        Raises:
            UnsupportedFilterError: More than 10,000 nodes would have to be looked at here.
        """
        return self._call(lambda: self._searcher.keyword(text, search))

    def describe(self) -> Mapping[str, object]:
        """The engine, where it is, and the fields that are asked."""
        return {
            "engine": self.engine,
            "store": "ElasticsearchStore",
            "url": self._transport.connection.where,
            "index": self.store.index_name,
            "text_field": self.store.text_field,
            "vector_field": self.store.vector_field,
        }

    def _call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        transport = self._transport
        return Call(lambda: transport.run(steps()), lambda: transport.arun(steps()))


def foreign_backend_of(store: BasePydanticVectorStore) -> ForeignElasticsearchBackend | None:
    """The backend of a LlamaIndex ``ElasticsearchStore``; None for any other store."""
    return ForeignElasticsearchBackend(store) if isinstance(store, ElasticsearchStore) else None


_VALUES: Final = {
    FilterOperator.EQ,
    FilterOperator.IN,
    FilterOperator.CONTAINS,
    FilterOperator.ANY,
}
_BOUNDS: Final = {
    FilterOperator.GT: "gte",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lte",
    FilterOperator.LTE: "lte",
}
_TEXTS: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}


def widened(condition: Condition, layout: ForeignLayout) -> Json:  # noqa: PLR0911 - one a kind
    """A query that all match which satisfy the condition, and others perhaps."""
    match condition:
        case Compare(key, FilterOperator.IS_EMPTY, _):
            return {"bool": {"must_not": [_exists(key)]}}
        case Compare():
            return _compare(condition, layout)
        case AllOf(parts):
            return all_of([widened(part, layout) for part in parts])
        case AnyOf(parts):
            return any_of([widened(part, layout) for part in parts])
        case Not(Compare(key, FilterOperator.IS_EMPTY, _)):
            return _exists(key)
        case Not():  # what matches the part too widely must not be taken away
            return EVERYTHING


def _compare(compare: Compare, layout: ForeignLayout) -> Json:
    key, operator, value = compare.key, compare.operator, compare.value
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    if operator in _VALUES:
        return _equal(key, values, layout)
    if operator is FilterOperator.ALL:  # of nothing: an empty list is a list, but no field
        return all_of([_equal(key, [value], layout) for value in values])
    if operator in _BOUNDS:
        path = layout.numbers.get(key)
        return _exists(key) if path is None else {"range": {path: {_BOUNDS[operator]: value}}}
    return _exists(key) if operator in _TEXTS else EVERYTHING  # NE and NIN


def _equal(key: str, values: Sequence[Scalar], layout: ForeignLayout) -> Json:
    if not values:
        return NOTHING
    words, numbers = layout.keywords.get(key), layout.numbers.get(key)
    if words is not None and all(isinstance(v, str) and len(v) <= words.longest for v in values):
        return {"terms": {words.path: list(values)}}
    if numbers is not None and all(not isinstance(v, str) for v in values):
        return any_of([{"range": {numbers: {"gte": v, "lte": v}}} for v in values])
    return _exists(key)


def _exists(key: str) -> Json:
    return {"exists": {"field": f"metadata.{key}"}}
