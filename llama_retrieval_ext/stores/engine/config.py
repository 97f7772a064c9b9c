"""`StoreConfig`: how a store is set up, and `ConfigRequest`: what its opener requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self, TypeVar, get_args

from pydantic_core import to_jsonable_python

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreFormatError,
)
from llama_retrieval_ext.stores.encoding.vectors import Distance, query_vector
from llama_retrieval_ext.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How a store is set up; an engine that records more adds fields.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings; None until it is known.
        params: Settings that the engine was created with, as JSON has them.
    """

    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    distance: Distance = "cosine"
    dimension: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON

    def to_dict(self) -> dict[str, Any]:
        """Return the config as JSON has it."""
        data = {each.name: _as_json(getattr(self, each.name)) for each in fields(self)}
        return {**data, "tokenizer": self.tokenizer.to_dict()}

    def checked(self, embedding: Sequence[float], where: object) -> list[float]:
        """Return a query's embedding, ready for the engine, or raise `DimensionMismatchError`."""
        dimension = self.dimension or len(embedding)
        return query_vector(embedding, dimension=dimension, distance=self.distance, where=where)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the config that `to_dict` wrote; what is missing has its default."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{**known, "tokenizer": Tokenizer.from_dict(data["tokenizer"])})


C = TypeVar("C", bound=StoreConfig)


def format_error(
    data: Mapping[str, Any], *, where: object, reads: object, instead: str
) -> StoreFormatError:
    """Return the error for a store of another format."""
    return StoreFormatError(
        f"{where} has format {data.get('format')!r}, this release reads {reads}; install the "
        f"release that wrote it, or index the documents again into {instead}"
    )


def _as_json(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


# Fields of a request that are compared apart from the others.
_APART: Final = ("dimension", "params")


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The config that a store's opener requests; None takes what is recorded, or the default.

    An engine that records more adds fields of the same names.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings.
        params: Settings that count when the engine creates the collection, as JSON has them.
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

    def resolve(self, recorded: C, where: object) -> C:
        """Return the config of a store that is opened with this request."""
        if recorded.dimension is not None:
            self.check(recorded, where)
            return recorded
        names = [each.name for each in fields(self) if each.name not in _APART]
        requested = {name: getattr(self, name) for name in names}
        chosen = {name: value for name, value in requested.items() if value is not None}
        return replace(recorded, **chosen, dimension=self.dimension, params=dict(self.params or {}))

    def check(self, recorded: StoreConfig, where: object) -> None:
        """Raise unless a store is set up as requested."""
        for name in (each.name for each in fields(self) if each.name not in _APART):
            requested, has = getattr(self, name), getattr(recorded, name)
            if requested is not None and requested != has:
                raise ConfigurationError(
                    f"{where} was made with {name}={has!r}, not {requested!r}; leave "
                    f"{self.also_called.get(name, name)} out, or use another {self.kept_in}"
                )
        if self.dimension not in (None, recorded.dimension):
            raise DimensionMismatchError(
                f"{where} holds embeddings of dimension {recorded.dimension}, not "
                f"{self.dimension}; leave dim out, or use another {self.kept_in}"
            )
        self._check_params(recorded, where)

    def _check_params(self, recorded: StoreConfig, where: object) -> None:
        for name, requested in (self.params or {}).items():
            has = recorded.params.get(name)
            if requested != has:
                created = f"with {name}={has!r}" if name in recorded.params else f"without {name}"
                raise ConfigurationError(
                    f"{where} was made {created}, and is opened with {name}={requested!r}, "
                    f"which counts only when it is made; leave {name} out of store_params, or use "
                    f"another {self.kept_in}"
                )


def recorded_params(params: object, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the named attributes that are set, as JSON has them; None and {} are not."""
    values = {name: getattr(params, name) for name in names}
    kept: Mapping[str, Any] = to_jsonable_python(
        {name: value for name, value in values.items() if value not in (None, {})}
    )
    return kept


P = TypeVar("P")


def params_of(kind: type[P], params: Mapping[str, Any], *, engine: str) -> P:
    """Return a dataclass of an engine's settings, or raise if it has no such setting."""
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    unknown = sorted(set(params).difference(known))
    if unknown:
        raise ConfigurationError(
            f"store_params has {', '.join(unknown)}; for {engine} there are {', '.join(known)}"
        )
    return kind(**params)
