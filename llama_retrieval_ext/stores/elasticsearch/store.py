"""`ElasticsearchVectorStore`: LlamaIndex vectors and keywords in an Elasticsearch index."""

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from elasticsearch import Elasticsearch
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from pydantic import PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.elasticsearch.connection import Connection
from llama_retrieval_ext.stores.elasticsearch.index import Index
from llama_retrieval_ext.stores.elasticsearch.index_params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.manifest import Asked
from llama_retrieval_ext.stores.elasticsearch.modes import found_by
from llama_retrieval_ext.stores.elasticsearch.reading import count_matching, matching_nodes
from llama_retrieval_ext.stores.elasticsearch.request import Json, Steps
from llama_retrieval_ext.stores.elasticsearch.search import Searcher
from llama_retrieval_ext.stores.elasticsearch.similarity import Distance
from llama_retrieval_ext.stores.elasticsearch.targets import target
from llama_retrieval_ext.stores.elasticsearch.transport import Transport
from llama_retrieval_ext.stores.elasticsearch.writing import add_nodes, delete_matching
from llama_retrieval_ext.text.tokenizer import Tokenizer

T = TypeVar("T")


class ElasticsearchVectorStore(BasePydanticVectorStore):
    """A vector store in an index of Elasticsearch 8, with keyword search and exact filters.

    LlamaIndex's own ``ElasticsearchStore`` patches asyncio when it is made, runs on one event loop
    only, and knows one filter operator; this one keeps the same nodes in another form. The index is
    made when the first nodes are added. Threads and event loops may share a store.

    Similarities are cosine, inner product or negative Euclidean distance, or BM25 for keywords
    (k1 = 1.2, b = 0.75; lengths of texts are the engine's, which rounds those above 40 terms): raw,
    and higher is better. Where cosine is asked for, zeros are near to nothing: nodes with such an
    embedding are found by keywords and filters alone.

    Args:
        index: Its name.
        connection: The server.
        tokenizer: Cuts text for keyword search; None for the recorded one, or `Tokenizer` where the
            index is new.
        dim: Dimension of the embeddings; None for that of the first that are added.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        params: How the index is made.

    Raises:
        StoreFormatError: The index was not made by this package, or by a newer release of it.
        StoreUnavailableError: The server cannot be reached, or refuses the credentials.
        ConfigurationError: The index has another tokenizer or distance.
        DimensionMismatchError: It has another dimension.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    index: str = ""

    _index: Index = PrivateAttr()
    _transport: Transport = PrivateAttr()
    _closer: "weakref.finalize[..., ElasticsearchVectorStore]" = PrivateAttr()

    def __init__(
        self,
        index: str,
        *,
        connection: Connection,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        params: IndexParams | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        params = params or IndexParams()
        asked = Asked(tokenizer, distance, dim, params.analyzer, params.routing)
        self.index = index
        self._index = Index(index, asked, params)
        self._transport = Transport(connection)
        # Also when the store is garbage, and at the interpreter's exit.
        self._closer = weakref.finalize(self, self._transport.close)
        try:
            self._transport.run(self._index.look())
        except BaseException:
            self.close()
            raise

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of the class."""
        return "ElasticsearchVectorStore"

    @property
    def client(self) -> Elasticsearch:
        """The client for threads."""
        return self._transport.client

    @property
    def transport(self) -> Transport:
        """Carries out what is asked of the engine."""
        return self._transport

    @property
    def searcher(self) -> Searcher:
        """Says what is to be asked, as the backend does."""
        return Searcher(self._index)

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        return self._index.manifest.tokenizer

    @property
    def distance(self) -> Distance:
        """How embeddings are compared."""
        return self._index.manifest.distance

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while it is not known."""
        return self._index.manifest.dimension

    @property
    def routing(self) -> bool:
        """Whether a tenant's nodes lie on one shard."""
        return self._index.manifest.routing

    def add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """Add nodes with their embeddings; a node whose id is there already replaces the old one.

        All nodes of a call are checked before the first is written. They go in by batches; when one
        fails, the batches before it stay. What was added is found at once.

        Args:
            nodes: Of several with the same id the last counts.
            **kwargs: LlamaIndex hands them on; there are none here.

        Returns:
            The id of each node.

        Raises:
            ConfigurationError: A node has no embedding, one with a value that is not finite, or
                metadata that has no JSON form; it is named.
            DimensionMismatchError: An embedding has another dimension than the index.
            StoreUnavailableError: The server cannot be reached, or has no room.
            StoreClosedError: The store was closed.
        """
        _refuse(kwargs, "add")
        self._run(add_nodes(self._index, nodes))
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: object) -> list[str]:
        """`add`, without blocking the event loop."""
        _refuse(kwargs, "async_add")
        await self._arun(add_nodes(self._index, nodes))
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: object) -> None:
        """Delete the nodes that come from a document.

        Args:
            ref_doc_id: Its id.
            **delete_kwargs: LlamaIndex hands them on; there are none here.

        Raises:
            ConfigurationError: The id is empty.
        """
        self._run(delete_matching(self._index, _of_document(ref_doc_id, delete_kwargs)))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: object) -> None:
        """`delete`, without blocking the event loop."""
        await self._arun(delete_matching(self._index, _of_document(ref_doc_id, delete_kwargs)))

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
        query = _to_delete(node_ids, filters, delete_kwargs)
        self._run(delete_matching(self._index, query))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: object,
    ) -> None:
        """`delete_nodes`, without blocking the event loop."""
        query = _to_delete(node_ids, filters, delete_kwargs)
        await self._arun(delete_matching(self._index, query))

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes that have one of the ids and satisfy the filters, with their embeddings.

        Embeddings come back in single precision and, where cosine is asked for, at length 1.

        Args:
            node_ids: None for any id; an empty list gives nothing.
            filters: None for any metadata.

        Returns:
            In the order of the ids, missing ones left out; without ids by node id.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        query = target(node_ids=node_ids, filters=filters)
        return self._run(matching_nodes(self._index, query, order=node_ids))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """`get_nodes`, without blocking the event loop."""
        query = target(node_ids=node_ids, filters=filters)
        return await self._arun(matching_nodes(self._index, query, order=node_ids))

    def count(self, filters: MetadataFilters | None = None) -> int:
        """How many nodes there are, or satisfy filters.

        Raises:
            InvalidFilterError: The filters cannot mean anything.
        """
        return self._run(count_matching(self._index, target(filters=filters)))

    def clear(self) -> None:
        """Delete the index. What is added next may have another dimension."""
        self._run(self._index.drop())

    async def aclear(self) -> None:
        """`clear`, without blocking the event loop."""
        await self._arun(self._index.drop())

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
            DimensionMismatchError: The embedding has another dimension than the index.
        """
        return _result(self._run(found_by(query, self.searcher, kwargs)))

    async def aquery(self, query: VectorStoreQuery, **kwargs: object) -> VectorStoreQueryResult:
        """`query`, without blocking the event loop."""
        return _result(await self._arun(found_by(query, self.searcher, kwargs)))

    def beside(self, suffix: str) -> Self:
        """A store of records that are read by id, in an index of its own, over these clients.

        Args:
            suffix: What its index's name has more than this one's.

        Raises:
            StoreFormatError: That index was not made by this package.
            StoreUnavailableError: The server cannot be reached.
        """
        other = self.model_copy()  # closing either closes both
        other.index = f"{self.index}{suffix}"
        params = IndexParams(
            number_of_shards=1,
            number_of_replicas=self._index.params.number_of_replicas,
            index_options={"type": "flat"},
        )
        index = Index(other.index, Asked(), params)
        self._run(index.look())
        other._index = index  # noqa: SLF001 - of its own class
        return other

    def describe(self) -> dict[str, object]:
        """Where the index is and how it is set up; never credentials."""
        manifest = self._index.manifest
        return {
            "url": self._transport.connection.where,
            "index": self.index,
            "dimension": manifest.dimension,
            "distance": manifest.distance,
            "analyzer": manifest.analyzer or "whitespace",
            "tokenizer": manifest.tokenizer.to_dict(),
        }

    def close(self) -> None:
        """Close the connections; the index stays."""
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

    def _run(self, steps: Steps[T]) -> T:
        return self._transport.run(steps)

    async def _arun(self, steps: Steps[T]) -> T:
        return await self._transport.arun(steps)


def _of_document(ref_doc_id: str, options: dict[str, object]) -> Json:
    _refuse(options, "delete")
    if not ref_doc_id:
        raise ConfigurationError(f"delete needs the id of a document, got {ref_doc_id!r}")
    query = target(doc_ids=[ref_doc_id])
    return query or {}


def _to_delete(
    node_ids: list[str] | None, filters: MetadataFilters | None, options: dict[str, object]
) -> Json:
    _refuse(options, "delete_nodes")
    query = target(node_ids=node_ids, filters=filters)
    if query is None:
        raise ConfigurationError(
            "delete_nodes needs node_ids or filters; to empty the store call clear()"
        )
    return query


def _result(found: Sequence[Found]) -> VectorStoreQueryResult:
    return VectorStoreQueryResult(
        nodes=[each.node for each in found],
        similarities=[each.score for each in found],
        ids=[each.node_id for each in found],
    )


def _refuse(options: dict[str, object], method: str) -> None:
    if options:
        raise ConfigurationError(f"{method} has no options {', '.join(sorted(options))}")
