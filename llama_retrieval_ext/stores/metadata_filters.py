"""Conditions written back as LlamaIndex filters, for stores that only take those."""

from collections.abc import Mapping, Sequence
from typing import Final

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not

_DECIDED_BY_NO_VALUES: Final[Mapping[FilterOperator, bool]] = {
    FilterOperator.IN: False,
    FilterOperator.ANY: False,
    FilterOperator.NIN: True,
}


def as_metadata_filters(condition: Condition) -> MetadataFilters:
    """LlamaIndex filters that mean the same; groups of one level wherever one is enough.

    Args:
        condition: A `simplified` one.
    """
    written = _written(condition)
    return written if isinstance(written, MetadataFilters) else MetadataFilters(filters=[written])


def simplified(condition: Condition) -> Condition | bool:
    """The condition without empty groups and empty lists; what always or never holds as a bool.

    Stores that get an empty group ignore it, and some ignore an empty list of values.
    """
    match condition:
        case Compare(_, operator, ()) if operator in _DECIDED_BY_NO_VALUES:
            return _DECIDED_BY_NO_VALUES[operator]
        case Compare():
            return condition
        case AllOf(parts):
            return _group(AllOf, parts, decides=False)
        case AnyOf(parts):
            return _group(AnyOf, parts, decides=True)
        case Not(part):
            inner = simplified(part)
            return not inner if isinstance(inner, bool) else Not(inner)


def _group(
    kind: type[AllOf] | type[AnyOf], parts: Sequence[Condition], *, decides: bool
) -> Condition | bool:
    """The group of the parts, of which one that is ``decides`` decides."""
    inner = [simplified(part) for part in parts]
    if decides in inner:
        return decides
    left = tuple(part for part in inner if not isinstance(part, bool))
    if not left:
        return not decides
    return left[0] if len(left) == 1 else kind(left)


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
