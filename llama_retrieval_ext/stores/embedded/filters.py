"""The filters of the embedded engine, and those on our payload."""

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

from llama_retrieval_ext.stores.qdrant_common.filters import Constructors, PayloadFilters

if TYPE_CHECKING:
    from qdrant_edge import ConditionType

EVERYTHING: Final = Filter()


def number_of(point: UUID) -> int:
    """Return the engine's id of a point: 62 random bits, read ten times as fast as a UUID."""
    return point.int % 2**64


CONSTRUCTORS: Final["Constructors[ConditionType]"] = Constructors(
    equals=lambda field, values: FieldCondition(
        field,
        match=MatchValue(values[0]) if len(values) == 1 else MatchAny([*values]),  # type: ignore[arg-type]  # all str or all int
    ),
    within=lambda field, **bounds: FieldCondition(field, range=RangeFloat(**bounds)),
    contains=lambda field, text: FieldCondition(field, match=MatchSubstring(text)),
    # With `IsEmptyCondition` the engine tests each point that the index returns once more.
    empty=lambda field: FieldCondition(field, is_empty=True),
    ids=lambda ids: HasIdCondition(set(map(number_of, ids))),
    filter=Filter,
)
LANGUAGE: Final = PayloadFilters(CONSTRUCTORS).language
NOTHING: Final = Filter(must=[CONSTRUCTORS.ids(())])
