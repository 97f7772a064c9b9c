"""`QdrantStore`: a LlamaIndex vector store with keyword search in a Qdrant collection."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from llama_index.core.vector_stores.types import BasePydanticVectorStore
from pydantic import PrivateAttr
from qdrant_client import QdrantClient

from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES, Distance
from llama_retrieval_ext.stores.engine.backend import Backend, EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore
from llama_retrieval_ext.stores.engine.config import ConfigRequest
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.vector_store import StoreBackend
from llama_retrieval_ext.stores.qdrant.client import QdrantConnection, Version
from llama_retrieval_ext.stores.qdrant.nodes import QdrantNodes
from llama_retrieval_ext.stores.qdrant.schema import QdrantCollection, StoreParams
from llama_retrieval_ext.stores.qdrant.search import CollectionSearch
from llama_retrieval_ext.stores.qdrant.url import parse_address
from llama_retrieval_ext.stores.qdrant_common.config import fusions_of
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, clause_for
from llama_retrieval_ext.text.tokenizer import Tokenizer

# Local mode writes this file to each directory.
_FILE: Final = "meta.json"


class QdrantStore(CollectionStore):
    """A vector store in its own collection, with keyword search and exact filters.

    The payload is that of `EmbeddedVectorStore`. The payload of LlamaIndex's `QdrantVectorStore`
    requires UUIDs as ids and does not allow exact filters. The collection is created when the first
    nodes are added.

    Similarities are cosine, inner product or negative Euclidean distance, and BM25 for keywords.
    Higher is better in every mode. BM25 has k1 = 1.2 and b = 0.75. The mean text length is computed
    from the first added nodes, smoothed with ten pseudo-documents of 100 terms, and then fixed. A
    server with an HNSW index may miss some nearest nodes;
    ``store_params={"search": {"exact": True}}`` compares all embeddings.

    Args:
        url: ``qdrant://host:port/collection``, ``qdrants://`` for TLS, ``qdrant:DIRECTORY`` or
            ``qdrant::memory:`` for Qdrant's local mode, which is for tests and a few thousand
            nodes. The URL names the environment variable of the API key: ``?api_key_env=NAME``.
        tokenizer: Splits text for keyword search; None for the recorded tokenizer, or `Tokenizer`
            if none is recorded.
        dim: Dimension of the embeddings; None for that of the first added nodes.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        store_params: Settings for the creation of the collection: ``hnsw_config``,
            ``quantization_config``, ``shard_number``, ``on_disk_payload`` and so on, and the dicts
            ``vector`` (``on_disk``, ``datatype``), ``sparse_vector`` and ``search`` (``hnsw_ef``,
            ``exact``). Local mode ignores most. For an existing collection, all except ``search``
            must equal the settings at its creation, or be left out.

    Raises:
        ConfigurationError: The URL or a setting is invalid, the environment variable is not set,
            or the collection has another tokenizer, distance or setting.
        DimensionMismatchError: The collection has another dimension.
        StoreFormatError: The collection was not created by this package, or by a newer release.
        StoreUnavailableError: The server cannot be reached or refuses the key, or another process
            has the directory open.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_index.core.vector_stores.types import VectorStoreQuery
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     store.add([TextNode(id_="n1", text="25 days of leave", embedding=[1.0, 0.0])])
        ...     store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).ids
        ['n1']
        ['n1']

    """

    _collection: QdrantCollection = PrivateAttr()

    def __init__(
        self,
        url: str,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        store_params: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        address = parse_address(url)
        params = StoreParams.of(store_params or {})
        request = ConfigRequest(tokenizer, distance, dim, params.recorded)
        connection = QdrantConnection.of_address(address)
        self._open(QdrantCollection(address.collection, connection, request=request, params=params))

    @property
    def client(self) -> QdrantClient:
        """Qdrant's client."""
        return self._collection.connection.client

    @property
    def place(self) -> str:
        """The collection and its server or directory."""
        return self._collection.where

    @property
    def searcher(self) -> CollectionSearch:
        """The engine's searches."""
        return CollectionSearch(self._collection)

    @property
    def version(self) -> Version:
        """The server's version."""
        return self._collection.version

    def _nodes_of(self, collection: QdrantCollection) -> QdrantNodes:
        return QdrantNodes(collection)

    def _location(self) -> Mapping[str, object]:
        version = self._collection.version
        return {
            "place": self.place,
            "collection": self._collection.name,
            "version": f"{version.major}.{version.minor}",
            "rarity_in_scope": version.measures_rarity_in_scope,
        }

    def _compile_target(self, target: Target) -> Clause | None:
        clause = clause_for(target)
        if clause is not None:
            self._collection.version.check(clause)
        return clause


@cache
def _features(distance: Distance, version: Version, *, real_async: bool) -> EngineFeatures:
    dense = SCORE_RANGES[distance]
    return EngineFeatures(
        dense=dense,
        keyword=BM25_RANGE,
        one_round_trip=True,
        fusions=fusions_of(dense.kind) if version.fuses else (),
        mmr=CollectionSearch.has_mmr,
        exact=True,
        real_async=real_async,
        operators=version.operators,
    )


class QdrantBackend(StoreBackend[QdrantStore]):
    """Backend of a `QdrantStore`, with vector and keyword search in one request.

    Servers before 1.19 compute IDF on the whole collection, not on the scope.

    Examples:
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     QdrantBackend(store).features.dense
        ScoreRange(kind='cosine', low=-1.0, high=1.0)

    """

    engine = "qdrant"

    @property
    def features(self) -> EngineFeatures:
        """All features; async only with a server, because local mode runs in this process."""
        store = self.store
        return _features(store.distance, store.version, real_async=store.connection.real_async)


open_qdrant: Final = QdrantStore


def is_new(url: str) -> bool:
    """Return whether opening the URL would create files; does not contact a server."""
    path = parse_address(url).path
    return path is not None and not (Path(path).expanduser() / _FILE).is_file()


def backend_of(store: BasePydanticVectorStore) -> Backend | None:
    """Return the backend of one of this module's stores; None for others."""
    return QdrantBackend(store) if isinstance(store, QdrantStore) else None
