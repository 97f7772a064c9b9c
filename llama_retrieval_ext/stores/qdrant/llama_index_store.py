"""Backend for LlamaIndex's `QdrantVectorStore`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
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
    UnsupportedModeError,
)
from llama_retrieval_ext.execution.plan import Call, Steps
from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.encoding.vectors import (
    SCORE_RANGES,
    SCORES,
    ScoreRange,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import (
    Candidate,
    EngineFeatures,
    EngineQuery,
    KeywordQuery,
    VectorQuery,
)
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.engine.search import EngineBackend, EngineRequest
from llama_retrieval_ext.stores.qdrant.client import (
    UNKNOWN,
    MethodCall,
    QdrantConnection,
    Version,
    server_version,
)
from llama_retrieval_ext.stores.qdrant.llama_index_filters import flat_clause_of
from llama_retrieval_ext.stores.qdrant.schema import OUR_DISTANCES
from llama_retrieval_ext.stores.qdrant.search import QdrantSearch
from llama_retrieval_ext.stores.qdrant_common.filters import Clause
from llama_retrieval_ext.stores.qdrant_common.search import PointSearch

T = TypeVar("T")

_OLD_SPARSE: Final = "text-sparse"
_CONTENT: Final = "_node_content"
_ID_FIRST: Final = '{"id_": "'


@dataclass(frozen=True, slots=True)
class Layout:
    """The vectors of a collection.

    Attributes:
        dense: Name of the dense vectors; None for unnamed vectors.
        dimension: Dimension of the dense vectors.
        distance: Distance of the dense vectors.
        sparse: Name of the sparse vectors; None if there are none.
        weighs_rarity: Whether the engine multiplies by IDF.
    """

    dense: str | None
    dimension: int
    distance: models.Distance
    sparse: str | None = None
    weighs_rarity: bool = False


def layout_of(
    info: models.CollectionInfo, *, dense: str, sparse: tuple[str, ...], where: str
) -> Layout:
    """Return the layout of an existing collection."""
    vectors = info.config.params.vectors
    unnamed = isinstance(vectors, models.VectorParams)
    params = vectors if isinstance(vectors, models.VectorParams) else (vectors or {}).get(dense)
    if params is None or params.multivector_config is not None:
        raise StoreFormatError(
            f"{where} has no single dense vectors named {dense!r}; it has "
            f"{sorted(vectors) if isinstance(vectors, dict) else vectors}; name one of them"
        )
    known = info.config.params.sparse_vectors or {}
    name = next((name for name in sparse if name in known), None)
    rarity = name is not None and known[name].modifier == models.Modifier.IDF
    return Layout(None if unnamed else dense, params.size, params.distance, name, rarity)


class LlamaIndexCollection:
    """The collection of a LlamaIndex store.

    Args:
        store: LlamaIndex's store. Some of its attributes are private.
    """

    def __init__(self, store: QdrantVectorStore) -> None:
        client, aclient = store._client, store._aclient  # noqa: SLF001 - LlamaIndex keeps them so
        self.name = store.collection_name
        self.where = f"the collection {self.name!r} of LlamaIndex's QdrantVectorStore"
        self.connection = QdrantConnection(client, aclient, where=self.where)
        self.version = UNKNOWN
        self._store = store
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        """The vectors of the collection; raises before `look_up` has found it."""
        if self._layout is None:
            raise CollectionMissingError(f"{self.where} does not exist")
        return self._layout

    @property
    def has_keywords(self) -> bool:
        """Whether the store has a query encoder and has, or will create, sparse vectors."""
        encodes = self._store.enable_hybrid and self._encoder is not None
        return encodes and (self._layout is None or self._layout.sparse is not None)

    @property
    def expected_distance(self) -> models.Distance:
        """The distance of the collection, or of the collection that the store would create."""
        if self._layout is not None:
            return self._layout.distance
        config = self._store._dense_config  # noqa: SLF001 - it has no public name
        return models.Distance.COSINE if config is None else config.distance

    def look_up(self) -> Steps[Layout | None]:
        """Return the layout, or None if the collection does not exist."""
        if self._layout is None:
            self.version = yield from server_version()
            try:
                info = yield MethodCall("get_collection", {"collection_name": self.name})
            except CollectionMissingError:
                return None
            self._layout = layout_of(
                info,
                dense=self._store.dense_vector_name,
                sparse=(self._store.sparse_vector_name, _OLD_SPARSE),
                where=self.where,
            )
        return self._layout

    def forget(self) -> None:
        """Reset the state to that of a collection that does not exist."""
        self._layout = None

    def encode(self, text: str) -> Steps[models.SparseVector]:
        """Return the sparse vector of a query from the store's encoder, which may be slow."""
        if self.layout.sparse is None:
            raise UnsupportedModeError(
                f"{self.where} has no sparse vectors; make a new collection with "
                "enable_hybrid=True, or open one by URL"
            )
        encode = self._encoder
        indices, values = (yield lambda: encode([text])) if encode else ([[]], [[]])
        return models.SparseVector(indices=list(indices[0]), values=list(values[0]))

    def candidate(self, point: models.ScoredPoint, score: float) -> Candidate:
        """Return the candidate of a point; its node is built on first access."""
        return Candidate.later(self._node_id(point), score, lambda: self._node(point))

    @property
    def _encoder(self) -> SparseEncoderCallable | None:
        # Without enable_hybrid the attribute is missing.
        return getattr(self._store, "_sparse_query_fn", None)

    def _node_id(self, point: models.ScoredPoint) -> str:
        # The point's id is the node id, but with UUIDs in Qdrant's format.
        payload: Mapping[str, object] = point.payload or {}
        content = payload.get(_CONTENT)
        if isinstance(content, str) and content.startswith(_ID_FIRST):
            name = content[len(_ID_FIRST) : content.index('"', len(_ID_FIRST))]
            if "\\" not in name:
                return name
        return self._node(point).node_id

    def _node(self, point: models.ScoredPoint) -> BaseNode:
        nodes = self._store.parse_to_query_result([point]).nodes or []
        return nodes[0]


