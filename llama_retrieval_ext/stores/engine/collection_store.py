"""`CollectionStore`: a LlamaIndex vector store in one collection of an engine."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeVar

from llama_index.core.schema import BaseNode
from pydantic import PrivateAttr

from llama_retrieval_ext.execution.plan import Call, Steps
from llama_retrieval_ext.stores.engine.collection import Collection, Nodes
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.engine.connection import Connection
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.records import IntentRecords, RecordStore
from llama_retrieval_ext.stores.engine.search import AnySearch
from llama_retrieval_ext.stores.engine.vector_store import EngineStore

T = TypeVar("T")


class CollectionStore(EngineStore):
    """A store in one of several collections of an engine.

    The constructor of a subclass creates a `Collection` and calls `_open`.

    Attributes:
        nodes_type: Reads and writes the nodes of a collection.
        search_type: Searches a collection.
    """

    nodes_type: ClassVar[type[Nodes[Any]]]
    search_type: ClassVar[type[AnySearch]]

    # A `Collection` and its `Nodes`, typed by the engine.
    _collection: Any = PrivateAttr()
    _contents: Any = PrivateAttr()
    _closer: "weakref.finalize[..., Any]" = PrivateAttr()

    def _open(self, collection: Collection[Any, Any, Any]) -> None:
        self._collection, self._contents = collection, self.nodes_type(collection)
        # Also runs at garbage collection and at interpreter exit.
        self._closer = weakref.finalize(self, collection.connection.close)
        try:
            collection.connection.run(collection.open())
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> Connection:
        """The connection; raises `StoreClosedError` after `close`."""
        connection: Connection = self._collection.connection
        if not self._closer.alive:
            raise connection.closed_error()
        return connection

    @property
    def searcher(self) -> AnySearch:
        """The engine's searches."""
        return self.search_type(self._collection)

    def call(self, steps: Callable[[], Steps[T]]) -> Call[T]:
        """Return the call that runs steps."""
        return self.connection.call(steps)

    def beside(self, suffix: str) -> Self:
        """Return a store of records in a separate collection, over the same client.

        Records are read by id. Closing either store closes both.

        Args:
            suffix: Appended to this collection's name.

        Raises:
            ConfigurationError: The engine does not accept the name.
            StoreFormatError: The collection was not created by this package.
            StoreUnavailableError: The engine cannot be reached.
        """
        collection = self._collection.beside(suffix)
        self.connection.run(collection.open())
        other = self.model_copy()
        other._collection, other._contents = collection, self.nodes_type(collection)  # noqa: SLF001 - own class
        return other

    def records(
        self, *, is_shared: bool, clock: Callable[[], float], patience_s: float
    ) -> RecordStore:
        """Return a record store over this collection, which must hold only records.

        Args:
            is_shared: Whether other processes write to it.
            clock: Returns the seconds since 1970.
            patience_s: Seconds after which an unfinished writer counts as dead.
        """
        return IntentRecords(self, is_shared=is_shared, clock=clock, patience_s=patience_s)

    def close(self) -> None:
        """Close the connection; keep the collection."""
        self._closer()

    @property
    def _config(self) -> StoreConfig:
        config: StoreConfig = self._collection.config
        return config

    def _add(self, nodes: Sequence[BaseNode]) -> Call[None]:
        return self.call(lambda: self._contents.add(nodes))

    def _delete(self, target: Target) -> Call[None]:
        matching = self._compile_target(target)
        return self._if_exists(lambda: self._contents.delete(matching), empty=None)

    def _read(self, target: Target) -> Call[list[BaseNode]]:
        matching = self._compile_target(target)
        nothing: list[BaseNode] = []
        return self._if_exists(lambda: self._contents.read(matching), empty=nothing)

    def _count(self, target: Target) -> Call[int]:
        matching = self._compile_target(target)
        return self._if_exists(lambda: self._contents.count(matching), empty=0)

    def _clear(self) -> Call[None]:
        return self.call(self._collection.drop)

    def _if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Call[T]:
        return self.call(lambda: self._collection.if_exists(steps, empty=empty))
