"""`StoreConfig`: the config of a store; `ConfigRequest`: the config that a caller requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self, TypeVar, get_args

from pydantic_core import to_jsonable_python

from llama_retrieval_ext.checks import nearest
from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError, StoreFormatError
from llama_retrieval_ext.schema import DEFAULT_SCHEMA, Schema
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The config of a store; engines may add fields.

    Attributes:
        tokenizer: Splits documents and queries into terms.
        distance: Distance between embeddings.
        dimension: Dimension of the embeddings; None until known.
        params: Settings at the creation of the collection, as JSON values.
        schema: The indexed fields; the weights of searches may be others.
    """

    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    distance: Distance = "cosine"
    dimension: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    schema: Schema = DEFAULT_SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Return the config as JSON values."""
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        data = {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }
        return {**data, "tokenizer": self.tokenizer.to_dict(), "schema": self.schema.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the config from the output of `to_dict`; missing fields get defaults."""
        values = {
            attribute.name: data[attribute.name]
            for attribute in fields(cls)
            if attribute.name in data
        }
        tokenizer, schema = Tokenizer.from_dict(data["tokenizer"]), Schema.from_dict(data["schema"])
        return cls(**{**values, "tokenizer": tokenizer, "schema": schema})


C = TypeVar("C", bound=StoreConfig)


def format_error(
    data: Mapping[str, Any], *, where: object, reads: object, instead: str
) -> StoreFormatError:
    """Return the error for a store with an unsupported format."""
    return StoreFormatError(
        f"{where} has format {data.get('format')!r}, this release reads {reads}; install the "
        f"release that wrote it, or index the documents again into {instead}"
    )


def check_distance(
    requested: object,
    config: StoreConfig,
    names: Mapping[Distance, str],
    *,
    what: str,
    where: object,
) -> None:
    """Raise if the engine's name of a distance contradicts that of a store; None never does.

    Args:
        requested: The engine's name.
        config: The config of the store.
        names: The engine's name of each distance.
        what: The setting, for messages.
        where: The store, for messages.
    """
    if requested in (None, names[config.distance]):
        return
    distance = next((name for name, theirs in names.items() if theirs == requested), None)
    advice = f", or make another store: open_store(url, distance={distance!r})" if distance else ""
    raise ConfigurationError(
        f"store_params has {what}={requested!r}, and {where} has the distance {config.distance!r}, "
        f"which the engine calls {names[config.distance]!r}; leave {what} out{advice}"
    )


# Fields of a request with their own comparison, or none.
_APART: Final = ("dimension", "params", "schema", "kept_in")
# Names in messages for settings that have another name in a knowledge base.
_MANY_TENANTS: Final = " (of a knowledge base: many_tenants)"
_ALSO_CALLED: Final = {"routing": _MANY_TENANTS, "by_tenant": _MANY_TENANTS}


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """The config that a caller requests; None means the recorded value or the default.

    Attributes:
        tokenizer: Splits documents and queries into terms.
        distance: Distance between embeddings.
        dimension: Dimension of the embeddings.
        params: Settings for the creation of the collection, as JSON values.
        schema: Fields of a new store, and the weights of searches.
        kept_in: What the engine calls a collection, for messages.
    """

    tokenizer: Tokenizer | None = None
    distance: Distance | None = None
    dimension: int | None = None
    params: Mapping[str, object] | None = None
    schema: Schema | None = None
    kept_in: str = "store"

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
        """Return the config of a store opened with this request."""
        if recorded.dimension is not None:
            self.check(recorded, where)
            return recorded
        new: dict[str, Any] = {**self._requested, "dimension": self.dimension}
        if self.schema is not None:
            new["schema"] = self.schema
        return replace(recorded, **new, params=dict(self.params or {}))

    def check(self, recorded: StoreConfig, where: object) -> None:
        """Raise if a recorded config differs from the request."""
        for name, requested in self._requested.items():
            has = getattr(recorded, name)
            if requested != has:
                raise ConfigurationError(
                    f"{where} was made with {name}={has!r}, not {requested!r}; leave {name} out, "
                    f"or use another {self.kept_in}"
                )
        if self.dimension not in (None, recorded.dimension):
            raise DimensionMismatchError(
                f"{where} holds embeddings of dimension {recorded.dimension}, not "
                f"{self.dimension}; leave dim out, or use another {self.kept_in}"
            )
        for name, requested in (self.params or {}).items():
            has = recorded.params.get(name, False if requested is False else None)
            if requested != has:
                created = f"with {name}={has!r}" if name in recorded.params else f"without {name}"
                raise ConfigurationError(
                    f"{where} was made {created}, and is opened with {name}={requested!r}, "
                    f"which counts only when it is made; leave {name}{_ALSO_CALLED.get(name, '')} "
                    f"out of store_params, or use another {self.kept_in}"
                )

    @property
    def _requested(self) -> Mapping[str, object]:
        """The compared fields that are not None."""
        names = [attribute.name for attribute in fields(self) if attribute.name not in _APART]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def check_names(
    settings: object, names: Iterable[str], *, where: str, instead: Mapping[str, str] | None = None
) -> None:
    """Raise unless settings are a mapping with known names; the message has the nearest name.

    Args:
        settings: The settings.
        names: Their names.
        where: The name of the settings, for messages.
        instead: What to write for a name that the engine has elsewhere.
    """
    if not isinstance(settings, Mapping):
        raise ConfigurationError(f"{where} is a dict, got {settings!r}")
    names = list(names)
    for name in (name for name in settings if name not in names):
        near = (instead or {}).get(name) or nearest(str(name), names)
        advice = f"; write {near}" if near else ""
        listed = ", ".join(names) or "none"
        raise ConfigurationError(
            f"{where}: there is no setting {name!r}{advice}. The settings are: {listed}"
        )


@dataclass(frozen=True, slots=True)
class EngineParams:
    """Settings that only one engine has; a subclass has a field for each.

    Attributes:
        engine: Name of the engine, for messages.
        at_creation: Fields that apply when a collection is created.
        instead: What to write for names that are no fields, for messages.
    """

    engine: ClassVar[str]
    at_creation: ClassVar[Sequence[str]] = ()
    instead: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return checked settings, or raise `ConfigurationError`."""
        names = [attribute.name for attribute in fields(cls)]
        check_names(settings, names, where=f"store_params of {cls.engine}", instead=cls.instead)
        return cls(**settings)

    @property
    def recorded(self) -> Mapping[str, Any]:
        """Settings that are recorded with a new collection: JSON values, without None and {}."""
        values = {name: getattr(self, name) for name in self.at_creation}
        kept: Mapping[str, Any] = to_jsonable_python(
            {name: value for name, value in values.items() if value not in (None, {})}
        )
        return kept

    def check(self, config: StoreConfig, where: object) -> None:
        """Raise if a setting contradicts the config of a store; `where` names the store."""
        del config, where

    @property
    def for_records(self) -> Self:
        """Settings for a collection of records, which has no vector search."""
        return self
