"""Types of configurations: functions and classes, with parameters from their signatures."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters
from pydantic import JsonValue, ValidationError

from llama_retrieval_ext import pipeline, retrievers, stages
from llama_retrieval_ext.arguments import NamedEnum, RecordsArguments
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever, MinMaxScores
from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.execution.legs import CircuitBreaker, Leg
from llama_retrieval_ext.filters import parse_filters
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.branches import Branches, Unfused
from llama_retrieval_ext.pipeline.chains import FanOutChain, RefineChain, RewriteChain
from llama_retrieval_ext.pipeline.fusion import Fusion, FusionChain
from llama_retrieval_ext.pipeline.operators import FunctionStage
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever, Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import FanOut, Refine, Rewrite
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.knowledge_response import KnowledgePolicy
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.selectors import Selector
from llama_retrieval_ext.stages.decay import Recency
from llama_retrieval_ext.stages.rerank.reranker import Reranker
from llama_retrieval_ext.text.tokenizer import Tokenizer

REQUIRED: Final = inspect.Parameter.empty
SCOPE: Final = "scope"
_BASES: Final = (Refine, Rewrite, FanOut, Fusion, Reranker, Selector, Retriever)
_OTHERS: Final = (
    *(Branches, CircuitBreaker, FanOutChain, FunctionStage, FusionChain, FusionRetriever),
    *(KeptBM25Retriever, KnowledgePolicy, Leg, MinMaxScores, Pipeline, Recency, RefineChain),
    *(RewriteChain, Scope, Tokenizer, Unfused),
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a definition; ``is_rest``: it takes any number of positional arguments."""

    hint: Any
    default: object = REQUIRED
    is_rest: bool = False

    @property
    def takes_tuples(self) -> bool:
        """Whether lists in a configuration become tuples."""
        arms = [get_origin(each) or each for each in arms_of(self.hint)]
        return tuple in arms and not any(
            isinstance(arm, type) and issubclass(list, arm) for arm in arms if arm is not object
        )


@dataclass(frozen=True, eq=False)
class Definition:
    """Definition of a ``type`` in configurations.

    ``make`` creates the object; with ``takes_parts`` it gets `RegistryParts` first. If
    ``is_scoped_later``, ``scope`` is passed to ``for_scope`` of the result, which is a ``kind``.
    """

    name: str
    make: Callable[..., object]
    kind: type
    parameters: Mapping[str, Parameter]
    takes_parts: bool = False
    is_scoped_later: bool = False
    description: str = ""


def definition_of(make: Callable[..., object], *, name: str, takes_parts: bool) -> Definition:
    """Return the definition of a function or class, from its signature."""
    called: Any = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    hints = get_type_hints(called, include_extras=True)
    declared = list(inspect.signature(called).parameters.values())
    declared = declared[isinstance(make, type) + takes_parts :]  # without self and the parts
    parameters: dict[str, Parameter] = {}
    for each in declared:
        hint = hints.get(each.name, Any)
        if each.kind is each.VAR_KEYWORD:
            parameters |= _keywords(hint)
        elif each.kind is each.VAR_POSITIONAL:
            several = Sequence[hint]  # type: ignore[valid-type]  # from a signature
            parameters[each.name] = Parameter(several, (), is_rest=True)
        else:
            parameters[each.name] = Parameter(hint, each.default)
    kind = make if isinstance(make, type) else hints.get("return", object)
    kind = kind if isinstance(kind, type) else BaseRetriever
    is_scoped_later = issubclass(kind, Retriever) and not takes_parts and SCOPE not in parameters
    if is_scoped_later:
        parameters[SCOPE] = Parameter(Scope | None, None)
    return Definition(
        name,
        make,
        kind,
        parameters,
        takes_parts=takes_parts,
        is_scoped_later=is_scoped_later,
        description=(inspect.getdoc(make) or "").partition("\n")[0].strip(),
    )


def arms_of(hint: Any) -> list[Any]:  # noqa: ANN401 - a type, or what typing has for one
    """Return the members of a union, or the type alone."""
    if get_origin(hint) in {Union, UnionType}:
        return [arm for each in get_args(hint) for arm in arms_of(each)]
    return [hint]


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
    return {f"{kind.__name__}.{each.name}": each for kind in enums for each in kind}


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


def _keywords(hint: Any) -> dict[str, Parameter]:  # noqa: ANN401 - what typing has for a TypedDict
    """Return the parameters of ``**kwargs: Unpack[SomeTypedDict]``."""
    (inside,) = get_args(hint) or (hint,)
    if not hasattr(inside, "__total__"):
        return {}
    hints = get_type_hints(inside)
    return {name: Parameter(each, None) for name, each in hints.items()}
