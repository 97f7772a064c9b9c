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


_CONSTRUCTORS: Final[Constructors[models.Condition]] = Constructors(
    equals=_equals, within=_within, contains=_contains, empty=_empty, ids=_ids, filter=models.Filter
)
NOTHING: Final = models.Filter(must=[_ids(())])
LANGUAGE: Final = PayloadFilters(_CONSTRUCTORS).language
FLAT_LANGUAGE: Final = FlatFilters(_CONSTRUCTORS).language
