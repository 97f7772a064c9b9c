"""`Collection`: one of ours on a Qdrant, made when the first nodes come."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.stores.points.manifest import Manifest, Settings
from llama_retrieval_ext.stores.points.payload import Payload
from llama_retrieval_ext.stores.qdrant.connection import Connection
from llama_retrieval_ext.stores.qdrant.failures import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.indexes import SCOPE_FIELDS, Field, fields_to_index
from llama_retrieval_ext.stores.qdrant.manifest import DISTANCES, as_metadata, recorded
from llama_retrieval_ext.stores.qdrant.params import StoreParams
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk
from llama_retrieval_ext.stores.qdrant.versions import Version, asked_version

T = TypeVar("T")
_UNKNOWN: Final = Version(0, 0)


class Collection:
    """What is known of a collection, and what changes it as a whole.

    Args:
        name: The collection's.
        connection: Where it is.
        settings: What the one who opened it asks for.
        params: What the engine is to be told.

    Attributes:
        manifest: How it is set up, or would be; without a dimension while it does not exist.
        version: Of the engine.
    """

    def __init__(
        self, name: str, connection: Connection, *, settings: Settings, params: StoreParams
    ) -> None:
        self.name = name
        self.where = connection.where
        self.is_local = connection.is_local
        self.grain = connection.grain
        self.slack = connection.slack
        self.params = params
        self.manifest = settings.applied(None, self.where)
        self.version = _UNKNOWN
        self._settings = settings
        self._indexed: set[str] = set()
        self._exists = False

    def opened(self) -> Talk[None]:
        """Look what there is.

        Raises:
            StoreUnavailableError: It cannot be reached.
            StoreFormatError: It holds something else, or is from a newer release.
            ConfigurationError: The server is too old, or it has another tokenizer or distance
                than asked for.
            DimensionMismatchError: It has another dimension than asked for.
        """
        self.version = yield from asked_version()
        self.version.check_server(self.where)
        yield from self.looked_at()

    def looked_at(self) -> Talk[Manifest | None]:
        """How it is set up, asked anew unless it is known to exist; None if it does not."""
        if not self._exists:
            try:
                info = yield Request("get_collection", {"collection_name": self.name})
            except CollectionMissingError:
                self.forget()
                return None
            found = recorded(info, self.where)
            self.manifest = self._settings.applied(found, self.where)
            self._indexed = {name.replace('"', "") for name in info.payload_schema or {}}
            self._exists = True
        return self.manifest

    def established(self, *, dimension: int, average_length: float) -> Talk[Manifest]:
        """How it is set up; it is made if it does not exist."""
        known = yield from self.looked_at()
        if known is not None:
            return known
        made = replace(self.manifest, dimension=dimension, average_length=average_length)
        creation = self.params.creation(dimension=dimension, distance=DISTANCES[made.distance])
        metadata = as_metadata(made)
        try:
            yield Request(
                "create_collection",
                {"collection_name": self.name, "metadata": metadata, **creation},
            )
        except (StoreError, ValueError):
            known = yield from self.looked_at()
            if known is not None:  # somebody else was faster
                return known
            raise
        self.manifest, self._exists = made, True
        yield from self._make_indexes(SCOPE_FIELDS)
        return made

    def indexed(self, payloads: Sequence[Payload]) -> Talk[None]:
        """Make indexes for the fields that these payloads are the first to have."""
        yield from self._make_indexes(fields_to_index(payloads, self._indexed))

    def dropped(self) -> Talk[None]:
        """Remove it with all that is in it; what comes next may have another dimension."""
        yield Request("delete_collection", {"collection_name": self.name})
        self.forget()

    def forget(self) -> None:
        """It does not exist, or not any more."""
        self.manifest = self._settings.applied(None, self.where)
        self._indexed = set()
        self._exists = False

    def if_there(self, talk: Callable[[], Talk[T]], *, empty: T) -> Talk[T]:
        """What a talk about it gives; where it does not exist, what it would give if empty."""
        if (yield from self.looked_at()) is None:
            return empty
        try:
            return (yield from talk())
        except CollectionMissingError:
            self.forget()
            return empty

    def _make_indexes(self, fields: Sequence[Field]) -> Talk[None]:
        for field in fields:
            self._indexed.add(field.name)
            if not self.is_local:  # which searches without indexes, and warns of every one
                yield Request(
                    "create_payload_index",
                    {
                        "collection_name": self.name,
                        "field_name": field.path,
                        "field_schema": field.schema,
                    },
                )
