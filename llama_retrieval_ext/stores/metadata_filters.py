"""Conditions written back as LlamaIndex filters, for stores that only take those."""

from llama_index.core.vector_stores.types import (
    FilterCondition,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not


def as_metadata_filters(condition: Condition) -> MetadataFilters:
    """LlamaIndex filters that mean the same; groups of one level wherever one is enough."""
    written = _written(condition)
    return written if isinstance(written, MetadataFilters) else MetadataFilters(filters=[written])


def _written(condition: Condition) -> MetadataFilter | MetadataFilters:
    match condition:
        case Compare(key, operator, value):
            given = list(value) if isinstance(value, tuple) else value
            return MetadataFilter(key=key, operator=operator, value=given)  # type: ignore[arg-type]
        case AllOf():
            return MetadataFilters(filters=[_written(part) for part in _flat(condition)])
        case AnyOf(parts):
            written = [_written(part) for part in parts]
            return MetadataFilters(filters=written, condition=FilterCondition.OR)
        case Not(part):
            return MetadataFilters(filters=[_written(part)], condition=FilterCondition.NOT)


def _flat(condition: AllOf) -> list[Condition]:
    flat: list[Condition] = []
    for part in condition.parts:
        flat.extend(_flat(part) if isinstance(part, AllOf) else [part])
    return flat
