"""`Collection`: one of ours on a Qdrant, made when the first nodes come."""

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
from llama_retrieval_ext.stores.engine.backend import EVERY_OPERATOR
from llama_retrieval_ext.stores.qdrant.client import Connection, Request, Talk
from llama_retrieval_ext.stores.qdrant.errors import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.params import (
    DISTANCES,
    SCOPE_FIELDS,
    Field,
    StoreParams,
    as_metadata,
    fields_to_index,
    recorded,
)
from llama_retrieval_ext.stores.qdrant_common.config import Manifest, Settings
from llama_retrieval_ext.stores.qdrant_common.filters import Clause, Contains, Group
from llama_retrieval_ext.stores.qdrant_common.points import Payload

_IDF_CORPUS: Final = (1, 19)
_SUBSTRINGS: Final = (1, 20)
_WITHIN_TEXT: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}
# The first where a collection keeps what it was made with, and where a fusion by rank takes its
# constant; the other fusions are older.
_OLDEST: Final = (1, 16)


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a Qdrant.

    Attributes:
        major: The first number.
        minor: The second.
    """

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """The version that a text such as ``1.20.0`` begins with; 0.0 where it is none."""
        major, _, rest = text.partition(".")
        minor = rest.partition(".")[0]
        numbers = major.isdecimal() and minor.isdecimal()
        return cls(int(major), int(minor)) if numbers else cls(0, 0)

    @property
    def measures_rarity_in_scope(self) -> bool:
        """Whether IDF can be taken over what a filter selects; older ones ignore being asked."""
        return (self.major, self.minor) >= _IDF_CORPUS

    @property
    def fuses(self) -> bool:
        """Whether it fuses as we do, for all that is known."""
        return (self.major, self.minor) >= _OLDEST

    @property
    def operators(self) -> frozenset[FilterOperator]:
        """The filter operators that it evaluates."""
        if (self.major, self.minor) >= _SUBSTRINGS:
            return EVERY_OPERATOR
        return EVERY_OPERATOR - _WITHIN_TEXT

    def check_server(self, where: str) -> None:
        """Nothing, unless collections of ours cannot be kept there.

        Args:
            where: The server, as it may be shown.

        Raises:
            ConfigurationError: It is too old.
        """
        if (0, 0) < (self.major, self.minor) < _OLDEST:
            raise ConfigurationError(
                f"the Qdrant of {where} is {self.major}.{self.minor}, and must be 1.16 or newer, "
                "which keep with a collection what it was made with; update the server, or hand "
                "in LlamaIndex's QdrantVectorStore over it"
            )

    def check(self, clause: Clause) -> None:
        """Nothing, where it can evaluate the clause.

        Raises:
            UnsupportedFilterError: It searches in a text, which is new.
        """
        if (self.major, self.minor) < _SUBSTRINGS and _searches_in_text(clause):
            raise UnsupportedFilterError(
                f"TEXT_MATCH needs Qdrant 1.20, this is {self.major}.{self.minor}: older ones "
                "compare whole words, in any case; use EQ or IN, or update the server",
                "TEXT_MATCH",
            )


def asked_version() -> Talk[Version]:
    """The version of what is connected; 0.0 where it does not say.

    Raises:
        StoreUnavailableError: It cannot be reached.
    """
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
