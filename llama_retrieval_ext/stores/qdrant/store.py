"""`QdrantStore`: a LlamaIndex vector store with keyword search in a Qdrant collection."""

from collections.abc import Mapping
from typing import ClassVar, Final, Unpack

from pydantic import PrivateAttr
from qdrant_client import QdrantClient

from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES
from llama_retrieval_ext.stores.engine.backend import EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore, StoreOptions
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.qdrant.client import QdrantConnection, parse_address
from llama_retrieval_ext.stores.qdrant.nodes import QdrantNodes
from llama_retrieval_ext.stores.qdrant.schema import QdrantCollection, StoreParams
from llama_retrieval_ext.stores.qdrant.search import CollectionSearch
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, clause_for
from llama_retrieval_ext.stores.qdrant_common.search import fusions_of
from llama_retrieval_ext.urls import local_path

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

    engine: ClassVar[str] = "qdrant"
    title: ClassVar[str] = "Qdrant"
    params_type = StoreParams
    connection_type = QdrantConnection
    collection_type = QdrantCollection
    nodes_type = QdrantNodes
    search_type = CollectionSearch
    parse_address = staticmethod(parse_address)

    _collection: QdrantCollection = PrivateAttr()

    def __init__(self, url: str, **options: Unpack[StoreOptions]) -> None:
        super().__init__(url, **options)

    @property
    def features(self) -> EngineFeatures:
        """All features; async only with a server, because local mode runs in this process."""
        dense, version = SCORE_RANGES[self.distance], self._collection.version
        return EngineFeatures(
            dense=dense,
            keyword=BM25_RANGE,
            one_round_trip=True,
            fusions=fusions_of(dense.kind) if version.fuses else (),
            mmr=CollectionSearch.has_mmr,
            exact=True,
            real_async=self.connection.real_async,
            operators=version.operators,
        )

    @property
    def client(self) -> QdrantClient:
        """Qdrant's client."""
        return self._collection.connection.client

    def _location(self) -> Mapping[str, object]:
        version = self._collection.version
        return {
            "place": self._collection.where,
            "collection": self._collection.name,
            "version": f"{version.major}.{version.minor}",
            "exact_rarity": version.measures_rarity,
        }

    def _compile_target(self, target: Target) -> Clause | None:
        clause = clause_for(target)
        if clause is not None:
            self._collection.version.check(clause)
        return clause


open_qdrant: Final = QdrantStore


def is_new(url: str) -> bool:
    """Return whether opening the URL would create files; does not contact a server."""
    path = parse_address(url).path
    return bool(path) and not (local_path(path) / _FILE).is_file()
