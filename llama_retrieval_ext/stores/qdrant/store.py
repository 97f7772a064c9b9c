"""`QdrantStore`: LlamaIndex vectors and keywords in a collection of a Qdrant."""

import asyncio
import weakref
from collections.abc import Mapping, Sequence
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
from qdrant_client import QdrantClient

from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError
from llama_retrieval_ext.stores.embedded.manifest import Distance, Settings
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.modes import found_by
from llama_retrieval_ext.stores.points.targets import from_documents, target
from llama_retrieval_ext.stores.qdrant.address import parsed_address
from llama_retrieval_ext.stores.qdrant.blocking import BlockingSearcher
from llama_retrieval_ext.stores.qdrant.clients import connected
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.connection import Connection
from llama_retrieval_ext.stores.qdrant.params import StoreParams
from llama_retrieval_ext.stores.qdrant.reading import count_matching, matching_nodes
from llama_retrieval_ext.stores.qdrant.search import TalkingSearcher
from llama_retrieval_ext.stores.qdrant.talk import Talk
from llama_retrieval_ext.stores.qdrant.writing import added, deleted
from llama_retrieval_ext.text.tokenizer import Tokenizer


class QdrantStore(BasePydanticVectorStore):
    """A vector store in a collection of its own, with keyword search and exact filters.

    What it stores is laid out like that of `EmbeddedVectorStore`, not like that of LlamaIndex's
    `QdrantVectorStore`: there, filters cannot be exact, and ids have to be UUIDs. The collection is
    made when the first nodes are added.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    higher is better, whatever the mode. BM25 has k1 = 1.2 and b = 0.75; the mean length of a text
    is measured on the first nodes that are added and stays. A server that has grown a graph over
    the vectors (HNSW) may miss some of the nearest; ``store_params={"search": {"exact": True}}``
    has it compare them all.

    Args:
        url: ``qdrant://host:port/collection``, ``qdrants://`` for TLS, ``qdrant:DIRECTORY`` or
            ``qdrant::memory:`` for Qdrant's local mode, which is for tests and a few thousand
            nodes. The API key is named, not written: ``?api_key_env=NAME``.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where
            there is none.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        store_params: For the engine when it makes the collection: ``hnsw_config``,
            ``quantization_config``, ``shard_number``, ``on_disk_payload`` and so on, and dicts as
            ``vector`` (``on_disk``, ``datatype``), ``sparse_vector`` and ``search`` (``hnsw_ef``,
            ``exact``). Local mode has no use for most.

    Raises:
        ConfigurationError: The URL or a setting is wrong, the environment variable is not set, or
            the collection has another tokenizer or distance.
        DimensionMismatchError: The collection has another dimension.
        StoreFormatError: The collection was not made by this package, or by a newer release.
        StoreUnavailableError: The server cannot be reached or refuses the key, or another process
            has the directory open.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> with QdrantStore("qdrant::memory:") as store:
        ...     store.add([TextNode(id_="n1", text="25 days of leave", embedding=[1.0, 0.0])])
        ...     store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).ids
        ['n1']
        ['n1']

    """

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    place: str = ""

    _connection: Connection = PrivateAttr()
    _collection: Collection = PrivateAttr()
    _client: QdrantClient = PrivateAttr()
    _closer: "weakref.finalize[..., QdrantStore]" = PrivateAttr()

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
        address = parsed_address(url)
        settings, params = Settings(tokenizer, distance, dim), StoreParams.of(store_params or {})
        self.place = str(address)
        self._connection, self._client, close = connected(address)
        # Also when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, close)
        self._collection = Collection(
            address.collection, self._connection, settings=settings, params=params
        )
        try:
            self._connection.ask(self._collection.opened())
        except BaseException:
            self.close()
            raise

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the class."""
        return "QdrantStore"

    @property
    def client(self) -> QdrantClient:
        """Qdrant's client."""
        return self._client

    @property
    def connection(self) -> Connection:
        """Carries out what the backend asks.

        Raises:
            StoreClosedError: The store was closed.
        """
        if not self._closer.alive:
            raise StoreClosedError(f"{self.place} was closed; open it again")
        return self._connection

    @property
    def searcher(self) -> TalkingSearcher:
        """What the backend asks."""
        return TalkingSearcher(self._collection)

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

    def add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """Add nodes with their embeddings; a node whose id is there already replaces the old one.

        All nodes of a call are checked before the first is sent. They go by batches; when one
        fails, the batches before it stay.

        Args:
            nodes: Of several with the same id the last counts.
            **kwargs: LlamaIndex hands them on; there are none here.

        Returns:
            The id of each node.

        Raises:
            ConfigurationError: A node has no embedding, one with a value that is not finite, or
                metadata that has no JSON form; it is named.
            DimensionMismatchError: An embedding has another dimension than the collection.
            StoreUnavailableError: The server cannot be reached, or has no room.
            StoreClosedError: The store was closed.
        """
        _refuse(kwargs, "add")
        self.connection.ask(added(self._collection, nodes))
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """`add` without blocking the event loop."""
        _refuse(kwargs, "async_add")
        await self.connection.aask(added(self._collection, nodes))
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: object) -> None:
        """Delete the nodes that come from a document.

        Args:
            ref_doc_id: Its id.
            **delete_kwargs: LlamaIndex hands them on; there are none here.

        Raises:
            ConfigurationError: The id is empty.
        """
        self.connection.ask(self._deleted_document(ref_doc_id, delete_kwargs))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: object) -> None:
        """`delete` without blocking the event loop."""
        await self.connection.aask(self._deleted_document(ref_doc_id, delete_kwargs))

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
        self.connection.ask(self._deleted_nodes(node_ids, filters, delete_kwargs))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: object,
    ) -> None:
        """`delete_nodes` without blocking the event loop."""
        await self.connection.aask(self._deleted_nodes(node_ids, filters, delete_kwargs))

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes that have one of the ids and satisfy the filters, with their embeddings.

        Embeddings come back in single precision and, with cosine distance, at length 1.

        Args:
            node_ids: None for any id; an empty list gives nothing.
            filters: None for any metadata.

        Returns:
            In the order of the ids, missing ones left out; without ids by node id.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        return self.connection.ask(self._matching(node_ids, filters))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """`get_nodes` without blocking the event loop."""
        return await self.connection.aask(self._matching(node_ids, filters))

    def count(self, filters: MetadataFilters | None = None) -> int:
        """How many nodes there are, or satisfy filters.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        nodes, name = self._target(filters=filters), self._collection.name
        return self.connection.ask(
            self._collection.if_there(lambda: count_matching(name, nodes), empty=0)
        )

    def clear(self) -> None:
        """Remove the collection. What is added next may have another dimension."""
        self.connection.ask(self._collection.dropped())

    async def aclear(self) -> None:
        """`clear` without blocking the event loop."""
        await self.connection.aask(self._collection.dropped())

    def query(self, query: VectorStoreQuery, **kwargs: float | None) -> VectorStoreQueryResult:
        """What a query finds, best first; in mode MMR in the order picked.

        HYBRID fuses ``similarity_top_k`` nearest nodes and ``sparse_top_k`` keyword hits into
        ``hybrid_top_k``: by reciprocal rank fusion, or with ``alpha`` by a weighted sum of min-max
        normalised scores. Nodes come without embeddings.

        Args:
            query: In one of the modes DEFAULT, SPARSE, TEXT_SEARCH, HYBRID and MMR.
            **kwargs: For MMR ``mmr_threshold``, ``mmr_prefetch_factor`` and ``mmr_prefetch_k``.

        Raises:
            UnsupportedModeError: Another mode.
            ConfigurationError: The query lacks what its mode needs, or has a value out of range.
            UnsupportedFilterError: The engine cannot evaluate the filters.
            DimensionMismatchError: The embedding has another dimension than the collection.
        """
        found = found_by(query, BlockingSearcher(self.searcher, self.connection), kwargs)
        return VectorStoreQueryResult(
            nodes=[each.node for each in found],
            similarities=[each.score for each in found],
            ids=[each.node_id for each in found],
        )

    async def aquery(
        self, query: VectorStoreQuery, **kwargs: float | None
    ) -> VectorStoreQueryResult:
        """`query` in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    def persist(self, persist_path: str = "", fs: object = None) -> None:
        """Nothing that had to be called: what `add` has taken is stored."""

    def beside(self, suffix: str) -> Self:
        """A store of records that are read by id, in a collection of its own, over this client.

        Args:
            suffix: What its collection's name has more than this one's.

        Raises:
            StoreFormatError: That collection was not made by this package.
            StoreUnavailableError: The server cannot be reached.
        """
        name = f"{self._collection.name}{suffix}"
        place = self.place.replace(repr(self._collection.name), repr(name), 1)
        connection = self.connection.named(place)
        params = self._collection.params.for_records
        collection = Collection(name, connection, settings=Settings(), params=params)
        connection.ask(collection.opened())
        other = self.model_copy(update={"place": place})  # closing either closes both
        other._connection, other._collection = connection, collection  # noqa: SLF001 - own class
        return other

    def describe(self) -> dict[str, object]:
        """Where the collection is and how it is set up; known without asking."""
        manifest, version = self._collection.manifest, self._collection.version
        return {
            "place": self.place,
            "collection": self._collection.name,
            "version": f"{version.major}.{version.minor}",
            "dimension": manifest.dimension,
            "distance": manifest.distance,
            "tokenizer": manifest.tokenizer.to_dict(),
            "rarity_in_scope": version.measures_rarity_in_scope,
        }

    def close(self) -> None:
        """Close the connection."""
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _target(
        self, *, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> Clause | None:
        nodes = target(node_ids=node_ids, filters=filters)
        if nodes is not None:
            self._collection.version.check(nodes)
        return nodes

    def _matching(
        self, node_ids: list[str] | None, filters: MetadataFilters | None
    ) -> Talk[list[BaseNode]]:
        nodes, name = self._target(node_ids=node_ids, filters=filters), self._collection.name
        return self._collection.if_there(
            lambda: matching_nodes(name, nodes, order=node_ids), empty=[]
        )

    def _deleted_document(self, ref_doc_id: str, options: dict[str, object]) -> Talk[None]:
        _refuse(options, "delete")
        if not ref_doc_id:
            raise ConfigurationError(f"delete needs the id of a document, got {ref_doc_id!r}")
        return self._deleted(from_documents([ref_doc_id]))

    def _deleted_nodes(
        self,
        node_ids: list[str] | None,
        filters: MetadataFilters | None,
        options: dict[str, object],
    ) -> Talk[None]:
        _refuse(options, "delete_nodes")
        nodes = self._target(node_ids=node_ids, filters=filters)
        if nodes is None:
            raise ConfigurationError(
                "delete_nodes needs node_ids or filters; to empty the store call clear()"
            )
        return self._deleted(nodes)

    def _deleted(self, nodes: Clause) -> Talk[None]:
        return self._collection.if_there(lambda: deleted(self._collection, nodes), empty=None)


def _refuse(options: dict[str, object], method: str) -> None:
    if options:
        raise ConfigurationError(f"{method} has no options {', '.join(sorted(options))}")
