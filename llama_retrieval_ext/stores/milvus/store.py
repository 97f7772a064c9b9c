"""`MilvusStore`: vectors and keywords of LlamaIndex nodes in a Milvus collection."""

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import PrivateAttr
from pymilvus import MilvusClient

from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, Distance
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.config import params_of
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.vector_store import StoreBackend
from llama_retrieval_ext.stores.milvus.client import MilvusConnection
from llama_retrieval_ext.stores.milvus.filters import Expression, compile_target
from llama_retrieval_ext.stores.milvus.nodes import MilvusNodes
from llama_retrieval_ext.stores.milvus.schema import (
    MilvusCollection,
    MilvusConfigRequest,
    MilvusParams,
)
from llama_retrieval_ext.stores.milvus.search import MAX_HITS, MilvusSearch, fusions_of
from llama_retrieval_ext.stores.milvus.url import Address, parse_address
from llama_retrieval_ext.text.tokenizer import Tokenizer


class MilvusStore(CollectionStore):
    """A vector store in a collection of Milvus, with keyword search and exact filters.

    LlamaIndex's own ``MilvusVectorStore`` inverts some filters and does not escape values;
    this store keeps the same nodes in another form. The collection is created with the first nodes,
    and loaded when needed. Threads may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    raw, and higher is better. BM25 is Milvus's own function (k1 = 1.2, b = 0.75) over all nodes of
    the collection, regardless of the scope; Milvus Lite uses k1 = 1.5, and the rarity of terms in
    each of its data files separately. A node may have up to 65,535 bytes of text and metadata, and
    the same for its terms (about 7,000 terms).

    Args:
        address: Server or file, and collection; `open_milvus` parses it from a URL.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            collection is new.
        dim: Dimension of the embeddings; None for that of the first nodes added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: Settings for creating and searching the collection.

    Raises:
        StoreFormatError: The collection is not of this package, or was created by a newer release.
        StoreUnavailableError: Milvus cannot be reached, refuses the credentials, or another process
            has the file open.
        ConfigurationError: The collection has another tokenizer, distance or setting.
        DimensionMismatchError: The collection has another dimension.
    """

    title: ClassVar[str] = "Milvus"

    _collection: MilvusCollection = PrivateAttr()
    _contents: MilvusNodes = PrivateAttr()

    def __init__(
        self,
        address: Address,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        params: MilvusParams | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        params = params or MilvusParams()
        request = MilvusConfigRequest(
            tokenizer, distance, dim, params.recorded, params.analyzer_params, params.by_tenant
        )
        connection = MilvusConnection(address)
        try:
            collection = MilvusCollection(
                address.collection, connection, request=request, params=params
            )
        except BaseException:
            connection.close()
            raise
        self._open(collection)

    @property
    def client(self) -> MilvusClient:
        """The client of pymilvus."""
        return self._collection.connection.client

    @property
    def searcher(self) -> MilvusSearch:
        """The engine's searches."""
        return MilvusSearch(self._collection)

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Make Milvus Lite index its log, which is durable already; a no-op on servers."""
        self._if_exists(self._contents.flush, empty=None).function()

    def _nodes_of(self, collection: MilvusCollection) -> MilvusNodes:
        return MilvusNodes(collection)

    def _location(self) -> Mapping[str, object]:
        return {
            "place": self._collection.connection.where,
            "collection": self._collection.name,
            "nodes": self.count(),
        }

    def _compile_target(self, target: Target) -> Expression:
        return compile_target(target)


class MilvusBackend(StoreBackend[MilvusStore]):
    """Vector and keyword search of a `MilvusStore`, and Milvus's fusion of both.

    No single request returns the scores of both: ``hybrid_search`` returns fused scores only, so
    its hits have no scores of either search.
    """

    engine = "milvus"

    @property
    def features(self) -> EngineFeatures:
        """Vector and keyword search; async callers wait in threads."""
        dense = SCORE_RANGES[self.store.distance]
        return EngineFeatures(
            dense=dense,
            keyword=BM25_RANGE,
            most_hits=MAX_HITS,
            fusions=fusions_of(dense.kind, lite=self.store.searcher.is_lite),
        )


def open_milvus(
    url: str,
    *,
    tokenizer: Tokenizer | None = None,
    dim: int | None = None,
    distance: Distance | None = None,
    store_params: Mapping[str, Any] | None = None,
) -> MilvusStore:
    """Open the store that a URL names."""
    return MilvusStore(
        parse_address(url),
        tokenizer=tokenizer,
        dim=dim,
        distance=distance,
        params=params_of(MilvusParams, store_params or {}, engine="Milvus"),
    )


def is_new(url: str) -> bool:
    """Return whether opening the URL would create files; always False for a server."""
    path = parse_address(url).path
    return path is not None and not path.exists()


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of one of this module's stores; None for others."""
    return MilvusBackend(store) if isinstance(store, MilvusStore) else None
