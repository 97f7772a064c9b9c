"""`MilvusStore`: vectors and keywords of LlamaIndex nodes in a Milvus collection."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Unpack

from pydantic import PrivateAttr
from pymilvus import MilvusClient

from llama_retrieval_ext.stores.encoding.vectors import BM25_RANGE, SCORE_RANGES
from llama_retrieval_ext.stores.engine.backend import EngineFeatures
from llama_retrieval_ext.stores.engine.collection_store import CollectionStore, StoreOptions
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.milvus.client import MilvusConnection, parse_address
from llama_retrieval_ext.stores.milvus.filters import Expression, compile_target
from llama_retrieval_ext.stores.milvus.nodes import MilvusNodes
from llama_retrieval_ext.stores.milvus.params import MilvusParams
from llama_retrieval_ext.stores.milvus.schema import MilvusCollection
from llama_retrieval_ext.stores.milvus.search import MAX_HITS, MilvusSearch, fusions_of


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
        url: ``milvus://host:19530/collection`` or ``milvus:./file.db``.
        **options: Arguments of `CollectionStore`; ``store_params`` are the fields of
            `MilvusParams`.
    """

    engine: ClassVar[str] = "milvus"
    title: ClassVar[str] = "Milvus"
    params_type = MilvusParams
    connection_type = MilvusConnection
    collection_type = MilvusCollection
    nodes_type = MilvusNodes
    search_type = MilvusSearch
    parse_address = staticmethod(parse_address)

    _collection: MilvusCollection = PrivateAttr()
    _contents: MilvusNodes = PrivateAttr()

    def __init__(self, url: str, **options: Unpack[StoreOptions]) -> None:
        super().__init__(url, **options)

    @property
    def features(self) -> EngineFeatures:
        """Vector and keyword search, each with a request of its own: `hybrid_search` only fuses."""
        dense = SCORE_RANGES[self.distance]
        return EngineFeatures(
            dense=dense,
            keyword=BM25_RANGE,
            most_hits=MAX_HITS,
            fusions=fusions_of(dense.kind, lite=self._collection.connection.is_lite),
        )

    @property
    def client(self) -> MilvusClient:
        """The client of pymilvus."""
        return self._collection.connection.client

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Make Milvus Lite index its log, which is durable already; a no-op on servers."""
        self._if_exists(self._contents.flush, empty=None).function()

    def _location(self) -> Mapping[str, object]:
        return {
            "place": self._collection.connection.where,
            "collection": self._collection.name,
            "nodes": self.count(),
        }

    def _compile_target(self, target: Target) -> Expression:
        return compile_target(target)


open_milvus: Final = MilvusStore


def is_new(url: str) -> bool:
    """Return whether opening the URL would create files; always False for a server."""
    path = parse_address(url).path
    return bool(path) and not Path(path).exists()
