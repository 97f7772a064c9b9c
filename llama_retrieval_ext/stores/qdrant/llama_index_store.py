"""Backend for LlamaIndex's `QdrantVectorStore`, which stores metadata beside fields of its own.

The engine decides all filters, by `FlatFilters`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple, TypeVar
from weakref import finalize

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, FilterOperator
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import models

from llama_retrieval_ext.errors import StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.stores.encoding.vectors import (
    SCORE_RANGES,
    SCORES,
    ScoreRange,
    query_vector,
)
from llama_retrieval_ext.stores.engine.backend import Backend, Candidate, EngineFeatures, Search
from llama_retrieval_ext.stores.engine.collection import CollectionMissingError
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.llama_index import LlamaIndexBackend
from llama_retrieval_ext.stores.qdrant.client import MethodCall, QdrantConnection, scroll
from llama_retrieval_ext.stores.qdrant.filters import FLAT_LANGUAGE
from llama_retrieval_ext.stores.qdrant.schema import OUR_DISTANCES
from llama_retrieval_ext.stores.qdrant.store import QdrantSearch
from llama_retrieval_ext.stores.qdrant_common.search import PointSearch

T = TypeVar("T")

_OLD_SPARSE: Final = "text-sparse"
_ID_FIRST: Final = '{"id_": "'


class Layout(NamedTuple):
    """The vectors of a collection: their names, None for unnamed or missing ones, and kinds."""

    dense: str | None
    dimension: int
    distance: models.Distance
    sparse: str | None
    weighs_rarity: bool


class LlamaIndexQdrantBackend(
    LlamaIndexBackend[QdrantVectorStore, PointSearch, models.ScoredPoint], QdrantSearch
):
    """Backend that searches a LlamaIndex `QdrantVectorStore` with the store's client.

    The store's ``query`` is not used: it falls back to vector search for unsupported modes, and its
    filters drop matching rows or return other rows. This backend evaluates filters exactly or
    refuses them: TEXT_MATCH_INSENSITIVE, dates, numbers of 2**53 and more, ALL with an empty list,
    and keys reserved by LlamaIndex. Filtering in Python could read the whole collection.

    Keyword search needs ``enable_hybrid`` and uses the store's ``sparse_query_fn`` and its scores.
    """

    language = FLAT_LANGUAGE
    payload: ClassVar[bool | list[str]] = True
    has_mmr: ClassVar[bool] = False
    advice: ClassVar[Mapping[str, str]] = {
        "keyword": "it has no sparse vectors to search for keywords; make it with "
        "enable_hybrid=True and a new collection, or open a store by URL"
    }

    def __init__(self, store: QdrantVectorStore, *, drop_violations: bool = False) -> None:
        where = f"the collection {store.collection_name!r} of LlamaIndex's QdrantVectorStore"
        super().__init__(store, where, drop_violations=drop_violations)
        client, aclient = store._client, store._aclient  # noqa: SLF001 - LlamaIndex keeps them so
        self._connection = QdrantConnection(client, aclient, where=where)
        self._layout: Layout | None = None
        finalize(self, self._connection.close)
        with suppress(StoreUnavailableError):  # the first search tries again and raises
            self._connection.run(self._look_up())

    @property
    def connection(self) -> QdrantConnection:
        """The connection to the server."""
        return self._connection

    @property
    def collection_name(self) -> str:
        """Name of the collection."""
        return str(self._store.collection_name)

    @property
    def features(self) -> EngineFeatures:
        """Features of the collection, or of the collection that the store would create."""
        layout, config = self._layout, self._store._dense_config  # noqa: SLF001 - no public name
        expected = models.Distance.COSINE if config is None else config.distance
        distance = OUR_DISTANCES[expected if layout is None else layout.distance]
        has_words = self._encode is not None and (layout is None or layout.sparse is not None)
        return EngineFeatures(
            dense=SCORE_RANGES[distance],
            keyword=ScoreRange(low=0.0) if has_words else None,
            one_round_trip=has_words,
            real_async=self._connection.real_async,
            operators=self._connection.version.operators - {FilterOperator.TEXT_MATCH_INSENSITIVE},
        )

    def call(self, steps: Callable[[], Steps[T]], *, empty: T) -> Call[T]:
        """Return the call that runs steps; its result is `empty` without a collection."""

        def if_exists() -> Steps[T]:
            try:
                return (yield from steps()) if (yield from self._look_up()) else empty
            except CollectionMissingError:
                self._layout = None
                return empty

        return self._connection.call(if_exists)

    def vector_search(self, embedding: Sequence[float], search: Search) -> PointSearch:
        """Return the search for the nearest points."""
        layout = self._known_layout
        distance = OUR_DISTANCES[layout.distance]
        return PointSearch(
            query=query_vector(
                embedding, dimension=layout.dimension, distance=distance, where=self.where
            ),
            using=layout.dense,
            top_k=search.top_k,
            score=SCORES[distance],
            filter=search.filter,
        )

    def keyword_search(self, text: str, search: Search) -> PointSearch | None:
        """Return the search by sparse vectors; `pages` encodes the text."""
        layout = self._known_layout
        return PointSearch(
            query=text,
            using=layout.sparse,
            top_k=search.top_k,
            score=float,
            positive=True,
            filter=search.filter,
            params=self.corpus_params(search.corpus) if layout.weighs_rarity else None,
        )

    def pages(
        self, searches: Sequence[PointSearch], *, with_nodes: bool
    ) -> Steps[list[list[models.ScoredPoint]]]:
        """Encode texts by the store's encoder, which may be slow; send searches in one request."""
        sent: list[PointSearch | None] = []
        for search in searches:
            encode, text = self._encode, search.query
            if isinstance(text, str) and encode is not None:
                indices, values = yield lambda encode=encode, text=text: encode([text])
                sparse = models.SparseVector(indices=[*indices[0]], values=[*values[0]])
                sent.append(replace(search, query=sparse) if sparse.indices else None)
            else:
                sent.append(search)
        with_hits = [search for search in sent if search is not None]
        pages = iter((yield from super().pages(with_hits, with_nodes=with_nodes)))
        return [[] if search is None else next(pages) for search in sent]

    def all_nodes(self) -> Call[list[BaseNode]]:
        """Return all nodes of the collection."""

        def steps() -> Steps[list[BaseNode]]:
            records = yield from scroll(self.collection_name, with_payload=True)
            return list(self._store.parse_to_query_result(records).nodes or [])

        return self.call(steps, empty=[])

    def candidate(self, hit: models.ScoredPoint, score: float) -> Candidate:
        """Return the candidate of a point; its node is built on first access."""

        def node() -> BaseNode:
            nodes = self._store.parse_to_query_result([hit]).nodes or []
            return nodes[0]

        # The point's id is the node id, but with UUIDs in Qdrant's format.
        content = str((hit.payload or {}).get("_node_content"))
        id_ = content.removeprefix(_ID_FIRST).partition('"')[0]
        is_plain = content.startswith(_ID_FIRST) and "\\" not in id_
        return Candidate(node, score, node_id=id_ if is_plain else node().node_id)

    @property
    def _known_layout(self) -> Layout:
        if self._layout is None:  # another search has found that it is gone
            raise CollectionMissingError(f"{self.where} does not exist")
        return self._layout

    @property
    def _encode(self) -> Any:  # noqa: ANN401 - LlamaIndex's function
        # Without enable_hybrid the attribute is missing. LlamaIndex may replace it at any time.
        return getattr(self._store, "_sparse_query_fn", None) if self._store.enable_hybrid else None

    def _look_up(self) -> Steps[bool]:
        """Read the layout; return whether the collection exists."""
        if self._layout is not None:
            return True
        yield from self._connection.read_version()
        try:
            info = yield MethodCall("get_collection", {"collection_name": self.collection_name})
        except CollectionMissingError:
            return False
        dense, vectors = self._store.dense_vector_name, info.config.params.vectors
        is_named = not isinstance(vectors, models.VectorParams)
        params = (vectors or {}).get(dense) if is_named else vectors
        if params is None or params.multivector_config is not None:
            raise StoreFormatError(
                f"{self.where} has no single dense vectors named {dense!r}; it has "
                f"{sorted(vectors) if isinstance(vectors, dict) else vectors}; name one of them"
            )
        sparse = info.config.params.sparse_vectors or {}
        names = (self._store.sparse_vector_name, _OLD_SPARSE)
        name = next((name for name in names if name in sparse), None)
        rarity = name is not None and sparse[name].modifier == models.Modifier.IDF
        self._layout = Layout(
            dense if is_named else None, params.size, params.distance, name, rarity
        )
        return True


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of LlamaIndex's store; None for others."""
    return LlamaIndexQdrantBackend(store) if isinstance(store, QdrantVectorStore) else None
