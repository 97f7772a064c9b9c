"""`EngineStore`: a LlamaIndex vector store over an engine, which is its own backend."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from llama_retrieval_ext.errors import ConfigurationError, StoreError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.encoding.values import storable
from llama_retrieval_ext.stores.encoding.vectors import Distance, query_vector
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.engine.query_modes import query_call
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.text.tokenizer import Tokenizer


class EngineStore(BasePydanticVectorStore, EngineBackend[Any, Any]):
    """A vector store with keyword search, exact filters and real removal.

    A subclass implements each operation as a `Call`: blocking and, if possible, async. This class
    implements the sync and async methods of LlamaIndex's interface.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    # Whether `get_nodes` filters by document and position, for `Expand`.
    stores_positions: ClassVar[bool] = True

    @classmethod
    def class_name(cls) -> str:
        """Return the class name for LlamaIndex."""
        return cls.__name__

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer that splits text into terms."""
        return self._config.tokenizer

    @property
    @abstractmethod
    def field_schema(self) -> Schema:
        """The fields of keyword search, with their weights."""

    @abstractmethod
    def use_schema(self, schema: Schema) -> None:
        """Search by another schema; an empty store will index its fields."""

    def field_weights(self, search: Search) -> dict[str, float]:
        """Return the weight of each field that a search takes and stored nodes have."""
        weights, indexed = self.field_schema.weights(search.fields), self.indexed_schema.text
        if weights.keys() <= indexed.keys():
            return weights
        return {name: weight for name, weight in weights.items() if name in indexed}

    @property
    def indexed_schema(self) -> Schema:
        """The fields that stored nodes are searched by."""
        return self._config.schema

    @property
    def unindexed(self) -> list[str]:
        """The fields of the schema that stored nodes are not searched by; see `index_fields`."""
        indexed = self.indexed_schema.text
        return [name for name in self.field_schema.text if name not in indexed]

    def index_fields(self) -> int:
        """Index the fields of the schema that are not indexed, from the stored nodes.

        Nodes that another process adds meanwhile may not get the new fields.

        Returns:
            Number of nodes that were indexed; 0 if all fields are.

        Raises:
            StoreUnavailableError: The engine cannot be reached, has no space, or failed.
        """
        return self._index_fields().function() if self.unindexed else 0

    @abstractmethod
    def _index_fields(self) -> Call[int]: ...

    @property
    def distance(self) -> Distance:
        """Distance between embeddings."""
        return self._config.distance

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None before the first node."""
        return self._config.dimension

    @blocking
    def add(self, nodes: Sequence[BaseNode], **kwargs: object) -> Plan[list[str]]:
        """Add nodes with embeddings, replacing those with the same ids; return their ids.

        All nodes are checked before the first write. Lone surrogates, as a badly decoded file has
        them, become U+FFFD. Nodes are written in batches; if a batch
        fails, for example on a full disk, earlier batches stay.

        Args:
            nodes: Nodes; the last one counts if several have the same id.
            **kwargs: Options passed on by LlamaIndex; not supported.

        Raises:
            ConfigurationError: A node has no embedding, a non-finite value, metadata without a JSON
                form, a number or date that engines would round, or exceeds an engine limit; the
                message contains its id.
            DimensionMismatchError: The dimension of an embedding differs from the store's.
            StoreUnavailableError: The engine cannot be reached, has no space, or failed.
            StoreClosedError: The store was closed.
        """
        _refuse(kwargs, "add")
        if nodes:
            yield self._add(_storable(nodes))
        return [node.node_id for node in nodes]

    async_add = asynchronous(add)  # type: ignore[arg-type]  # its self is this class

    @blocking
    def delete(self, ref_doc_id: str, **delete_kwargs: object) -> Plan[None]:
        """Delete the nodes of a document.

        Args:
            ref_doc_id: Document id.
            **delete_kwargs: Options passed on by LlamaIndex; not supported.

        Raises:
            ConfigurationError: The id is empty.
        """
        _refuse(delete_kwargs, "delete")
        if not ref_doc_id:
            raise ConfigurationError(f"delete needs the id of a document, got {ref_doc_id!r}")
        yield self._delete(Target(doc_ids=[ref_doc_id]))

    adelete = asynchronous(delete)  # type: ignore[arg-type]  # its self is this class

    @blocking
    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: object,
    ) -> Plan[None]:
        """Delete the nodes that have one of the ids and satisfy the filters.

        Args:
            node_ids: None for any id; an empty list deletes nothing.
            filters: None for any metadata.
            **delete_kwargs: Options passed on by LlamaIndex; not supported.

        Raises:
            ConfigurationError: Neither is given.
            InvalidFilterError: The filters are invalid.
        """
        _refuse(delete_kwargs, "delete_nodes")
        if node_ids is None and filters is None:
            raise ConfigurationError(
                "delete_nodes needs node_ids or filters; to empty the store call clear()"
            )
        yield self._delete(Target(node_ids, filters=filters))

    adelete_nodes = asynchronous(delete_nodes)  # type: ignore[arg-type]  # its self is this class

    def add_rows(self, rows: Sequence[BaseNode]) -> None:
        """Add rows as `add`, at least one: nodes by the ids that `row_id` returns."""
        self._add(_storable(rows)).function()

    def delete_rows(self, rows: Sequence[str]) -> None:
        """Delete rows, each of one version of a node, by the ids that `row_id` returns."""
        self._delete(Target(rows=rows)).function()

    @blocking
    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> Plan[list[BaseNode]]:
        """Return the nodes that have one of the ids and satisfy the filters, with embeddings.

        They are in the order of the ids, without missing ones; sorted by node id without ids.
        Embeddings are in single precision. With cosine distance, most engines return them
        normalised to length 1.

        Args:
            node_ids: None for any id; an empty list returns no nodes.
            filters: None for any metadata.

        Raises:
            InvalidFilterError: The filters are invalid.
        """
        nodes = yield self._read(Target(node_ids, filters=filters), embeddings=True)
        return _in_order(nodes, node_ids)

    aget_nodes = asynchronous(get_nodes)  # type: ignore[arg-type]  # its self is this class

    def read_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes of `get_nodes` without embeddings, which takes half of the time."""
        read = self._read(Target(node_ids, filters=filters), embeddings=False)
        return _in_order(read.function(), node_ids)

    def count(self, filters: MetadataFilters | None = None) -> int:
        """Return the number of nodes that satisfy the filters; of all nodes for None.

        Raises:
            InvalidFilterError: The filters are invalid.
        """
        return self._count(Target(filters=filters)).function()

    @blocking
    def clear(self) -> Plan[None]:
        """Delete all nodes. The next nodes may have another dimension."""
        yield self._clear()

    aclear = asynchronous(clear)  # type: ignore[arg-type]  # its self is this class

    @blocking
    def query(
        self, query: VectorStoreQuery, **kwargs: float | None
    ) -> Plan[VectorStoreQueryResult]:
        """Return the hits of a query, best first; in mode MMR in the order of selection.

        HYBRID fuses ``similarity_top_k`` nearest nodes and ``sparse_top_k`` keyword hits into
        ``hybrid_top_k`` hits: by reciprocal rank fusion, or with ``alpha`` by a weighted sum of
        min-max normalised scores. Nodes have no embeddings.

        Args:
            query: Query in mode DEFAULT, SPARSE, TEXT_SEARCH, HYBRID, or MMR if the engine supports
                it. ``doc_ids=[]`` allows no document, so there are no hits; ``node_ids=[]``, which
                LlamaIndex's retriever always sends, means no restriction.
            **kwargs: For MMR ``mmr_threshold``, ``mmr_prefetch_factor`` and ``mmr_prefetch_k``.

        Raises:
            UnsupportedModeError: The mode is not supported.
            ConfigurationError: The query lacks a value for its mode, or a value is out of range.
            UnsupportedFilterError: The engine cannot evaluate the filters.
            DimensionMismatchError: The dimension of the embedding differs from the store's.
        """
        # LlamaIndex's retriever always passes node_ids=[], which means no restriction. It passes
        # doc_ids=[] only if its caller does, which means no document.
        filter_ = self._compile_target(Target(query.node_ids or None, query.doc_ids, query.filters))
        candidates = yield query_call(self, query, kwargs, filter_)
        return VectorStoreQueryResult(
            nodes=[candidate.node for candidate in candidates],
            similarities=[candidate.score for candidate in candidates],
            ids=[candidate.node_id for candidate in candidates],
        )

    aquery = asynchronous(query)  # type: ignore[arg-type]  # its self is this class

    def persist(self, persist_path: str = "", fs: object = None) -> None:  # noqa: ARG002 - LlamaIndex's
        """Make all changes durable, as `flush`."""
        self.flush()

    def flush(self) -> None:
        """Make all changes survive a crash of the machine; no-op where `add` does."""

    def check_room(self, sizes: Iterable[int]) -> None:
        """Raise `StoreUnavailableError` if nodes of these sizes, in bytes, do not fit on the disk.

        No-op for engines that manage their disk themselves.
        """

    def compact(self) -> int:
        """Free the disk space of deleted nodes; return the bytes; 0 if engines do so themselves."""
        return 0

    @property
    def is_shared(self) -> bool:
        """Whether other store objects of this process would lose their files by `remove`."""
        return False

    def remove(self) -> None:
        """Remove what is left of the store after `clear`."""

    @property
    def store(self) -> Self:
        """The store itself, which is its own backend."""
        return self

    def describe(self) -> dict[str, object]:
        """Return the engine, and the location and the config of the store, without secrets."""
        return {
            "engine": self.engine,
            **self._location(),
            "dimension": self.dimension,
            "distance": self.distance,
            "tokenizer": self.tokenizer.to_dict(),
        }

    @abstractmethod
    def close(self) -> None:
        """Close the store; keep its contents."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise, because LlamaIndex would pickle only the picklable attributes."""
        raise self._uncopyable("pickled")

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> NoReturn:  # Any: pydantic's
        """Raise, because two copies would close the same engine."""
        raise self._uncopyable("copied")

    def _uncopyable(self, verb: str) -> StoreError:
        return StoreError(
            f"{type(self).__name__} has an engine open, and cannot be {verb}, nor can what holds "
            "it; pass on the URL and call open_store(url) in the other process, or make the "
            "retriever there: VectorRetriever(url)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def _config(self) -> StoreConfig:
        """The recorded config."""

    @abstractmethod
    def _location(self) -> Mapping[str, object]:
        """Return the location of the store, for `describe`."""

    @abstractmethod
    def _add(self, nodes: Sequence[BaseNode]) -> Call[None]:
        """Add or replace nodes, at least one."""

    @abstractmethod
    def _delete(self, target: Target) -> Call[None]:
        """Delete the selected nodes; the selection is never all nodes."""

    @abstractmethod
    def _read(self, target: Target, *, embeddings: bool) -> Call[list[BaseNode]]:
        """Return the selected nodes, with embeddings if asked, in any order."""

    @abstractmethod
    def _count(self, target: Target) -> Call[int]:
        """Return the number of selected nodes."""

    @abstractmethod
    def _clear(self) -> Call[None]:
        """Delete all nodes and reset the dimension."""

    def _checked(self, embedding: Sequence[float], where: object) -> list[float]:
        """Return a query's embedding for the engine, or raise `DimensionMismatchError`."""
        config = self._config
        dimension = config.dimension or len(embedding)  # None before the first node
        return query_vector(embedding, dimension=dimension, distance=config.distance, where=where)

    def _compile_target(self, target: Target) -> Any:  # noqa: ANN401 - the engine's filter
        """Return the engine's filter for a selection; None for all nodes."""
        return self.language.select(target)


def _refuse(options: Mapping[str, object], method: str) -> None:
    if options:
        raise ConfigurationError(f"{method} has no options {', '.join(sorted(options))}")


def _storable(nodes: Sequence[BaseNode]) -> list[BaseNode]:
    """Return the form of nodes that engines keep exactly; of those with the same id the last."""
    return [*{node.node_id: storable(node) for node in nodes}.values()]


def _in_order(nodes: Sequence[BaseNode], node_ids: Sequence[str] | None) -> list[BaseNode]:
    """Return each node once, in the order of the ids, or sorted by id without ids."""
    by_id = {node.node_id: node for node in nodes}
    ids = sorted(by_id) if node_ids is None else dict.fromkeys(node_ids)
    return [by_id[node_id] for node_id in ids if node_id in by_id]
