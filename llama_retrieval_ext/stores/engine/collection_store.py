"""`CollectionStore`: a LlamaIndex vector store in one collection of an engine."""

import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypedDict, TypeVar

from llama_index.core.schema import BaseNode
from pydantic import PrivateAttr

from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.collection import Collection
from llama_retrieval_ext.stores.engine.config import ConfigRequest, EngineParams, StoreConfig
from llama_retrieval_ext.stores.engine.connection import Connection, Steps
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.engine.records import IntentRecords, Records
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.text.tokenizer import Tokenizer
from llama_retrieval_ext.urls import Address, local_path

T = TypeVar("T")


class StoreOptions(TypedDict, total=False):
    """Arguments of every `CollectionStore`, as its constructor explains them."""

    tokenizer: Tokenizer | None
    dim: int | None
    distance: Distance | None
    store_params: Mapping[str, Any] | None
    schema: Schema | None


class CollectionStore(EngineStore):
    """A store in one of several collections of an engine, created with the first nodes.

    Args:
        url: The URL of the store; it names the environment variables of credentials.
        tokenizer: Splits text for keyword search; None for the recorded tokenizer, or `Tokenizer`
            if none is recorded.
        dim: Dimension of the embeddings; None for that of the first added nodes.
        distance: ``cosine``, ``dot`` or ``euclid``; None for the recorded one, or cosine.
        store_params: Settings of the engine. Those for the creation of the collection must equal
            the recorded ones, or be left out.
        schema: The fields of keyword search, with weights; None for the recorded ones, or title,
            headings and everything. Other weights than the recorded ones apply to this object; a
            new field is searched after `index_fields`.

    Attributes:
        params_type: Settings of the engine.
        connection_type: Sends requests to the engine.
        collection_type: The state of a collection, and its nodes.
        local_file: The file that a local directory has; empty if the path is that of the file.

    Raises:
        ConfigurationError: The URL or a setting is invalid, an environment variable is not set,
            or the collection has another tokenizer, distance or setting.
        DimensionMismatchError: The collection has another dimension.
        StoreFormatError: The collection was not created by this package, or by a newer release.
        StoreUnavailableError: The engine cannot be reached or refuses the credentials, or another
            process has the file or directory open.
    """

    params_type: ClassVar[type[EngineParams]]
    connection_type: ClassVar[type[Connection]]
    collection_type: ClassVar[type[Collection[Any, Any, Any]]]
    local_file: ClassVar[str] = ""

    # A `Collection`, typed by the engine.
    _collection: Any = PrivateAttr()
    _closer: "weakref.finalize[..., Any]" = PrivateAttr()

    def __init__(
        self,
        url: str,
        *,
        tokenizer: Tokenizer | None = None,
        dim: int | None = None,
        distance: Distance | None = None,
        store_params: Mapping[str, Any] | None = None,
        schema: Schema | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        address, params = self.parse_address(url), self.params_type.of(store_params or {})
        request = ConfigRequest(tokenizer, distance, dim, params.recorded, schema)
        connection = self.connection_type.of_address(address)
        # Also runs at garbage collection and at interpreter exit.
        self._closer = weakref.finalize(self, connection.close)
        try:
            self._collection = self.collection_type(
                address.collection, connection, request=request, params=params
            )
            connection.run(self._collection.open())
        except BaseException:
            self.close()
            raise

    @staticmethod
    @abstractmethod
    def parse_address(url: str) -> Address:
        """Return the address of a URL."""

    @classmethod
    def is_new(cls, url: str) -> bool:
        """Return whether opening the URL would create files; does not contact a server."""
        path = cls.parse_address(url).path
        return bool(path) and not (local_path(path) / cls.local_file).exists()

    @property
    def field_schema(self) -> Schema:
        """The fields of keyword search, with their weights."""
        schema: Schema = self._collection.schema
        return schema

    def use_schema(self, schema: Schema) -> None:
        """Search by another schema; an empty store will index its fields."""
        self._collection.use_schema(schema)

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the engine's class, which it declares
        """The engine's `Connection`; raises `StoreClosedError` after `close`."""
        connection = self._collection.connection
        if not self._closer.alive:
            raise connection.closed_error()
        return connection

    @property
    def collection_name(self) -> str:
        """Name of the collection."""
        name: str = self._collection.name
        return name

    def call(self, steps: Callable[[], Steps[T]], *, empty: T) -> Call[T]:
        """Return the call that runs steps; its result is `empty` without a collection."""
        collection = self._collection
        call: Call[T] = self.connection.call(lambda: collection.if_exists(steps, empty=empty))
        return call

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
        store = self.model_copy()
        store._collection = collection  # noqa: SLF001 - own class
        return store

    def records(self, *, is_shared: bool, clock: Callable[[], float], patience_s: float) -> Records:
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
        call: Call[None] = self.connection.call(lambda: self._collection.add(nodes))
        return call

    def _index_fields(self) -> Call[int]:
        return self.call(self._collection.index_fields, empty=0)

    def _delete(self, target: Target) -> Call[None]:
        matching = self._compile_target(target)
        return self.call(lambda: self._collection.delete(matching), empty=None)

    def _read(self, target: Target, *, embeddings: bool) -> Call[list[BaseNode]]:
        matching = self._compile_target(target)
        return self.call(lambda: self._collection.read(matching, embeddings=embeddings), empty=[])

    def _count(self, target: Target) -> Call[int]:
        matching = self._compile_target(target)
        return self.call(lambda: self._collection.count(matching), empty=0)

    def _clear(self) -> Call[None]:
        call: Call[None] = self.connection.call(self._collection.drop)
        return call
