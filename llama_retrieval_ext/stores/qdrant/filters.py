"""Conversion of clauses to filters of Qdrant's client."""

from qdrant_client import models

from llama_retrieval_ext.stores.qdrant_common.filters import (
    Clause,
    Contains,
    Equals,
    Group,
    HasId,
    IsEmpty,
    Within,
)


def as_filter(clause: Clause) -> models.Filter:
    """Return the client's filter for a clause.

    Examples:
        >>> as_filter(Equals("doc", ("a",))).must[0].match
        MatchValue(value='a')

    """
    written = _written(clause)
    return written if isinstance(written, models.Filter) else models.Filter(must=[written])


def _written(clause: Clause) -> models.Condition:
    match clause:
        case Group(every, some, no):
            return models.Filter(must=_each(every), should=_each(some), must_not=_each(no))
        case HasId(ids):
            return models.HasIdCondition(has_id=[str(id_) for id_ in ids])
        case IsEmpty(field):
            return models.IsEmptyCondition(is_empty=models.PayloadField(key=field))
        case _:
            return _of_field(clause)


def _of_field(clause: Within | Contains | Equals) -> models.FieldCondition:
    match clause:
        case Within(field, gt, gte, lt, lte):
            bounds = models.Range(gt=gt, gte=gte, lt=lt, lte=lte)
            return models.FieldCondition(key=field, range=bounds)
        case Contains(field, text):
            return models.FieldCondition(key=field, match=models.MatchSubstring(substring=text))
        case Equals(field, values):
            one = len(values) == 1
            match = models.MatchValue(value=values[0]) if one else models.MatchAny(any=list(values))  # type: ignore[arg-type]  # all str or all int
            return models.FieldCondition(key=field, match=match)


def _each(clauses: tuple[Clause, ...]) -> list[models.Condition] | None:
    return [_written(clause) for clause in clauses] or None
