"""`Collection`: a collection that may not exist yet, its nodes, and columns of their texts."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreError,
    StoreFormatError,
)
from llama_retrieval_ext.schema import EVERYTHING, Schema
from llama_retrieval_ext.stores.encoding.node_json import StoredNode, nodes_of
from llama_retrieval_ext.stores.encoding.vectors import Vectors, document_vectors
from llama_retrieval_ext.stores.engine.config import (
    ConfigRequest,
    EngineParams,
    StoreConfig,
    format_error,
)
from llama_retrieval_ext.stores.engine.connection import Connection, Steps
from llama_retrieval_ext.text.segmentation import term_id

C = TypeVar("C", bound=StoreConfig)
K = TypeVar("K", bound=Connection)
T = TypeVar("T")


class CollectionMissingError(StoreError):
    """The collection does not exist: no nodes were added yet, or it was removed."""


P = TypeVar("P", bound=EngineParams)


class Collection(ABC, Generic[C, K, P]):
    """The state of a collection, and the steps that create, drop, write and read it.

    Subclasses read the recorded config, create the collection and drop it. This class defines the
    order of these steps and handles two processes that create the collection at the same time.
    `delete`, `read` and `count` need an existing collection; see `if_exists`.

    Args:
        name: Collection name.
        connection: Runs the steps.
        request: Config requested by the caller.
        params: Engine settings.

    Attributes:
        kind: What the engine calls a collection.
        format: Format that this release writes and reads.
        config_type: Class of its configs.
        llama_index_store: Class of LlamaIndex's store in the same engine, for messages.
        config: Current config, or the config for creation; without a dimension if the collection
            does not exist.
    """

    kind: ClassVar[str] = "collection"
    format: ClassVar[int]
    config_type: ClassVar[type[StoreConfig]]
    llama_index_store: ClassVar[str]

    # What threads wait for that create the collection.
    creating: AbstractContextManager[object] = nullcontext()

    def __init__(self, name: str, connection: K, *, request: ConfigRequest, params: P) -> None:
        self.name = name
        self.connection = connection
        self.params = params
        self._request = replace(request, kept_in=self.kind)
        self._exists = False
        self.forget()

    config: C

    @property
    def schema(self) -> Schema:
        """The fields of keyword search, with the weights of searches."""
        return self._request.schema or self.config.schema

    def use_schema(self, schema: Schema) -> None:
        """Search by another schema; a new collection will index its fields."""
        self._request = replace(self._request, schema=schema)
        if not self._exists:
            self.forget()

    @property
    def where(self) -> str:
        """Description of the collection for messages."""
        return f"the {self.kind} {self.name!r} at {self.connection.where}"

    @abstractmethod
    def recorded(self) -> Steps[C | None]:
        """Return the recorded config, None without a collection; may raise `StoreFormatError`."""

    @abstractmethod
    def make(self, config: C) -> Steps[None]:
        """Create the collection; raise if it already exists."""

    @abstractmethod
    def remove(self) -> Steps[None]:
        """Delete the collection, if it exists."""

    @abstractmethod
    def index_fields(self) -> Steps[int]:
        """Index the fields of the schema from the stored nodes; return their number."""

    @abstractmethod
    def add(self, nodes: Sequence[BaseNode]) -> Steps[None]:
        """Add or replace nodes, at least one; create the collection if necessary."""

    @abstractmethod
    def delete(self, matching: Any) -> Steps[None]:  # noqa: ANN401 - the engine's filter
        """Delete the matching nodes; None deletes nothing."""

    @abstractmethod
    def stored(self, matching: Any, *, embeddings: bool) -> Steps[Iterable[StoredNode]]:  # noqa: ANN401 - the engine's filter
        """Return the matching nodes as stored, with embeddings if asked, in any order."""

    @abstractmethod
    def count(self, matching: Any) -> Steps[int]:  # noqa: ANN401 - the engine's filter
        """Return the number of matching nodes."""

    def beside(self, suffix: str) -> Self:
        """Return the collection of records whose name is this name plus a suffix."""
        return type(self)(
            f"{self.name}{suffix}",
            self.connection,
            request=ConfigRequest(schema=Schema(text={EVERYTHING: 1})),
            params=self.params.for_records,
        )

    def read(self, matching: Any, *, embeddings: bool) -> Steps[list[BaseNode]]:  # noqa: ANN401 - the engine's filter
        """Return the matching nodes, with embeddings if asked, in any order."""
        return nodes_of((yield from self.stored(matching, embeddings=embeddings)))

    def open(self) -> Steps[None]:
        """Check the engine and, if it exists, the collection."""
        yield from self.look_up()
        self.params.check(self.config, self.where)

    def look_up(self, *, again: bool = False) -> Steps[C | None]:
        """Return the config, cached unless `again`; None without a collection."""
        if again or not self._exists:
            recorded = yield from self.recorded()
            if recorded is None:
                self.forget()
                return None
            self.config = self._request.resolve(recorded, self.where)
            self._exists = True
        return self.config

    def create(self, dimension: int, *, again: bool = False, **settings: Any) -> Steps[C]:  # noqa: ANN401 - the config's fields
        """Return the config; create the collection if it does not exist.

        Args:
            dimension: Dimension of the nodes to write.
            again: Whether to read the config again if it is cached.
            **settings: Additional config fields for a new collection.
        """
        with self.creating:
            config = yield from self.look_up(again=again)
            if config is None:
                new = replace(self.config, dimension=self.config.dimension or dimension, **settings)
                self.params.check(new, self.where)
                config = yield from self._make(new)
        if config.dimension != dimension:
            raise DimensionMismatchError(
                f"the nodes have embeddings of dimension {dimension}, {self.where} takes "
                f"{config.dimension}; use the embedding model that it was filled with"
            )
        return config

    def vectors_of(self, nodes: Sequence[BaseNode], *, again: bool = False) -> Steps[Vectors]:
        """Return the checked embeddings of nodes, at least one; create no collection."""
        config = (yield from self.look_up(again=again)) or self.config
        dimension = config.dimension or len(nodes[0].embedding or ())
        return document_vectors(
            nodes, dimension=dimension, distance=config.distance, where=self.where
        )

    def if_exists(self, steps: Callable[[], Steps[T]], *, empty: T) -> Steps[T]:
        """Run steps against the collection; return `empty` if it does not exist."""
        if (yield from self.look_up()) is None:
            return empty
        try:
            return (yield from steps())
        except CollectionMissingError:
            self.forget()
            return empty

    def record_of(self, config: C) -> dict[str, Any]:
        """Return what is recorded with the collection, as JSON values; see `config_of`."""
        return {"format": self.format, **config.to_dict()}

    def config_of(self, record: Any) -> C:  # noqa: ANN401 - JSON
        """Return the config of a record, or raise an error that says what wrote it."""
        try:
            if record["format"] == self.format:
                return self.config_type.from_dict(record)  # type: ignore[return-value]  # C is its type
        except ConfigurationError:  # a ValueError: the tokenizer is of another release
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise StoreFormatError(
                f"{self.where} was not made by this package; name another {self.kind}, or hand in "
                f"LlamaIndex's {self.llama_index_store} over it"
            ) from error
        raise format_error(
            record, where=self.where, reads=self.format, instead=f"another {self.kind}"
        )

    def drop(self) -> Steps[None]:
        """Delete the collection; the next nodes may have another dimension."""
        yield from self.remove()
        self.forget()

    def forget(self) -> None:
        """Reset the state to that of a collection that does not exist."""
        self.config = self._request.resolve(self.config_type(), self.where)  # type: ignore[assignment]  # C is its type
        self._exists = False

    def _make(self, config: C) -> Steps[C]:
        try:
            yield from self.make(config)
        except (StoreError, ValueError):
            recorded = yield from self.look_up()
            if recorded is None:
                raise
            return recorded  # another process created it first
        self.config, self._exists = config, True
        return config


class ColumnMatch(NamedTuple):
    """What the column of a field is searched for, and the factor of its score."""

    column: str
    terms: str
    weight: float


def column_of(kind: str, name: str) -> str:
    """Return the column of a field of the schema; several kinds of columns have other prefixes."""
    return kind if name == EVERYTHING else f"{kind}_{term_id(name):08x}"


def indexed_columns(
    node: BaseNode, schema: Schema, encode: Callable[[str], str], *, kind: str, separator: str
) -> dict[str, str]:
    """Return the encoded text of each searched field by column."""
    texts = {name: encode(text) for name, text in schema.texts(node).items()}
    texts[EVERYTHING] = separator.join(filter(None, texts.values()))
    return {column_of(kind, name): texts[name] for name in schema.text}


def column_matches(
    kind: str, weights: Mapping[str, float], schema: Schema, *, terms: str, stop_words: str
) -> list[ColumnMatch]:
    """Return what the column of each weighed field is searched for; empty without terms."""
    matches = []
    for name, weight in weights.items():
        column, of_stop_words = column_of(kind, name), weight * schema.stop_word_weight(name)
        matches.append(ColumnMatch(column, terms, weight))
        matches.append(ColumnMatch(column, stop_words, of_stop_words))
    return [match for match in matches if match.terms and match.weight]