class LlamaIndexSearch(QdrantSearch):
    """Searches of a collection created by LlamaIndex's store."""

    def __init__(self, source: LlamaIndexCollection) -> None:
        super().__init__(source.name, source.connection, payload=True)
        self._source = source

    @property
    def version(self) -> Version:
        """The server's version."""
        return self._source.version

    def compile(self, condition: Condition) -> Clause:
        """Return the clause for a condition on LlamaIndex's payload."""
        return flat_clause_of(condition)

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps; return `empty` if the collection does not exist."""
        if (yield from self._source.look_up()) is None:
            return empty
        try:
            return (yield from steps())
        except CollectionMissingError:
            self._source.forget()
            return empty

    def native(self, request: EngineRequest[Clause]) -> Steps[PointSearch | None]:
        """Return the engine's search; the store's encoder encodes a text."""
        if isinstance(request.query, VectorQuery):
            return self.vector_search(request.query, request)
        vector = yield from self._source.encode(request.query.text)
        return self._sparse_search(vector, request) if vector.indices else None

    def vector_search(self, query: VectorQuery, request: EngineRequest[Clause]) -> PointSearch:
        """Return the search for the nearest points."""
        layout = self._source.layout
        distance = OUR_DISTANCES[layout.distance]
        vector = query_vector(
            query.embedding,
            dimension=layout.dimension,
            distance=distance,
            where=self._source.where,
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

    def candidate(self, hit: models.ScoredPoint, score: float) -> Candidate:
        """Return the candidate of a point."""
        return self._source.candidate(hit, score)

    def _sparse_search(
        self, vector: models.SparseVector, request: EngineRequest[Clause]
    ) -> PointSearch:
        layout = self._source.layout
        return PointSearch(
            query=vector,
            using=layout.sparse,
            top_k=request.top_k,
            score=float,
            positive=True,
            filter=self.filter_of(request.filter),
            params=self.corpus_params(request.corpus) if layout.weighs_rarity else None,
        )


@cache
def _features(
    distance: models.Distance, version: Version, *, has_keywords: bool, real_async: bool
) -> EngineFeatures:
    return EngineFeatures(
        dense=SCORE_RANGES[OUR_DISTANCES[distance]],
        keyword=ScoreRange(low=0.0) if has_keywords else None,
        one_round_trip=has_keywords,
        real_async=real_async,
        operators=version.operators - {FilterOperator.TEXT_MATCH_INSENSITIVE},
    )


class LlamaIndexQdrantBackend(EngineBackend[QdrantVectorStore]):
    """Backend that searches a LlamaIndex `QdrantVectorStore` with the store's client.

    The store's ``query`` is not used: it falls back to vector search for unsupported modes, and its
    filters drop matching rows or return other rows. This backend evaluates filters exactly or
    refuses them: TEXT_MATCH_INSENSITIVE, numbers of 2**53 and more, ALL with an empty list, and
    keys reserved by LlamaIndex. Filtering in Python could read the whole collection.

    Keyword search needs ``enable_hybrid`` and uses the store's ``sparse_query_fn`` and its scores.
    """

    engine = "qdrant"

    def __init__(self, store: QdrantVectorStore, *, drop_violations: bool = False) -> None:
        super().__init__(store, drop_violations=drop_violations)
        self._source = LlamaIndexCollection(store)
        self._searcher = LlamaIndexSearch(self._source)
        finalize(self, self._source.connection.close)
        with suppress(StoreUnavailableError):  # the first search tries again and raises
            self._source.connection.run(self._source.look_up())

    @property
    def features(self) -> EngineFeatures:
        """Features of the collection, or of the collection that the store would create."""
        source = self._source
        return _features(
            source.expected_distance,
            source.version,
            has_keywords=source.has_keywords,
            real_async=source.connection.real_async,
        )

    @property
    def searcher(self) -> LlamaIndexSearch:
        """The engine's searches."""
        return self._searcher

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps."""
        return self._source.connection.call(steps)

    def check(self, query: EngineQuery) -> None:
        """Raise if the store has no sparse vectors for a keyword query."""
        if isinstance(query, KeywordQuery) and not self._source.has_keywords:
            raise UnsupportedModeError(
                f"{self._source.where} has no sparse vectors to search for keywords; make it with "
                "enable_hybrid=True and a new collection, or open a store by URL"
            )

    def describe(self) -> Mapping[str, object]:
        """Return the engine and the collection; no URL, because it may contain a key."""
        return {
            "engine": self.engine,
            "store": "LlamaIndex's QdrantVectorStore",
            "collection": self._source.name,
            "distance": self._source.expected_distance.value.lower(),
        }


def backend_of_llama_index(store: BasePydanticVectorStore) -> LlamaIndexQdrantBackend | None:
    """Return the backend of a LlamaIndex ``QdrantVectorStore``; None for any other store."""
    return LlamaIndexQdrantBackend(store) if isinstance(store, QdrantVectorStore) else None
