"""The filters of Qdrant's client; those on our payload, and on that of LlamaIndex's store."""

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from qdrant_client import models

from llama_retrieval_ext.stores.qdrant_common.filters import (
    Constructors,
    FlatFilters,
    PayloadFilters,
)


def _equals(field: str, values: Sequence[str | int]) -> models.Condition:
    one = len(values) == 1
    match = models.MatchValue(value=values[0]) if one else models.MatchAny(any=list(values))  # type: ignore[arg-type]  # all str or all int
    return models.FieldCondition(key=field, match=match)


def _within(field: str, **bounds: float | None) -> models.Condition:
    return models.FieldCondition(key=field, range=models.Range(**bounds))


def _contains(field: str, text: str) -> models.Condition:
    return models.FieldCondition(key=field, match=models.MatchSubstring(substring=text))


def _empty(field: str) -> models.Condition:
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=field))


def _ids(ids: Collection[UUID]) -> models.Condition:
    return models.HasIdCondition(has_id=[str(id_) for id_ in ids])


def _group(
    *,
    every: Sequence[models.Condition] = (),
    some: Sequence[models.Condition] = (),
    no: Sequence[models.Condition] = (),
) -> models.Filter:
    return models.Filter(
        must=list(every) or None, should=list(some) or None, must_not=list(no) or None
    )


_CONSTRUCTORS: Final[Constructors[models.Condition]] = Constructors(
    equals=_equals, within=_within, contains=_contains, empty=_empty, ids=_ids, group=_group
)
NOTHING: Final = _group(every=[_ids(())])
LANGUAGE: Final = PayloadFilters(_CONSTRUCTORS).language
FLAT_LANGUAGE: Final = FlatFilters(_CONSTRUCTORS).language


def as_filter(condition: models.Condition | None) -> models.Filter | None:
    """Return a condition of the client as a filter; None for no condition."""
    if condition is None or isinstance(condition, models.Filter):
        return condition
    return models.Filter(must=[condition])
