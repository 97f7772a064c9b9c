"""What a `KnowledgeRetriever` is asked by: chapter, engineering type, processes, in the context."""

from collections.abc import Mapping, Sequence
from typing import Final

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.kg_rule import PROCESSES_KEY

CHAPTER_KEY: Final = "chapter"
TYPE_KEY: Final = "engineering_type"


def context_of(
    chapter: str | None,
    engineering_type: str | None,
    processes: Sequence[str] | None,
    context: Mapping[str, object] | None,
) -> dict[str, object]:
    """Return the context of a query with what knowledge is asked by."""
    given = {CHAPTER_KEY: chapter, TYPE_KEY: engineering_type}
    own: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if processes is not None:
        own[PROCESSES_KEY] = [processes] if isinstance(processes, str) else list(processes)
    return {**(context or {}), **own}


def named(processes: Sequence[str]) -> str:
    """Return processes as the text of a query."""
    return processes if isinstance(processes, str) else ", ".join(map(str, processes))


def is_or_lacks(key: str, value: str) -> MetadataFilters:
    """The filter for what has a value in a field, or lacks the field."""
    return MetadataFilters(
        filters=[
            MetadataFilter(key=key, value=value),
            MetadataFilter(key=key, value=None, operator=FilterOperator.IS_EMPTY),
        ],
        condition=FilterCondition.OR,
    )


def inference_query(context: str | Mapping[str, object], processes: Sequence[str]) -> Query:
    """The query for what rules conclude."""
    given = {"query": context} if isinstance(context, str) else dict(context)
    text = given.pop("query", None) or named(processes)
    own = context_of(None, None, processes or None, given)
    return Query(str(text), context=own)
