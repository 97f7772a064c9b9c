"""Parts of pipelines as data, and back: the classes that files may name, by their arguments."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any, Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters
from pydantic import JsonValue, ValidationError

from llama_retrieval_ext import pipeline, retrievers, stages
from llama_retrieval_ext.arguments import (
    NamedEnum,
    RecordsArguments,
    arguments_of,
    value_expression,
)
from llama_retrieval_ext.config.composite_retrievers import InContext
from llama_retrieval_ext.config.definitions import (
    REF,
    SCOPE,
    TYPE,
    Definition,
    Definitions,
    Parameter,
    Placeholder,
    Problem,
    definition_of,
    unknown_name,
)
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.searches import MinMaxScores
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever
from llama_retrieval_ext.errors import (
    ConfigurationError,
    InvalidFilterError,
    RetrievalExtError,
    describe,
)
from llama_retrieval_ext.execution.legs import CircuitBreaker, Leg
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.parameters import Path
from llama_retrieval_ext.pipeline.branches import Branches, Unfused
from llama_retrieval_ext.pipeline.chains import FanOutChain, FusionChain, RefineChain, RewriteChain
from llama_retrieval_ext.pipeline.fusion import Fusion
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.postprocessor import FunctionStage
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.selectors import Selector
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.decay import Recency
from llama_retrieval_ext.stages.rerank.reranker import Reranker
from llama_retrieval_ext.text.tokenizer import Tokenizer

# ``map`` and ``text`` escape mappings and texts that would be parsed as one of these.
_MAP: Final = "map"
_TEXT: Final = "text"
_TUPLE: Final = "tuple"
_ESCAPES: Final = (REF, "env", _MAP, _TEXT, _TUPLE)
_SEQUENCES: Final = ("rewrites", "refines")
# Real expressions are less deep; a retriever that contains itself is deeper.
_MAX_DEPTH: Final = 60
_BASES: Final = (Refine, Rewrite, FanOut, Fusion, Reranker, Selector, Retriever)
_OTHERS: Final = (
    *(Branches, CircuitBreaker, FanOutChain, FunctionStage, FusionChain, FusionRetriever),
    *(InContext, KeptBM25Retriever, KnowledgePolicy, Leg, MinMaxScores, Pipeline, Recency),
    *(RefineChain, RewriteChain, Scope, Tokenizer, Unfused),
)


@cache
def class_definitions() -> Mapping[str, Definition]:
    """Return the definitions of public stages, retrievers and their parts."""
    classes = [kind for kind in _public_classes() if not issubclass(kind, Enum)]
    makers: dict[str, Callable[..., object]] = {
        **{kind.__name__: kind for kind in (*classes, *_OTHERS)},
        "RetrievalPipeline": retrieval_pipeline,
        "MetadataFilters": metadata_filters,
    }
    return {
        name: definition_of(makers[name], name=name, takes_parts=False) for name in sorted(makers)
    }


@cache
def enum_members() -> Mapping[str, Enum]:
    """Return the members of public enumerations by their names in configurations."""
    enums = {kind for kind in (*_public_classes(), Normalisation) if issubclass(kind, Enum)}
    return {f"{kind.__name__}.{member.name}": member for kind in enums for member in kind}


def retrieval_pipeline(
    name: str, *, stages: Sequence[object] = (), top_k: int | None = None, description: str = ""
) -> RetrievalPipeline:
    """Return a pipeline built step by step."""
    pipe = RetrievalPipeline(name, top_k=top_k, description=description)
    for stage in stages:
        pipe.add_stage(stage)
    return pipe


def metadata_filters(
    *, filters: Sequence[JsonValue], condition: FilterCondition | str | None = FilterCondition.AND
) -> MetadataFilters:
    """Return LlamaIndex metadata filters from their JSON form."""
    try:
        parsed = MetadataFilters.model_validate({"filters": filters, "condition": condition})
    except ValidationError as error:
        raise InvalidFilterError(
            "filters are LlamaIndex's as JSON, such as {key: year, value: 2020, operator: '>='}; "
            + error.errors(include_input=False, include_url=False)[0]["msg"]
        ) from error
    parse_filters(parsed)
    return parsed


def _public_classes() -> Iterable[type]:
    for package in (stages, retrievers, pipeline):
        for name in package.__all__:
            kind = getattr(package, name)
            is_ours = isinstance(kind, type) and issubclass(kind, RecordsArguments | NamedEnum)
            if is_ours and kind not in _BASES and not inspect.isabstract(kind):
                yield kind


def is_node(value: object) -> bool:
    """Return whether a mapping names a type."""
    return isinstance(value, Mapping) and isinstance(value.get(TYPE), str)


def walk(data: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield a configuration and everything in it, with paths; escaped mappings too."""
    yield path, data
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, Mapping):
        items = data.items()
    elif isinstance(data, list | tuple):
        items = enumerate(data)
    for name, value in items:
        yield from walk(value, (*path, name))


class BuildError(Exception):
    """Error in the construction of a part, with its path."""

    def __init__(self, path: Path, cause: Exception) -> None:
        is_ours = isinstance(cause, RetrievalExtError)
        self.problem = Problem(path, str(cause) if is_ours else describe(cause))
        self.cause = cause
        super().__init__(self.problem.message)


