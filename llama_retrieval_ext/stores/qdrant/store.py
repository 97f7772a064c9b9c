"""`QdrantStore`: a LlamaIndex vector store with keyword search in a Qdrant collection."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias, Unpack

from pydantic import PrivateAttr
from qdrant_client import QdrantClient, models

from llama_retrieval_ext.filters import Condition
from llama_retrieval_ext.stores.encoding.node_json import SECOND, rows_of
from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, SCORES
from llama_retrieval_ext.stores.engine.backend import EngineFeatures, Search
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore, StoreOptions
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.filters import FilterLanguage, Target
from llama_retrieval_ext.stores.qdrant.client import MethodCall, QdrantConnection, parse_address
from llama_retrieval_ext.stores.qdrant.filters import LANGUAGE
from llama_retrieval_ext.stores.qdrant.schema import (
    BM25,
    DENSE,
    QdrantCollection,
    StoreParams,
    sparse_vector,
)
from llama_retrieval_ext.stores.qdrant_common.points import NODE, point_id
from llama_retrieval_ext.stores.qdrant_common.search import (
    PointSearch,
    PointsSearch,
    Recipe,
    fusions_of,
    query_terms,
)

# The engine drops hits with lower scores; it computes in 32 bits.
_ABOVE_ZERO: Final = 1e-30
# Of scores in local mode.
_GRAIN: Final = 1e-6

NativeFusionQuery: TypeAlias = models.RrfQuery | models.FusionQuery | models.FormulaQuery


def _request(search: PointSearch, payload: bool | list[str]) -> models.QueryRequest:  # noqa: FBT001 - the client's word for it
    """Return the request for the best points, with all or part of their payload."""
    return models.QueryRequest(
        prefetch=list(map(_prefetch, search.legs)) or None,
        query=search.query,
        using=search.using,
        filter=search.filter,
        params=search.params,
        limit=search.top_k,
        with_payload=payload,
    )


def _prefetch(leg: PointSearch) -> models.Prefetch:
    return models.Prefetch(
        query=leg.query,
        using=leg.using,
        filter=leg.filter,
        params=leg.params,
        limit=leg.top_k,
        score_threshold=_ABOVE_ZERO if leg.positive else None,
    )


class QdrantSearch(PointsSearch):
    """Searches of a collection created by this package or by LlamaIndex.

    Attributes:
        payload: The part of the payload that holds a node; True for all of it.
    """

    engine_name: ClassVar[str] = "qdrant"
    language: ClassVar[FilterLanguage[Any]] = LANGUAGE
    payload: ClassVar[bool | list[str]] = [NODE]

    @property
    @abstractmethod
    def connection(self) -> QdrantConnection:
        """The connection to the server."""

    @property
    @abstractmethod
    def collection_name(self) -> str:
        """Name of the collection."""

    def compile(self, condition: Condition) -> Any:  # noqa: ANN401 - the engine's filter
        """Return the filter for a condition, or raise if the server cannot evaluate it."""
        self.connection.version.check(condition)
        return self.language.compile(condition)

    def corpus_params(self, corpus: models.Filter | None) -> models.SearchParams | None:
        """Return the params for IDF on a corpus, on all nodes for None; without deleted nodes."""
        connection = self.connection
        if not connection.version.measures_rarity or (corpus is None and connection.is_local):
            return None  # local mode has no deleted nodes
        return models.SearchParams(idf=models.IdfCorpusParams(corpus=corpus or models.Filter()))

    def fusion(self, recipe: Recipe) -> NativeFusionQuery:
        """Return the client's query for a fusion."""
        if recipe.rank_constant is not None:
            return models.RrfQuery(rrf=models.Rrf(k=recipe.rank_constant))
        if not recipe.lines:
            return models.FusionQuery(fusion=models.Fusion.DBSF)
        terms = [
            models.MultExpression(mult=[line.slope, name]) for name, line in recipe.lines.items()
        ]
        sum_ = models.SumExpression(sum=[*terms, recipe.constant])
        return models.FormulaQuery(formula=sum_, defaults=recipe.defaults)

    def pages(
        self, searches: Sequence[PointSearch], *, with_nodes: bool
    ) -> Steps[list[list[models.ScoredPoint]]]:
        """Send searches in one request."""
        payload = self.payload if with_nodes else False
        requests = [_request(search, payload) for search in searches]
        pages = yield MethodCall(
            "query_batch_points", {"collection_name": self.collection_name, "requests": requests}
        )
        return [page.points for page in pages]

    def scores(self, search: PointSearch, hits: Sequence[models.ScoredPoint]) -> list[float]:
        """Return scores, with equal values for scores that differ only by noise."""
        scores = super().scores(search, hits)
        # In local mode the last digits of matrix products depend on memory alignment. Fused scores
        # may be near 0 and close together without being equal.
        is_noisy = self.connection.is_local and not search.legs
        return levelled(scores, grain=_GRAIN) if is_noisy else scores


def levelled(scores: Sequence[float], *, grain: float) -> list[float]:
    """Return descending scores, with equal values for scores within the grain.

    Examples:
        >>> levelled([0.75, 0.7499999, 0.5], grain=1e-6)
        [0.75, 0.75, 0.5]

    """
    levels: list[float] = []
    for score in scores:
        level = levels[-1] if levels else score
        near = abs(level - score) <= grain * max(1.0, abs(level))
        levels.append(level if near else score)
    return levels


