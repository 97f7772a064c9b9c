"""`MilvusStore`: LlamaIndex vectors and keywords in a collection of Milvus or Milvus Lite."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr
from pymilvus import MilvusClient

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.milvus.address import Address, checked_name
from llama_retrieval_ext.stores.milvus.collection import Collection
from llama_retrieval_ext.stores.milvus.connection import Connection
from llama_retrieval_ext.stores.milvus.manifest import Asked, Distance
from llama_retrieval_ext.stores.milvus.modes import found_by
from llama_retrieval_ext.stores.milvus.params import MilvusParams
from llama_retrieval_ext.stores.milvus.reading import count_matching, matching_nodes
from llama_retrieval_ext.stores.milvus.search import Searcher
from llama_retrieval_ext.stores.milvus.targets import target
from llama_retrieval_ext.stores.milvus.writing import Writer
from llama_retrieval_ext.text.tokenizer import Tokenizer


class MilvusStore(BasePydanticVectorStore):
    """A vector store in a collection of Milvus, with keyword search and exact filters.

    LlamaIndex's own ``MilvusVectorStore`` turns some filters into others and lets values break out
    of them; this one keeps the same nodes in another form. The collection is made when the first
    nodes are added, and loaded whenever it is not. Threads may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    raw, and higher is better. BM25 is Milvus's own function (k1 = 1.2, b = 0.75) over all nodes of
    the collection, whatever the scope; Milvus Lite has k1 = 1.5, and takes the rarity of terms from
    each of its data files alone. A node may have 65,535 bytes of text and metadata, and as many of
    terms (some 7,000).

    Args:
        address: Where the collection is; `open_milvus` makes one of a URL.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            collection is new.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: How the collection is made and searched.

    Raises:
        StoreFormatError: The collection was not made by this package, or by a newer release of it.
        StoreUnavailableError: Milvus cannot be reached, refuses the credentials, or another process
            has the file open.
        ConfigurationError: The collection has another tokenizer, distance or analyser.
        DimensionMismatchError: It has another dimension.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False

    _connection: Connection = PrivateAttr()
    _collection: Collection = PrivateAttr()
    _writer: Writer = PrivateAttr()

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
        asked = Asked(tokenizer, distance, dim, params.analyzer_params, params.by_tenant)
        self._connection = Connection(address)
        try:
            self._collection = Collection(
                self._connection, address.collection, asked=asked, params=params
            )
        except BaseException:
            self._connection.close()
            raise
        self._writer = Writer(self._collection)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the class."""
        return "MilvusStore"

    @property
    def client(self) -> MilvusClient:
        """Pymilvus's client."""
        return self._connection.client

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        return self._collection.manifest.tokenizer

    @property
    def distance(self) -> Distance:
        """How embeddings are compared."""
        return self._collection.manifest.distance

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while nothing was added."""
        return self._collection.manifest.dimension

    @property
    def searcher(self) -> Searcher:
        """Asks the engine directly, as the backend does."""
        return Searcher(self._collection)

    def add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """Add nodes with their embeddings; a node whose id is there already replaces the old one.

        All nodes of a call are checked before the first is written. They go in by batches; when one
        fails, the batches before it stay.

        Args:
            nodes: Of several with the same id the last counts.
            **kwargs: LlamaIndex hands them on; there are none here.

        Returns:
            The id of each node.

        Raises:
            ConfigurationError: A node has no embedding, one with a value that is not finite,
                metadata that has no JSON form, or more than Milvus takes; it is named.
            DimensionMismatchError: An embedding has another dimension than the store.
            StoreUnavailableError: Milvus cannot answer.
            StoreClosedError: The store was closed.
        """
        _refuse(kwargs, "add")
        self._writer.add(nodes)
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """`add` in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    def delete(self, ref_doc_id: str, **delete_kwargs: object) -> None:
        """Delete the nodes that come from a document.

        Args:
            ref_doc_id: Its id.
            **delete_kwargs: LlamaIndex hands them on; there are none here.

        Raises:
            ConfigurationError: The id is empty.
        """
        _refuse(delete_kwargs, "delete")
        if not ref_doc_id:
            raise ConfigurationError(f"delete needs the id of a document, got {ref_doc_id!r}")
        self._writer.delete(target(doc_ids=[ref_doc_id]))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: object) -> None:
        """`delete` in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: object,
    ) -> None:
        """Delete the nodes that have one of the ids and satisfy the filters.

        Args:
            node_ids: None for any id; an empty list deletes nothing.
            filters: None for any metadata.
            **delete_kwargs: LlamaIndex hands them on; there are none here.

        Raises:
            ConfigurationError: Neither is given.
            InvalidFilterError: The filters cannot mean anything.
        """
        _refuse(delete_kwargs, "delete_nodes")
        if node_ids is None and filters is None:
            raise ConfigurationError(
                "delete_nodes needs node_ids or filters; to empty the store call clear()"
            )
        self._writer.delete(target(node_ids=node_ids, filters=filters))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: object,
    ) -> None:
        """`delete_nodes` in a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes that have one of the ids and satisfy the filters, with their embeddings.

        Embeddings come back in single precision.

        Args:
            node_ids: None for any id; an empty list gives nothing.
            filters: None for any metadata.

        Returns:
            In the order of the ids, missing ones left out; without ids by node id.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        nodes = target(node_ids=node_ids, filters=filters)
        return matching_nodes(self._collection, nodes, order=node_ids)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """`get_nodes` in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def count(self, filters: MetadataFilters | None = None) -> int:
        """How many nodes there are, or satisfy filters.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        return count_matching(self._collection, target(filters=filters))

    def clear(self) -> None:
        """Delete all nodes, with the collection. What is added next may have another dimension."""
        self._collection.drop()

    async def aclear(self) -> None:
        """`clear` in a thread."""
        await asyncio.to_thread(self.clear)

    def query(self, query: VectorStoreQuery, **kwargs: object) -> VectorStoreQueryResult:
        """What a query finds, best first.

        HYBRID fuses ``similarity_top_k`` nearest nodes and ``sparse_top_k`` keyword hits into
        ``hybrid_top_k``: by reciprocal rank fusion, or with ``alpha`` by a weighted sum of min-max
        normalised scores. Nodes come without embeddings.

        Args:
            query: In one of the modes DEFAULT, SPARSE, TEXT_SEARCH and HYBRID.
            **kwargs: LlamaIndex hands them on; there are none here.

        Raises:
            UnsupportedModeError: Another mode.
            ConfigurationError: The query lacks what its mode needs, or has a value out of range.
            UnsupportedFilterError: The engine cannot evaluate the filters.
            DimensionMismatchError: The embedding has another dimension than the store.
        """
        found = found_by(query, self.searcher, kwargs)
        return VectorStoreQueryResult(
            nodes=[each.node for each in found],
            similarities=[each.score for each in found],
            ids=[each.node_id for each in found],
        )

    async def aquery(self, query: VectorStoreQuery, **kwargs: object) -> VectorStoreQueryResult:
        """`query` in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Nothing that had to be called: what was added is kept. Milvus Lite indexes the rest."""
        self._writer.flush()

    def beside(self, suffix: str) -> Self:
        """A store of records that are read by id, in a collection of its own, over this client.

        Args:
            suffix: What its collection's name has more than this one's.

        Raises:
            ConfigurationError: The name is too long.
            StoreFormatError: That collection was not made by this package.
            StoreUnavailableError: Milvus cannot answer.
        """
        collection = Collection(
            self._connection,
            checked_name(f"{self._collection.name}{suffix}"),
            asked=Asked(),
            # Also what another client has just written is seen.
            params=MilvusParams(index_type="FLAT", consistency_level="Strong"),
        )
        other = self.model_copy()  # closing either closes both
        other._collection, other._writer = collection, Writer(collection)  # noqa: SLF001 - own class
        return other

    def describe(self) -> dict[str, object]:
        """Where the store is, how it is set up and how much is in it."""
        manifest = self._collection.manifest
        return {
            "place": self._connection.where,
            "collection": self._collection.name,
            "nodes": self.count(),
            "dimension": manifest.dimension,
            "distance": manifest.distance,
            "tokenizer": manifest.tokenizer.to_dict(),
        }

    def close(self) -> None:
        """Close the store; a file is free for others when no store object has it open."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _refuse(options: dict[str, object], method: str) -> None:
    if options:
        raise ConfigurationError(f"{method} has no options {', '.join(sorted(options))}")
