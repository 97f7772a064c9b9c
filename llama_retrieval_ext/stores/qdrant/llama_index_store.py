"""Backend for LlamaIndex's `QdrantVectorStore`, which stores metadata beside fields of its own.

A filter on ``key`` matches the value or an element of a list; a filter on ``key[]`` matches only
elements. So a field that matches by ``key`` but not by ``key[]`` is not a list. A field that
matches by both is a list with such an element, at any depth of nested lists.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from weakref import finalize

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator
from llama_index.vector_stores.qdrant import QdrantVectorStore
from llama_index.vector_stores.qdrant.utils import SparseEncoderCallable
from qdrant_client import models

from llama_retrieval_ext.errors import (
    StoreFormatError,
    StoreUnavailableError,
    UnsupportedFilterError,
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar
from llama_retrieval_ext.stores.encoding.vectors import (
    SCORE_RANGES,
    SCORES,
    ScoreRange,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import (
    Backend,
    Candidate,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.engine_backend import EngineBackend
from llama_retrieval_ext.stores.engine.filters import Comparison
from llama_retrieval_ext.stores.engine.search import EngineRequest
from llama_retrieval_ext.stores.qdrant.client import (
    UNKNOWN,
    MethodCall,
    QdrantConnection,
    Version,
    server_version,
)
from llama_retrieval_ext.stores.qdrant.schema import OUR_DISTANCES
from llama_retrieval_ext.stores.qdrant.search import QdrantSearch
from llama_retrieval_ext.stores.qdrant_common.filters import (
    Clause,
    Contains,
    Equals,
    Group,
    IsEmpty,
    Within,
    any_of,
    clause_language,
    exact_bounds,
)
from llama_retrieval_ext.stores.qdrant_common.points import EXACT
from llama_retrieval_ext.stores.qdrant_common.search import PointSearch

T = TypeVar("T")

_OLD_SPARSE: Final = "text-sparse"
_CONTENT: Final = "_node_content"
_PAGE: Final = 1000
_ID_FIRST: Final = '{"id_": "'


@dataclass(frozen=True, slots=True)
class Layout:
    """The vectors of a collection: their names, None for unnamed or missing ones, and kinds."""

    dense: str | None
    dimension: int
    distance: models.Distance
    sparse: str | None
    weighs_rarity: bool


class LlamaIndexQdrantSearch(QdrantSearch):
    """Searches of a collection created by LlamaIndex's store."""

    version: Version = UNKNOWN

    def __init__(self, store: QdrantVectorStore) -> None:
        client, aclient = store._client, store._aclient  # noqa: SLF001 - LlamaIndex keeps them so
        self.where = f"the collection {store.collection_name!r} of LlamaIndex's QdrantVectorStore"
        self.connection = QdrantConnection(client, aclient, where=self.where)
        super().__init__(store.collection_name, self.connection, payload=True)
        self._store = store
        self._layout: Layout | None = None

    @property
    def has_keywords(self) -> bool:
        """Whether the store has a query encoder and has, or will create, sparse vectors."""
        layout = self._layout
        return self._encode is not None and (layout is None or layout.sparse is not None)

    @property
    def expected_distance(self) -> models.Distance:
        """The distance of the collection, or of the collection that the store would create."""
        if self._layout is not None:
            return self._layout.distance
        config = self._store._dense_config  # noqa: SLF001 - it has no public name
        return models.Distance.COSINE if config is None else config.distance

    def look_up(self) -> Steps[bool]:
        """Read the layout; return whether the collection exists."""
        if self._layout is None:
            self.version = yield from server_version()
            try:
                info = yield MethodCall("get_collection", {"collection_name": self._name})
            except CollectionMissingError:
                return False
            self._layout = self._layout_of(info)
        return True

    def _layout_of(self, info: models.CollectionInfo) -> Layout:
        dense, vectors = self._store.dense_vector_name, info.config.params.vectors
        unnamed = isinstance(vectors, models.VectorParams)
        params = vectors if isinstance(vectors, models.VectorParams) else (vectors or {}).get(dense)
        if params is None or params.multivector_config is not None:
            raise StoreFormatError(
                f"{self.where} has no single dense vectors named {dense!r}; it has "
                f"{sorted(vectors) if isinstance(vectors, dict) else vectors}; name one of them"
            )
        known = info.config.params.sparse_vectors or {}
        names = (self._store.sparse_vector_name, _OLD_SPARSE)
        name = next((name for name in names if name in known), None)
        rarity = name is not None and known[name].modifier == models.Modifier.IDF
        return Layout(None if unnamed else dense, params.size, params.distance, name, rarity)

    def compile(self, condition: Condition) -> Clause:
        """Return the clause for a condition on LlamaIndex's payload."""
        return flat_clause_of(condition)

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps; return `empty` if the collection does not exist."""
        try:
            return (yield from steps()) if (yield from self.look_up()) else empty
        except CollectionMissingError:
            self._layout = None
            return empty

    def native(self, request: EngineRequest[Clause]) -> Steps[PointSearch | None]:
        """Return the engine's search; the store's encoder, which may be slow, encodes a text."""
        if isinstance(request.query, VectorQuery):
            return self.vector_search(request.query, request)
        layout, encode, text = self._known_layout, self._encode, request.query.text
        if layout.sparse is None:
            raise UnsupportedModeError(
                f"{self.where} has no sparse vectors; make a new collection with "
                "enable_hybrid=True, or open one by URL"
            )
        indices, values = (yield lambda: encode([text])) if encode else ([[]], [[]])
        if not indices[0]:
            return None
        return PointSearch(
            query=models.SparseVector(indices=list(indices[0]), values=list(values[0])),
            using=layout.sparse,
            top_k=request.top_k,
            score=float,
            positive=True,
            filter=self.filter_of(request.filter),
            params=self.corpus_params(request.corpus) if layout.weighs_rarity else None,
        )

    def vector_search(self, query: VectorQuery, request: EngineRequest[Clause]) -> PointSearch:
        """Return the search for the nearest points."""
        layout = self._known_layout
        distance = OUR_DISTANCES[layout.distance]
        vector = query_vector(
            query.embedding, dimension=layout.dimension, distance=distance, where=self.where
        )
        return PointSearch(
            query=vector,
            using=layout.dense,
            top_k=request.top_k,
            score=SCORES[distance],
            filter=self.filter_of(request.filter),
        )

    def keyword_search(
        self, query: KeywordQuery, request: EngineRequest[Clause]
    ) -> PointSearch | None:
        """Raise, because `native` encodes the text first."""
        raise NotImplementedError(query, request)

    def all_nodes(self) -> Steps[list[BaseNode]]:
        """Return all nodes of the collection."""
        nodes: list[BaseNode] = []
        offset: models.ExtendedPointId | None = None
        while True:
            page = {"limit": _PAGE, "offset": offset, "with_payload": True}
            records, offset = yield MethodCall(
                "scroll", {"collection_name": self._name, **page, "with_vectors": False}
            )
            nodes += self._store.parse_to_query_result(records).nodes or []
            if offset is None:
                return nodes

    def candidate(self, hit: models.ScoredPoint, score: float) -> Candidate:
        """Return the candidate of a point; its node is built on first access."""
        return Candidate.later(self._node_id(hit), score, lambda: self._node(hit))

    @property
    def _known_layout(self) -> Layout:
        if self._layout is None:  # another search has found that it is gone
            raise CollectionMissingError(f"{self.where} does not exist")
        return self._layout

    @property
    def _encode(self) -> SparseEncoderCallable | None:
        # Without enable_hybrid the attribute is missing. LlamaIndex may replace it at any time.
        return getattr(self._store, "_sparse_query_fn", None) if self._store.enable_hybrid else None

    def _node_id(self, point: models.ScoredPoint) -> str:
        # The point's id is the node id, but with UUIDs in Qdrant's format.
        content = (point.payload or {}).get(_CONTENT)
        if isinstance(content, str) and content.startswith(_ID_FIRST):
            name = content[len(_ID_FIRST) : content.index('"', len(_ID_FIRST))]
            if "\\" not in name:
                return name
        return self._node(point).node_id

    def _node(self, point: models.ScoredPoint) -> BaseNode:
        nodes = self._store.parse_to_query_result([point]).nodes or []
        return nodes[0]


class LlamaIndexQdrantBackend(EngineBackend[QdrantVectorStore]):
    """Backend that searches a LlamaIndex `QdrantVectorStore` with the store's client.

    The store's ``query`` is not used: it falls back to vector search for unsupported modes, and its
    filters drop matching rows or return other rows. This backend evaluates filters exactly or
    refuses them: TEXT_MATCH_INSENSITIVE, dates, numbers of 2**53 and more, ALL with an empty list,
    and keys reserved by LlamaIndex. Filtering in Python could read the whole collection.

    Keyword search needs ``enable_hybrid`` and uses the store's ``sparse_query_fn`` and its scores.
    """

    engine = "qdrant"

    def __init__(self, store: QdrantVectorStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self._searcher = LlamaIndexQdrantSearch(store)
        self._connection = self._searcher.connection
        finalize(self, self._connection.close)
        with suppress(StoreUnavailableError):  # the first search tries again and raises
            self._connection.run(self._searcher.look_up())

    @property
    def features(self) -> EngineFeatures:
        """Features of the collection, or of the collection that the store would create."""
        searcher = self._searcher
        return EngineFeatures(
            dense=SCORE_RANGES[OUR_DISTANCES[searcher.expected_distance]],
            keyword=ScoreRange(low=0.0) if searcher.has_keywords else None,
            one_round_trip=searcher.has_keywords,
            real_async=self._connection.real_async,
            operators=searcher.version.operators - {FilterOperator.TEXT_MATCH_INSENSITIVE},
        )

    @property
    def searcher(self) -> LlamaIndexQdrantSearch:
        """The engine's searches."""
        return self._searcher

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps."""
        return self._connection.call(steps)

    def all_nodes(self) -> Call[list[BaseNode]]:
        """Return all nodes of the collection."""
        searcher = self._searcher
        return self.call(lambda: searcher.if_exists(searcher.all_nodes, empty=[]))

    def check(self, query: EngineQuery) -> None:
        """Raise if the store has no sparse vectors for a keyword query."""
        if isinstance(query, KeywordQuery) and not self._searcher.has_keywords:
            raise UnsupportedModeError(
                f"{self._searcher.where} has no sparse vectors to search for keywords; make it "
                "with enable_hybrid=True and a new collection, or open a store by URL"
            )

    def describe(self) -> Mapping[str, object]:
        """Return the engine and the collection; no URL, because it may contain a key."""
        return {
            "engine": self.engine,
            "store": "LlamaIndex's QdrantVectorStore",
            "collection": self.store.collection_name,
            "distance": self._searcher.expected_distance.value.lower(),
        }


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexQdrantBackend(store) if isinstance(store, QdrantVectorStore) else None


# Fields of LlamaIndex, which overwrite metadata with the same key.
_RESERVED: Final = {"_node_content", "_node_type", "document_id", "doc_id", "ref_doc_id"}
_At = Callable[[str], Clause]


def flat_clause_of(condition: Condition) -> Clause:
    """Return the clause for a condition."""
    return _LANGUAGE.write(condition)


def _no_list(key: str, at: _At) -> Clause:
    path = _path(key)
    return Group(every=(at(path),), no=(at(f"{path}[]"),))


def _list(key: str, at: _At) -> Clause:
    path = _path(key)
    return Group(every=(at(path), at(f"{path}[]")))


def _path(key: str) -> str:
    if key in _RESERVED:
        raise UnsupportedFilterError(
            f"LlamaIndex's QdrantVectorStore keeps a field of its own under {key!r}; store the "
            "metadata under another key",
            "",
        )
    return f'"{key}"'


def _equal(key: str, *values: Scalar) -> _At:
    texts = tuple(_utf8(key, value) for value in values if isinstance(value, str))
    numbers = [_exact(key, value) for value in values if not isinstance(value, str | bool)]
    booleans = [value for value in values if isinstance(value, bool)]

    def at(path: str) -> Clause:
        # A range, because the engine's value match distinguishes 3 from 3.0.
        clauses: list[Clause] = [Within(path, gte=number, lte=number) for number in numbers]
        clauses += [Equals(path, (value,)) for value in booleans]
        return any_of([*clauses, Equals(path, texts)] if texts else clauses)

    return at


def _exact(key: str, number: float) -> float:
    if abs(number) >= EXACT:
        raise UnsupportedFilterError(
            f"LlamaIndex's QdrantVectorStore rounds numbers of 2**53 or more, got {number!r} for "
            f"{key!r}; store such numbers as strings, or open the store by URL",
            FilterOperator.EQ.name,
        )
    return number


def _utf8(key: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedFilterError(
            f"the filter on {key!r} has a text that UTF-8 cannot hold: {text!r}; leave out its "
            "lone surrogates",
            FilterOperator.EQ.name,
        ) from error
    return text


def _sized(bound: str) -> Comparison[Clause]:
    def write(key: str, value: Scalar) -> Clause:
        bounds = exact_bounds(key, value, bound)
        return _no_list(key, lambda path: Within(path, **bounds))

    return write


def _has_all(key: str, values: Sequence[Scalar]) -> Clause:
    if not values:
        raise UnsupportedFilterError(
            f"ALL of no values on {key!r} asks whether the field is a list, which Qdrant cannot "
            "tell; leave the filter out",
            FilterOperator.ALL.name,
        )
    return Group(every=tuple(_list(key, _equal(key, value)) for value in values))


def _contains_text(key: str, text: str) -> Clause:
    safe = _utf8(key, text)
    return _no_list(key, lambda path: Contains(path, safe))


def _in_any_case(key: str, _: str) -> Clause:
    raise UnsupportedFilterError(
        f"the filter on {key!r}: the payload of LlamaIndex's QdrantVectorStore has no text in "
        "lower case, and Qdrant compares as it stands; use TEXT_MATCH, or open the store by URL",
        FilterOperator.TEXT_MATCH_INSENSITIVE.name,
    )


_LANGUAGE: Final = clause_language(
    {
        FilterOperator.EQ: lambda key, value: _no_list(key, _equal(key, value)),
        FilterOperator.IN: lambda key, values: _no_list(key, _equal(key, *values)),
        **{operator: _sized(operator.name.lower()) for operator in ORDER_OPERATORS},
        FilterOperator.ANY: lambda key, values: _list(key, _equal(key, *values)),
        FilterOperator.ALL: _has_all,
        FilterOperator.CONTAINS: lambda key, value: _list(key, _equal(key, value)),
        FilterOperator.TEXT_MATCH: _contains_text,
        FilterOperator.TEXT_MATCH_INSENSITIVE: _in_any_case,
        FilterOperator.IS_EMPTY: lambda key, _: IsEmpty(_path(key)),
    }
)
