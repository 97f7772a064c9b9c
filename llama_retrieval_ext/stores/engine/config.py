"""`ConfigRequest`: how the one who opens a store wants it to be set up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Protocol, Self, get_args, runtime_checkable

from pydantic_core import to_jsonable_python

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.records import RecordStore
from llama_retrieval_ext.text.tokenizer import Tokenizer


class Setup(Protocol):
    """How a store is set up; its engine may know more."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        ...

    @property
    def distance(self) -> Distance:
        """How embeddings are compared."""
        ...

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while it is not known."""
        ...

    @property
    def params(self) -> Mapping[str, object]:
        """Settings of the engine that it was made with, as JSON has them."""
        ...


_APART: Final = ("dimension", "params")


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What is asked for; None takes what is recorded, or the default.

    An engine that has more to ask for adds fields of the names that its records have.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings.
        params: Settings of the engine that count when it is made, as JSON has them.
    """

    kept_in: ClassVar[str] = "store"
    also_called: ClassVar[Mapping[str, str]] = {}

    tokenizer: Tokenizer | None = None
    distance: Distance | None = None
    dimension: int | None = None
    params: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if self.distance is not None and self.distance not in get_args(Distance):
            raise ConfigurationError(
                f"distance must be one of {get_args(Distance)}, got {self.distance!r}"
            )
        if self.dimension is not None and self.dimension < 1:
            raise ConfigurationError(
                f"dim must be at least 1, got {self.dimension}; to take it from the first node, "
                "leave it out"
            )

    def check(self, recorded: Setup, where: object) -> None:
        """Make sure that a store is set up as asked.

        Args:
            recorded: What it has.
            where: The store, for messages.

        Raises:
            ConfigurationError: It has another tokenizer or distance, or another of what else was
                asked for.
            DimensionMismatchError: It has another dimension.
        """
        for name in (each.name for each in fields(self) if each.name not in _APART):
            asked, has = getattr(self, name), getattr(recorded, name)
            if asked is not None and asked != has:
                raise ConfigurationError(
                    f"{where} was made with {name}={has!r}, not {asked!r}; leave "
                    f"{self.also_called.get(name, name)} out, or use another {self.kept_in}"
                )
        if self.dimension not in (None, recorded.dimension):
            raise DimensionMismatchError(
                f"{where} holds embeddings of dimension {recorded.dimension}, not "
                f"{self.dimension}; leave dim out, or use another {self.kept_in}"
            )
        self._check_params(recorded, where)

    def _check_params(self, recorded: Setup, where: object) -> None:
        for name, asked in (self.params or {}).items():
            has = recorded.params.get(name)
            if asked != has:
                made = f"with {name}={has!r}" if name in recorded.params else f"without {name}"
                raise ConfigurationError(
                    f"{where} was made {made}, and is opened with {name}={asked!r}, which counts "
                    f"only when it is made; leave {name} out of store_params, or use another "
                    f"{self.kept_in}"
                )


def made_with(params: object, names: Sequence[str]) -> Mapping[str, Any]:
    """Those settings that were given, as JSON has them.

    Args:
        params: Has them as attributes: None or empty where they were not given.
        names: Which count.
    """
    given = {name: getattr(params, name) for name in names}
    kept: Mapping[str, Any] = to_jsonable_python(
        {name: value for name, value in given.items() if value not in (None, {})}
    )
    return kept


@runtime_checkable
class CollectionStore(Protocol):
    """A store in a collection of an engine that has room for others."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts text into terms."""
        ...

    @property
    def dimension(self) -> int | None:
        """Dimension of the embeddings; None while the collection is not made."""
        ...

    def count(self) -> int:
        """How many nodes there are."""
        ...

    def beside(self, suffix: str) -> Self:
        """A store in a collection with a longer name, for records that are read by id.

        It is open as long as this one; closing either closes both.
        """
        ...

    def records(
        self, *, is_shared: bool, clock: Callable[[], float], patience_s: float
    ) -> RecordStore:
        """Return the collection as a store of records, and of nothing else.

        Args:
            is_shared: Whether other processes write to it.
            clock: Returns the seconds since 1970.
            patience_s: After so long a writer that has not finished counts as dead.
        """
        ...

    def clear(self) -> None:
        """Drop the collection; nothing happens where there is none."""
        ...

    def close(self) -> None:
        """Close it."""
        ...
