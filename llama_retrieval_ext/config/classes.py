"""The classes that configurations may name: stages, retrievers and their parts."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Final

from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters
from pydantic import JsonValue, ValidationError

from llama_retrieval_ext import pipeline, retrievers, stages
from llama_retrieval_ext.arguments import NamedEnum, RecordsArguments
from llama_retrieval_ext.config.composite_retrievers import InContext
from llama_retrieval_ext.config.definitions import Definition, definition_of
from llama_retrieval_ext.config.searches import MinMaxScores
from llama_retrieval_ext.config.store_retrievers import KeptBM25Retriever
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