class QdrantStore(CollectionStore, QdrantSearch):
    """A vector store in its own collection, with keyword search and exact filters.

    The payload is that of `EmbeddedVectorStore`. The payload of LlamaIndex's `QdrantVectorStore`
    requires UUIDs as ids and does not allow exact filters. The collection is created when the first
    nodes are added.

    Similarities are cosine, inner product or negative Euclidean distance, and BM25 for keywords.
    Higher is better in every mode. BM25 has k1 = 1.2 and b = 0.75. The mean text length is computed
    from the first added nodes, smoothed with ten pseudo-documents of 100 terms, and then fixed. A
    server with an HNSW index may miss some nearest nodes;
    ``store_params={"search": {"exact": True}}`` compares all embeddings. IDF is that of the scope,
    or of all nodes. Servers before 1.19 compute IDF on the whole collection, including nodes that
    were deleted or replaced, until the server rewrites their segment.

    Args:
        url: ``qdrant://host:port/collection``, ``qdrants://`` for TLS, ``qdrant:DIRECTORY`` or
            ``qdrant::memory:`` for Qdrant's local mode, which is for tests and a few thousand
            nodes. The URL names the environment variable of the API key: ``?api_key_env=NAME``.
            ``?prefer_grpc=true&grpc_port=PORT`` uses gRPC, on port 6334 without ``grpc_port``.
        **options: Arguments of `CollectionStore`. ``store_params`` are those of Qdrant's "create
            collection", such as ``hnsw_config``, ``quantization_config`` and ``shard_number``, and
            the dicts ``vector`` (``on_disk``, ``datatype``), ``sparse_vector`` and ``search``
            (``hnsw_ef``, ``exact``), which may differ each time. Local mode ignores most.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_index.core.vector_stores.types import VectorStoreQuery
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     store.add([TextNode(id_="n1", text="25 days of leave", embedding=[1.0, 0.0])])
        ...     store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).ids
        ['n1']
        ['n1']

    """

    local_file: ClassVar[str] = "meta.json"
    params_type = StoreParams
    connection_type = QdrantConnection
    collection_type = QdrantCollection
    parse_address = staticmethod(parse_address)

    _collection: QdrantCollection = PrivateAttr()

    def __init__(self, url: str, **options: Unpack[StoreOptions]) -> None:
        super().__init__(url, **options)

    @property
    def features(self) -> EngineFeatures:
        """All features; async only with a server, because local mode runs in this process."""
        dense, connection = SCORE_RANGES[self.distance], self.connection
        return EngineFeatures(
            dense=dense,
            keyword=BM25_RANGE,
            one_round_trip=True,
            fusions=fusions_of(dense.kind) if connection.version.fuses else (),
            mmr=self.has_mmr,
            exact=True,
            real_async=connection.real_async,
            operators=connection.version.operators,
        )

    @property
    def client(self) -> QdrantClient:
        """Qdrant's client."""
        return self._collection.connection.client

    def vector_search(self, embedding: Sequence[float], search: Search) -> PointSearch:
        """Return the search for the nearest points."""
        collection, params = self._collection, self._collection.params.search
        if search.exact:
            params = (params or models.SearchParams()).model_copy(update={"exact": True})
        return PointSearch(
            query=self._checked(embedding, collection.where),
            using=DENSE,
            top_k=search.top_k,
            score=SCORES[collection.config.distance],
            filter=search.filter,
            # Local mode compares every embedding and warns about search params.
            params=None if collection.connection.is_local else params,
        )

    def keyword_search(self, text: str, search: Search) -> PointSearch | None:
        """Return the search for shared terms; None without terms."""
        weights = query_terms(text, self.tokenizer, self.field_schema, self.field_weights(search))
        if weights is None:
            return None
        return PointSearch(
            query=sparse_vector(weights),
            using=BM25,
            top_k=search.top_k,
            score=float,
            positive=True,
            filter=search.filter,
            params=self.corpus_params(search.corpus),
        )

    def embeddings(self, node_ids: Sequence[str]) -> Steps[dict[str, list[float]]]:
        """Return the stored embeddings of existing nodes by id."""
        by_point = {str(point_id(row)): row.removesuffix(SECOND) for row in rows_of(node_ids)}
        records: list[models.Record] = yield self._collection.request(
            "retrieve", ids=list(by_point), with_payload=False, with_vectors=[DENSE]
        )
        return {by_point[str(record.id)]: record.vector[DENSE] for record in records}  # type: ignore[call-overload,index,misc]  # as asked for

    def _location(self) -> Mapping[str, object]:
        version = self.connection.version
        return {
            "place": self._collection.where,
            "collection": self.collection_name,
            "version": f"{version.major}.{version.minor}",
            "exact_rarity": version.measures_rarity,
        }

    def _compile_target(self, target: Target) -> models.Filter | None:
        if target.condition is not None:
            self.connection.version.check(target.condition)
        selection: models.Filter | None = LANGUAGE.select(target)
        return selection


open_qdrant: Final = QdrantStore
