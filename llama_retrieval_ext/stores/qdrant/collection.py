"""`QdrantCollection`: a collection of this package, created when the first nodes are added."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedFilterError,
)
from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.stores.engine.backend import EVERY_OPERATOR
from llama_retrieval_ext.stores.engine.config import ConfigRequest
from llama_retrieval_ext.stores.qdrant.client import Connection, Request
from llama_retrieval_ext.stores.qdrant.errors import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.schema import (
    DISTANCES,
    INDEXES,
    SCOPE_FIELDS,
    StoreParams,
    as_metadata,
    recorded_config,
)
from llama_retrieval_ext.stores.qdrant_common.config import QdrantConfig
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, Contains, Group
from llama_retrieval_ext.stores.qdrant_common.points import Field, Payload, fields_to_index

_IDF_CORPUS: Final = (1, 19)
_SUBSTRINGS: Final = (1, 20)
_WITHIN_TEXT: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}
# The first with collection metadata and a constant for fusion by rank; other fusions are older.
_OLDEST: Final = (1, 16)


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a Qdrant."""

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a text such as ``1.20.0``; 0.0 where it is no version."""
        major, _, rest = text.partition(".")
        minor = rest.partition(".")[0]
        numbers = major.isdecimal() and minor.isdecimal()
        return cls(int(major), int(minor)) if numbers else cls(0, 0)

    @property
    def measures_rarity_in_scope(self) -> bool:
        """Whether IDF can be measured on a filtered corpus; older ones ignore the parameter."""
        return (self.major, self.minor) >= _IDF_CORPUS

    @property
    def fuses(self) -> bool:
        """Whether its fusions compute our formulas."""
        return (self.major, self.minor) >= _OLDEST

    @property
    def operators(self) -> frozenset[FilterOperator]:
        """The filter operators that it evaluates."""
        if (self.major, self.minor) >= _SUBSTRINGS:
            return EVERY_OPERATOR
        return EVERY_OPERATOR - _WITHIN_TEXT

    def check_server(self, where: str) -> None:
        """Raise `ConfigurationError` if the server is too old for this package."""
        if (0, 0) < (self.major, self.minor) < _OLDEST:
            raise ConfigurationError(
                f"the Qdrant of {where} is {self.major}.{self.minor}, and must be 1.16 or newer, "
                "which keep with a collection what it was made with; update the server, or hand "
                "in LlamaIndex's QdrantVectorStore over it"
            )

    def check(self, clause: Clause) -> None:
        """Raise `UnsupportedFilterError` if the server cannot evaluate the clause."""
        if (self.major, self.minor) < _SUBSTRINGS and _searches_in_text(clause):
            raise UnsupportedFilterError(
                f"TEXT_MATCH needs Qdrant 1.20, this is {self.major}.{self.minor}: older ones "
                "compare whole words, in any case; use EQ or IN, or update the server",
                "TEXT_MATCH",
            )


def server_version() -> Steps[Version]:
    """Return the server's version; 0.0 if it does not report one."""
    try:
        info = yield Request("info", {})
    except StoreUnavailableError:
        raise
    except StoreError:
        return Version(0, 0)
    return Version.of(info.version)


def _searches_in_text(clause: Clause) -> bool:
    if isinstance(clause, Group):
        return any(map(_searches_in_text, (*clause.every, *clause.some, *clause.no)))
    return isinstance(clause, Contains)


T = TypeVar("T")
_UNKNOWN: Final = Version(0, 0)


class QdrantCollection:
    """The state of a collection, and the steps that change it as a whole.

    Args:
        name: Its name.
        connection: The clients.
        request: The config that the opener requests.
        params: Settings for the engine.

    Attributes:
        config: How it is or would be set up; without a dimension while it does not exist.
        version: Of the engine.
    """

    def __init__(
        self, name: str, connection: Connection, *, request: ConfigRequest, params: StoreParams
    ) -> None:
        self.name = name
        self.where = connection.where
        self.connection = connection
        self.params = params
        self.config = request.resolve(QdrantConfig(), self.where)
        self.version = _UNKNOWN
        self._request = request
        self._indexed: set[str] = set()
        self._exists = False

    def open(self) -> Steps[None]:
        """Check the server's version, and the collection if it exists."""
        self.version = yield from server_version()
        self.version.check_server(self.where)
        yield from self.look_up()

    def look_up(self) -> Steps[QdrantConfig | None]:
        """Return the config, requested anew unless known to exist; None if it does not."""
        if not self._exists:
            try:
                info = yield Request("get_collection", {"collection_name": self.name})
            except CollectionMissingError:
                self.forget()
                return None
            found = recorded_config(info, self.where)
            self.config = self._request.resolve(found, self.where)
            self._indexed = {name.replace('"', "") for name in info.payload_schema or {}}
            self._exists = True
        return self.config

    def create(self, *, dimension: int, average_length: float) -> Steps[QdrantConfig]:
        """Return the config; create the collection if it does not exist."""
        known = yield from self.look_up()
        if known is not None:
            return known
        config = replace(self.config, dimension=dimension, average_length=average_length)
        creation = self.params.creation(dimension=dimension, distance=DISTANCES[config.distance])
        metadata = as_metadata(config)
        try:
            yield Request(
                "create_collection",
                {"collection_name": self.name, "metadata": metadata, **creation},
            )
        except (StoreError, ValueError):
            known = yield from self.look_up()
            if known is not None:  # another process was faster
                return known
            raise
        self.config, self._exists = config, True
        yield from self._make_indexes(SCOPE_FIELDS)
        return config

    def add_indexes(self, payloads: Sequence[Payload]) -> Steps[None]:
        """Create indexes for the fields of payloads that have none."""
        yield from self._make_indexes(fields_to_index(payloads, self._indexed))

    def drop(self) -> Steps[None]:
        """Delete the collection; the next one may have another dimension."""
        yield Request("delete_collection", {"collection_name": self.name})
        self.forget()

    def forget(self) -> None:
        """Reset the state to that of a collection that does not exist."""
        self.config = self._request.resolve(QdrantConfig(), self.where)
        self._indexed = set()
        self._exists = False

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps against the collection; return `empty` if it does not exist."""
        if (yield from self.look_up()) is None:
            return empty
        try:
            return (yield from steps())
        except CollectionMissingError:
            self.forget()
            return empty

    def _make_indexes(self, fields: Sequence[Field]) -> Steps[None]:
        for field in fields:
            self._indexed.add(field.name)
            if not self.connection.is_local:  # local mode warns of each
                yield Request(
                    "create_payload_index",
                    {
                        "collection_name": self.name,
                        "field_name": field.path,
                        "field_schema": INDEXES[field.kind],
                    },
                )
