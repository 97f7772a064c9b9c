"""The filters of the embedded engine, and those on our payload."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    MatchAny,
    MatchSubstring,
    MatchValue,
    RangeFloat,
)

from llama_retrieval_ext.stores.embedded.shard import number_of
from llama_retrieval_ext.stores.engine.filters import FilterLanguage
from llama_retrieval_ext.stores.qdrant_common.filters import Constructors, PayloadFilters
from llama_retrieval_ext.stores.qdrant_common.points import is_unused

if TYPE_CHECKING:
    from qdrant_edge import ConditionType

EVERYTHING: Final = Filter()


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


@lru_cache(maxsize=64)
def language_of(indexed: AbstractSet[str]) -> "FilterLanguage[ConditionType]":
    """Return the filters of a shard with these indexes.

    A date or list that no node has matches nothing; the engine would look for it in each payload.
    """

    def used(make: "Callable[..., ConditionType]") -> "Callable[..., ConditionType]":
        return lambda field, *values, **bounds: (
            NOTHING if is_unused(field, indexed) else make(field, *values, **bounds)
        )

    make = replace(CONSTRUCTORS, equals=used(CONSTRUCTORS.equals), within=used(CONSTRUCTORS.within))
    return PayloadFilters(make).language
