"""Conversion of clauses to filters of the embedded engine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    MatchAny,
    MatchSubstring,
    MatchValue,
    RangeFloat,
)

from llama_retrieval_ext.stores.qdrant_common.filters import (
    Clause,
    Contains,
    Equals,
    Group,
    HasId,
    IsEmpty,
    Within,
)

if TYPE_CHECKING:
    from qdrant_edge import ConditionType

EVERYTHING: Final = Filter()


def number_of(point: UUID) -> int:
    """Return the engine's id of a point: 62 random bits, read ten times as fast as a UUID."""
    return point.int % 2**64


def as_edge_filter(clause: Clause) -> Filter:
    """Return the engine's filter for a clause."""
    part = _part(clause)
    return part if isinstance(part, Filter) else Filter(must=[part])


def filter_of(clause: Clause | None) -> Filter | None:
    """Return the engine's filter for a clause; None for None."""
    return None if clause is None else as_edge_filter(clause)


def _part(clause: Clause) -> "ConditionType":
    match clause:
        case Group(every, some, no):
            return Filter(must=_each(every), should=_each(some), must_not=_each(no))
        case HasId(ids):
            return HasIdCondition(set(map(number_of, ids)))
        case _:
            return _of_field(clause)


def _of_field(clause: Within | Contains | Equals | IsEmpty) -> FieldCondition:
    match clause:
        case IsEmpty(field):
            # With `IsEmptyCondition` the engine tests each point that the index returns once more.
            return FieldCondition(field, is_empty=True)
        case Within(field, gt, gte, lt, lte):
            return FieldCondition(field, range=RangeFloat(gt=gt, gte=gte, lt=lt, lte=lte))
        case Contains(field, text):
            return FieldCondition(field, match=MatchSubstring(text))
        case Equals(field, values):
            one = len(values) == 1
            match = MatchValue(values[0]) if one else MatchAny(list(values))  # type: ignore[arg-type]  # all str or all int
            return FieldCondition(field, match=match)


def _each(clauses: Sequence[Clause]) -> "list[ConditionType] | None":
    return [_part(clause) for clause in clauses] or None
