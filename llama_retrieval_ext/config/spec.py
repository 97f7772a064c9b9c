"""Conversion of pipeline parts to data and back, by their constructor arguments."""

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import arguments_of, value_expression
from llama_retrieval_ext.config.classes import class_definitions, enum_members
from llama_retrieval_ext.config.definitions import SCOPE, Definition, Parameter
from llama_retrieval_ext.config.models import (
    ESCAPES,
    MAP,
    REF,
    TEXT,
    TUPLE,
    TYPE,
    Definitions,
    Path,
    is_node,
    unknown_name,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline

_SEQUENCES: Final = ("rewrites", "refines")
# Real expressions are less deep; a retriever that contains itself is deeper.
_MAX_DEPTH: Final = 60


class BuildError(Exception):
    """Error in the construction of a part, with its path."""

    def __init__(self, path: Path, cause: Exception) -> None:
        super().__init__(str(cause))
        self.path, self.cause = path, cause


def to_data(part: object, *, live: Mapping[str, object]) -> Any:  # noqa: ANN401 - any JSON
    """Return a part as mappings, lists and scalars."""
    return _Writer(live).value(part, "the pipeline", depth=0)


class _Writer:
    def __init__(self, live: Mapping[str, object]) -> None:
        self._names = {id(each): name for name, each in live.items() if not _is_scalar(each)}

    def value(self, value: object, what: str, *, depth: int, is_tuple: bool = False) -> Any:  # noqa: ANN401, PLR0911 - any JSON
        if depth > _MAX_DEPTH:
            raise ConfigurationError(f"{what} is nested too deeply, or contains itself")
        if id(value) in self._names:
            return {REF: self._names[id(value)]}
        if isinstance(value, Enum) and f"{type(value).__name__}.{value.name}" in enum_members():
            return f"{type(value).__name__}.{value.name}"
        if _is_scalar(value):
            return {TEXT: value} if value in enum_members() else value
        if isinstance(value, MetadataFilters):
            return {TYPE: "MetadataFilters", **value.model_dump(mode="json")}
        if isinstance(value, Mapping):
            return self._mapping(value, what, depth)
        if isinstance(value, list | tuple):
            items = [self.value(each, what, depth=depth + 1) for each in value]
            return {TUPLE: items} if isinstance(value, tuple) and not is_tuple else items
        return self._node(value, what, depth)

    def _mapping(self, value: Mapping[Any, object], what: str, depth: int) -> dict[str, Any]:
        if not all(isinstance(key, str) for key in value):
            raise ConfigurationError(f"{what} has keys that are no text: {list(value)!r}")
        fields = {key: self.value(each, what, depth=depth + 1) for key, each in value.items()}
        is_ambiguous = is_node(fields) or (len(fields) == 1 and next(iter(fields)) in ESCAPES)
        return {MAP: fields} if is_ambiguous else fields

    def _node(self, part: object, what: str, depth: int) -> dict[str, Any]:
        name = type(part).__name__
        definition = class_definitions().get(name)
        if definition is None or definition.kind is not type(part):
            raise ConfigurationError(
                f"{what} contains {value_expression(part)}, which is no data; give it a name: "
                "live={'NAME': object}"
            )
        written: dict[str, Any] = {TYPE: name}
        for argument, value in _arguments(part, definition).items():
            parameter = definition.parameters[argument]
            written[argument] = self.value(
                value,
                f"{argument!r} of {name}",
                depth=depth + 1,
                is_tuple=parameter.takes_tuples or parameter.is_rest,
            )
        return written


def _arguments(part: object, definition: Definition) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(arguments_of(part))
    if isinstance(part, RetrievalPipeline):
        arguments["stages"] = list(part.stages)
    if isinstance(part, Pipeline) and part.is_plain:  # its repr uses >>, so nothing is lost
        arguments |= {name: list(arguments[name]) for name in _SEQUENCES if name in arguments}
    scope = getattr(part, SCOPE, None)
    if definition.is_scoped_later and scope is not None:
        arguments[SCOPE] = scope
    return arguments


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


class Builder:
    """Builder of parts from data in which `models.problems` finds no problem."""

    def __init__(self, known: Definitions, live: Mapping[str, object], parts: object) -> None:
        self._known, self._live, self._parts = known, live, parts

    def value(self, data: Any, path: Path = (), *, parameter: Parameter | None = None) -> Any:  # noqa: ANN401
        """Return the object that data describes."""
        if isinstance(data, str):
            return enum_members().get(data, data)
        if is_node(data):
            return self._node(data, path)
        if isinstance(data, Mapping):
            return self._mapping(data, path)
        if isinstance(data, list):
            items = [self.value(each, (*path, number)) for number, each in enumerate(data)]
            return tuple(items) if parameter is not None and parameter.takes_tuples else items
        if isinstance(data, float) and math.isnan(data):
            raise BuildError(path, ConfigurationError("a number is needed, got NaN"))
        return data

    def _mapping(self, data: Mapping[str, Any], path: Path) -> Any:  # noqa: ANN401
        key = next(iter(data)) if len(data) == 1 else ""
        if key == REF:
            return self._named(data[REF], path)
        if key == TEXT:
            return data[TEXT]
        if key == TUPLE and isinstance(data[TUPLE], Sequence):
            return tuple(self.value(list(data[TUPLE]), (*path, TUPLE)))
        if key == MAP and isinstance(data[MAP], Mapping):
            path, data = (*path, MAP), data[MAP]
        return {name: self.value(each, (*path, name)) for name, each in data.items()}

    def _named(self, name: object, path: Path) -> object:
        if not isinstance(name, str) or name not in self._live:
            there = ", ".join(sorted(self._live)) or "nothing"
            raise BuildError(
                path, ConfigurationError(f"nothing is bound as {name!r}; there is {there}")
            )
        return self._live[name]

    def _node(self, data: Mapping[str, Any], path: Path) -> object:
        definition = self._known.get(data[TYPE])
        if definition is None:
            message = unknown_name("type", data[TYPE], self._known)
            raise BuildError((*path, TYPE), ConfigurationError(message))
        arguments = {
            name: self.value(each, (*path, name), parameter=definition.parameters[name])
            for name, each in data.items()
            if name != TYPE
        }
        try:
            return definition.build(arguments, self._parts)
        except BuildError:
            raise
        except Exception as error:  # any error of a constructor belongs to this node
            raise BuildError(path, error) from error
