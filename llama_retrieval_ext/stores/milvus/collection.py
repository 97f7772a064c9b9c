"""`Collection`: one collection of a Milvus, that may not be there yet."""

# pymilvus declares some results more widely than its blocking client returns them.
# pyright: reportArgumentType=false, reportAssignmentType=false

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, Final, TypeVar

from pymilvus import MilvusClient
from pymilvus.client.types import LoadState
from pymilvus.exceptions import MilvusException

from llama_retrieval_ext.errors import DimensionMismatchError, StoreError
from llama_retrieval_ext.stores.milvus.client import Connection
from llama_retrieval_ext.stores.milvus.errors import CollectionMissingError, is_released
from llama_retrieval_ext.stores.milvus.schema import (
    PROPERTY,
    Manifest,
    MilvusParams,
    RequestedConfig,
    indexes_of,
    schema_of,
)

T = TypeVar("T")

# How much longer than an ordinary request what works on a whole collection may take.
PATIENCE: Final = 6


class Collection:
    """Makes, loads, reads, writes and drops a collection.

    Args:
        connection: The Milvus.
        name: Of the collection.
        asked: How it is to be.
        params: How it is made and searched.

    Raises:
        StoreFormatError: It was not made by this package.
        ConfigurationError: It has another tokenizer, distance or setting than asked for, or Milvus
            Lite has no such index.
        DimensionMismatchError: It has another dimension than asked for.
        StoreUnavailableError: Milvus cannot answer.
    """

    def __init__(
        self, connection: Connection, name: str, *, asked: RequestedConfig, params: MilvusParams
    ) -> None:
        if connection.is_lite:
            params.check_lite()
        self.connection = connection
        self.name = name
        self.params = params
        self._asked = asked
        self._lock = RLock()
        self._made: Manifest | None = None
        self.look()

    @property
    def where(self) -> str:
        """The collection, for messages."""
        return f"the collection {self.name!r} at {self.connection.where}"

    @property
    def index_type(self) -> str:
        """Of the embeddings; ``AUTOINDEX`` is Milvus's own choice."""
        return str(self.manifest.params.get("index_type", "AUTOINDEX"))

    @property
    def manifest(self) -> Manifest:
        """How it is set up, or will be."""
        return self._made or self._asked.fresh

    def look(self) -> Manifest | None:
        """What the collection says about itself, once it is ready for searches; None if it is not.

        Raises:
            StoreFormatError: It was not made by this package.
            ConfigurationError: It has another tokenizer, distance or setting than asked for.
            DimensionMismatchError: It has another dimension than asked for.
        """
        with self._lock:
            self._made = None
            told = self._ask(self._described)
            if told is None:
                return None
            manifest = Manifest.of_properties(told.get("properties", {}), self.where)
            self._asked.check(manifest, self.where)
            self._load()
            self._made = manifest
            return manifest

    def expected(self, dimension: int) -> Manifest:
        """What nodes must fit that are about to be added.

        Args:
            dimension: Of the first one's embedding, which counts where there is no other.
        """
        return self._made or self.look() or self._asked.with_dimension(dimension)

    def establish(self, manifest: Manifest) -> None:
        """Make the collection, if there is none.

        Raises:
            DimensionMismatchError: Somebody else has just made it, with another dimension.
        """
        with self._lock:
            made = self._made or self.look() or self._create(manifest)
        if made.dimension != manifest.dimension:
            raise DimensionMismatchError(
                f"{self.where} takes embeddings of dimension {made.dimension}, got "
                f"{manifest.dimension}; use the embedding model that the store was filled with"
            )

    def read(self, function: Callable[[MilvusClient], T], *, empty: T) -> T:
        """What a function finds in the collection; `empty` where there is none.

        Raises:
            StoreClosedError: The store was closed.
            StoreUnavailableError: Milvus cannot answer.
        """
        if self._made is None and self.look() is None:
            return empty
        try:
            return self._ask(lambda client: self._loaded(client, function))
        except CollectionMissingError:
            self._made = None
            return empty

    def write(self, function: Callable[[MilvusClient], object], manifest: Manifest) -> None:
        """Let a function write to the collection, which is made if need be.

        Raises:
            DimensionMismatchError: Somebody else has just made it, with another dimension.
            StoreClosedError: The store was closed.
            StoreUnavailableError: Milvus cannot answer.
        """
        self.establish(manifest)
        try:
            self._ask(lambda client: self._loaded(client, function))
        except CollectionMissingError:  # somebody dropped it meanwhile
            self._made = None
            self.establish(manifest)
            self._ask(function)

    def drop(self) -> None:
        """Remove the collection."""
        with self._lock:
            self._made = None
            self._ask(lambda client: client.drop_collection(self.name, timeout=self._timeout_s))

    def _create(self, manifest: Manifest) -> Manifest:
        try:
            self._ask(lambda client: self._create_now(client, manifest))
        except StoreError:
            made = self.look()  # perhaps another process was faster
            if made is None:
                raise
            return made
        self._made = manifest
        return manifest

    def _create_now(self, client: MilvusClient, manifest: Manifest) -> None:
        lite = self.connection.is_lite
        timeout_s = self._timeout_s * PATIENCE
        partitions = self.params.num_partitions
        options = {"num_partitions": partitions} if manifest.by_tenant and partitions else {}
        client.create_collection(
            self.name,
            schema=schema_of(manifest, lite=lite),
            consistency_level=self.params.consistency_level or "Session",
            properties={PROPERTY: manifest.to_text()},
            timeout=timeout_s,
            **options,
        )
        indexes = indexes_of(manifest, self.params, lite=lite)
        # Milvus Lite has made them when it answers, and no call to wait with.
        client.create_index(self.name, indexes, timeout=timeout_s, sync=not lite)
        self._load_now(client)

    def _described(self, client: MilvusClient) -> Mapping[str, Any] | None:
        # Asking first, because pymilvus prints a traceback for what is not there.
        if not client.has_collection(self.name, timeout=self._timeout_s):
            return None
        told: Mapping[str, Any] = client.describe_collection(self.name, timeout=self._timeout_s)
        return told

    def _load(self) -> None:
        # Milvus Lite opens every collection released, and then refuses each search.
        state = self._ask(lambda client: client.get_load_state(self.name, timeout=self._timeout_s))
        if state.get("state") != LoadState.Loaded:
            self._ask(self._load_now)

    def _load_now(self, client: MilvusClient) -> None:
        client.load_collection(self.name, timeout=self._timeout_s * PATIENCE)

    def _loaded(self, client: MilvusClient, function: Callable[[MilvusClient], T]) -> T:
        try:
            return function(client)
        except MilvusException as error:
            if not is_released(error):
                raise
        self._load_now(client)  # somebody released it meanwhile
        return function(client)

    @property
    def _timeout_s(self) -> float:
        return self.connection.timeout_s

    def _ask(self, function: Callable[[MilvusClient], T]) -> T:
        return self.connection.ask(function)
