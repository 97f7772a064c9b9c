"""`EmbeddedVectorStore`: LlamaIndex vectors and keywords on disk, in this process."""

import asyncio
import weakref
from collections.abc import Sequence
from pathlib import Path
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
from qdrant_edge import EdgeShard

from llama_retrieval_ext.errors import ConfigurationError, StoreClosedError
from llama_retrieval_ext.stores.embedded.directory import StoreDirectory
from llama_retrieval_ext.stores.embedded.disk import MIN_FREE_BYTES
from llama_retrieval_ext.stores.embedded.reading import count_matching, matching_nodes
from llama_retrieval_ext.stores.embedded.registry import MEMORY, Opened, registry
from llama_retrieval_ext.stores.embedded.search import Searcher
from llama_retrieval_ext.stores.embedded.writing import add_nodes, delete_matching
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.points.manifest import Settings
from llama_retrieval_ext.stores.points.modes import found_by
from llama_retrieval_ext.stores.points.targets import from_documents, target
from llama_retrieval_ext.text.tokenizer import Tokenizer


class EmbeddedVectorStore(BasePydanticVectorStore):
    """A vector store in a directory, with keyword search and exact filters, and without a server.

    The directory is made if need be, and can be open in one process at a time; in that process as
    often as you like. What `add` has taken survives a crash of the process. Threads may share a
    store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords:
    higher is better, whatever the mode. Results are exact: every embedding is compared. BM25 has
    k1 = 1.2 and b = 0.75; the mean length of a text is measured on the first nodes that are added
    to an empty store and stays, so that no weight ever has to be computed again.

    Args:
        path: The directory; ``":memory:"`` for a temporary one that is removed when closed.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            store is empty.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        min_free_bytes: How much room `add` must leave on the disk.

    Raises:
        StoreFormatError: The directory holds something else, or a store from a newer release.
        StoreUnavailableError: It cannot be written to, or another process has it open.
        ConfigurationError: The store has another tokenizer or distance.
        DimensionMismatchError: The store has another dimension.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> with EmbeddedVectorStore(":memory:") as store:
        ...     store.add([TextNode(id_="n1", text="25 days of leave", embedding=[1.0, 0.0])])
        ...     store.query(VectorStoreQuery(query_embedding=[0.6, 0.8])).ids
        ['n1']
        ['n1']

    """

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    path: str = MEMORY
    min_free_bytes: int = MIN_FREE_BYTES

    _opened: Opened = PrivateAttr()
    _closer: "weakref.finalize[..., EmbeddedVectorStore]" = PrivateAttr()

    def __init__(
        self,
        path: str | Path,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        min_free_bytes: int = MIN_FREE_BYTES,
    ) -> None:
        super().__init__(stores_text=True)
        self.path = str(path)
        self.min_free_bytes = min_free_bytes
        self._opened = registry.acquire(path, Settings(tokenizer, distance, dim))
        # Also when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, registry.release, self._opened)

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the class."""
        return "EmbeddedVectorStore"

    @property
    def client(self) -> EdgeShard | None:
        """The engine's shard; None while nothing was added."""
        return self._directory.read(lambda shard: shard, empty=None)

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        return self._directory.manifest.tokenizer

    @property
    def distance(self) -> Distance:
        """How embeddings are compared."""
        return self._directory.manifest.distance

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while nothing was added."""
        return self._directory.manifest.dimension

    @property
    def searcher(self) -> Searcher:
        """Asks the engine directly, as the backend does."""
        return Searcher(self._directory)

    def add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """Add nodes with their embeddings; a node whose id is there already replaces the old one.

        All nodes of a call are checked before the first is written. They go in by batches; when one
        fails, as on a full disk, the batches before it stay.

        Args:
            nodes: Of several with the same id the last counts.
            **kwargs: LlamaIndex hands them on; there are none here.

        Returns:
            The id of each node.

        Raises:
            ConfigurationError: A node has no embedding, one with a value that is not finite, or
                metadata that has no JSON form; it is named.
            DimensionMismatchError: An embedding has another dimension than the store.
            StoreUnavailableError: There is no room, or the engine failed.
            StoreClosedError: The store was closed.
        """
        _refuse(kwargs, "add")
        add_nodes(self._directory, nodes, min_free=self.min_free_bytes)
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
        delete_matching(self._directory, from_documents([ref_doc_id]))

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
        nodes = target(node_ids=node_ids, filters=filters)
        if nodes is None:
            raise ConfigurationError(
                "delete_nodes needs node_ids or filters; to empty the store call clear()"
            )
        delete_matching(self._directory, nodes)

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

        Embeddings come back in single precision and, with cosine distance, at length 1.

        Args:
            node_ids: None for any id; an empty list gives nothing.
            filters: None for any metadata.

        Returns:
            In the order of the ids, missing ones left out; without ids by node id.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        nodes = target(node_ids=node_ids, filters=filters)
        return self._directory.read(
            lambda shard: matching_nodes(shard, nodes, order=node_ids), empty=[]
        )

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
        nodes = target(filters=filters)
        return self._directory.read(lambda shard: count_matching(shard, nodes), empty=0)

    def clear(self) -> None:
        """Delete all nodes. What is added next may have another dimension."""
        self._directory.reset()

    async def aclear(self) -> None:
        """`clear` in a thread."""
        await asyncio.to_thread(self.clear)

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
            DimensionMismatchError: The embedding has another dimension than the store.
        """
        found = found_by(query, self.searcher, kwargs)
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

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Nothing that had to be called: the store is on disk. It shortens the engine's log."""
        self._directory.flush()

    def describe(self) -> dict[str, object]:
        """Where the store is, how it is set up and how much is in it."""
        manifest = self._directory.manifest
        return {
            "path": self.path,
            "nodes": self.count(),
            "dimension": manifest.dimension,
            "distance": manifest.distance,
            "tokenizer": manifest.tokenizer.to_dict(),
        }

    def close(self) -> None:
        """Close the store; the directory is free for others when no store object has it open."""
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

    @property
    def _directory(self) -> StoreDirectory:
        if not self._closer.alive:
            raise StoreClosedError(f"the store {self.path} was closed; open it again")
        return self._opened.directory


def _refuse(options: dict[str, object], method: str) -> None:
    if options:
        raise ConfigurationError(f"{method} has no options {', '.join(sorted(options))}")