def to_data(part: object, *, live: Mapping[str, object]) -> Any:  # noqa: ANN401 - any JSON
    """Return a part as mappings, lists and scalars."""
    return _SpecWriter(live).value(part, "the pipeline", depth=0)


class _SpecWriter:
    def __init__(self, live: Mapping[str, object]) -> None:
        self._names = {id(part): name for name, part in live.items() if not _is_scalar(part)}

    def value(self, value: object, what: str, *, depth: int, is_tuple: bool = False) -> Any:  # noqa: ANN401, PLR0911 - any JSON
        if depth > _MAX_DEPTH:
            raise ConfigurationError(f"{what} is nested too deeply, or contains itself")
        if id(value) in self._names:
            return {REF: self._names[id(value)]}
        if isinstance(value, Enum) and f"{type(value).__name__}.{value.name}" in enum_members():
            return f"{type(value).__name__}.{value.name}"
        if _is_scalar(value):
            return {_TEXT: value} if value in enum_members() else value
        if isinstance(value, MetadataFilters):
            return {TYPE: "MetadataFilters", **value.model_dump(mode="json")}
        if isinstance(value, Mapping):
            return self._mapping(value, what, depth)
        if isinstance(value, list | tuple):
            items = [self.value(item, what, depth=depth + 1) for item in value]
            return {_TUPLE: items} if isinstance(value, tuple) and not is_tuple else items
        return self._node(value, what, depth)

    def _mapping(self, value: Mapping[Any, object], what: str, depth: int) -> dict[str, Any]:
        if not all(isinstance(key, str) for key in value):
            raise ConfigurationError(f"{what} has keys that are no text: {list(value)!r}")
        fields = {key: self.value(item, what, depth=depth + 1) for key, item in value.items()}
        is_ambiguous = is_node(fields) or (len(fields) == 1 and next(iter(fields)) in _ESCAPES)
        return {_MAP: fields} if is_ambiguous else fields

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
    """Builder of parts from data, each node checked before it is built.

    Without ``live`` it only validates: it collects `problems` instead of raising, and a retriever,
    or what contains a reference, is not built but represented by a `Placeholder`.
    """

    def __init__(
        self,
        definitions: Definitions,
        live: Mapping[str, object] | None = None,
        parts: RegistryParts | None = None,
    ) -> None:
        self._known, self._live, self._parts = definitions, live, parts
        self.problems: list[Problem] = []

    def value(self, data: Any, path: Path = (), *, parameter: Parameter | None = None) -> Any:  # noqa: ANN401
        """Return the object that data describes."""
        if isinstance(data, str):
            return enum_members().get(data, data)
        if is_node(data):
            return self._node(data, path)
        if isinstance(data, Mapping):
            return self._mapping(data, path)
        if isinstance(data, list):
            items = [self.value(item, (*path, number)) for number, item in enumerate(data)]
            return tuple(items) if parameter is not None and parameter.takes_tuples else items
        is_nan = isinstance(data, float) and math.isnan(data)
        return self._failed(path, ConfigurationError("a number is needed")) if is_nan else data

    def _mapping(self, data: Mapping[str, Any], path: Path) -> Any:  # noqa: ANN401
        key = next(iter(data)) if len(data) == 1 else ""
        if key == REF:
            return self._named(data[REF], path)
        if key == _TEXT and isinstance(data[_TEXT], str):
            return data[_TEXT]
        if key == _TUPLE and isinstance(data[_TUPLE], Sequence):
            return tuple(self.value(list(data[_TUPLE]), (*path, _TUPLE)))
        if key == _MAP and isinstance(data[_MAP], Mapping):
            path, data = (*path, _MAP), data[_MAP]
        return {name: self.value(item, (*path, name)) for name, item in data.items()}

    def _named(self, name: object, path: Path) -> object:
        if isinstance(name, str) and self._live is None:
            return Placeholder(None)
        live = self._live or {}
        if isinstance(name, str) and name in live:
            return live[name]
        there = ", ".join(sorted(live)) or "nothing"
        message = f"nothing is bound as {name!r}; there is {there}"
        return self._failed(path, ConfigurationError(message))

    def _node(self, data: Mapping[str, Any], path: Path) -> object:
        definition = self._known.get(data[TYPE])
        if definition is None:
            message = unknown_name("type", data[TYPE], self._known)
            return self._failed((*path, TYPE), ConfigurationError(message))
        parameters = definition.parameters
        arguments: Mapping[str, Any] = {
            name: self.value(item, (*path, name), parameter=parameters.get(name))
            for name, item in data.items()
            if name != TYPE
        }
        arguments, mistakes = definition.checked(arguments, self._known, path)
        if mistakes:
            self.problems += mistakes
            return Placeholder(None)
        opens = definition.takes_parts or issubclass(definition.kind, BaseRetriever)
        has_live = opens or any(isinstance(part, Placeholder) for _, part in walk(arguments))
        if self._live is None and has_live:
            return Placeholder(definition.kind)
        try:
            parts = self._parts and replace(self._parts, given=frozenset(arguments))
            return definition.build(arguments, parts)
        except Exception as error:  # noqa: BLE001 - any error of a constructor belongs to this node
            return self._failed(path, error)

    def _failed(self, path: Path, error: Exception) -> Placeholder:
        failure = BuildError(path, error)
        if self._live is not None:
            raise failure from error
        self.problems.append(failure.problem)
        return Placeholder(None)
