"""Conditions on metadata as clauses on our payload; they mean what `matches` says.

Filters of the Qdrant family, before one of its engines' own classes are made of them.

The embedded engine and the client of the server each have classes for the same filters. What a
condition means is worked out once, in these, and each engine writes them down its own way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.encoding.values import utf8_safe
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.qdrant_common.points import (
    BIG,
    DOC,
    EXACT,
    FILLED,
    LIST,
    LOWER,
    META,
    digits,
    marked,
    path,
    point_id,
)


@dataclass(frozen=True, slots=True)
class Equals:
    """A string of the field equals one of the texts; elements of a list count as well."""

    field: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """A number of the field lies within the bounds that are given; elements count as well."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True)
class Contains:
    """A string of the field has the text in it, case and all; elements count as well."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class IsEmpty:
    """The field is missing, null or an empty list."""

    field: str


@dataclass(frozen=True, slots=True)
class HasId:
    """The point has one of the ids; no point has one of none."""

    ids: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class Group:
    """All of ``every`` hold, one of ``some`` does unless it is empty, and none of ``no`` does."""

    every: "tuple[Clause, ...]" = ()
    some: "tuple[Clause, ...]" = ()
    no: "tuple[Clause, ...]" = ()


Clause: TypeAlias = Equals | Within | Contains | IsEmpty | HasId | Group

EVERYTHING: Final = Group()
# Not a group of no alternatives, which the engines take for no restriction.
NOTHING: Final = Group(every=(HasId(frozenset()),))


def any_of(clauses: Sequence[Clause]) -> Clause:
    """The clause that holds where one of them does; of none, nowhere."""
    if len(clauses) == 1:
        return clauses[0]
    return Group(some=tuple(clauses)) if clauses else NOTHING


def negated(clause: Clause) -> Group:
    """The clause that holds where the other does not."""
    return Group(no=(clause,))


# Any: parse_filters has made sure that each operator has a value of its kind.
Written = Callable[[str, Any], Clause]


def clause_of(condition: Condition) -> Clause:
    """The clause for a condition, where metadata is stored as in `payload_of`."""
    return combined(condition, _OPERATORS)


def combined(condition: Condition, operators: Mapping[FilterOperator, Written]) -> Clause:
    """A tree of conditions as clauses, each comparison written as its operator says."""
    match condition:
        case Compare(key, operator, value):
            return operators[operator](key, value)
        case AllOf(parts):
            return Group(every=tuple(combined(part, operators) for part in parts))
        case AnyOf(parts):
            return any_of([combined(part, operators) for part in parts])
        case Not(part):
            return negated(combined(part, operators))


def exact_bounds(key: str, value: float, bound: str) -> Mapping[str, float]:
    """Bounds that the engine compares as Python does."""
    if abs(value) >= EXACT:
        raise UnsupportedFilterError(
            f"the engine compares sizes with numbers below 2**53, got {value!r} for {key!r}; store "
            "such numbers divided by a power of ten",
            bound.upper(),
        )
    return {bound: value}


def _equal(key: str, value: Scalar) -> Clause:
    if isinstance(value, str):
        return Equals(path(META, key), (utf8_safe(value),))
    if abs(value) >= EXACT:
        return Equals(path(BIG, key), (digits(value),))
    # A range, because as values the engine tells 3 from 3.0.
    return Within(path(META, key), gte=value, lte=value)


def _among(key: str, values: Sequence[Scalar]) -> Clause:
    texts = tuple(utf8_safe(value) for value in values if isinstance(value, str))
    clauses = [_equal(key, value) for value in values if not isinstance(value, str)]
    if texts:
        clauses.append(Equals(path(META, key), texts))
    return any_of(clauses)


def _sized(bound: str) -> Written:
    return lambda key, value: Within(path(META, key), **exact_bounds(key, value, bound))


def _has(key: str, value: Scalar) -> Clause:
    return Equals(path(LIST, key), (utf8_safe(marked(value)),))


def _has_any(key: str, values: Sequence[Scalar]) -> Clause:
    return any_of([_has(key, value) for value in values])


def _has_all(key: str, values: Sequence[Scalar]) -> Clause:
    # Every stored list begins with a mark: one without values is there, too.
    return Group(every=tuple(_has(key, value) for value in values), no=(IsEmpty(path(LIST, key)),))


def _contains_text(key: str, text: str) -> Clause:
    return Contains(path(META, key), utf8_safe(text))


def _contains_text_in_any_case(key: str, text: str) -> Clause:
    # Without an entry in lower case, the field is in lower case as it is; with one, what the field
    # itself has in lower case, the entry has, too.
    lower = utf8_safe(text.lower())
    return any_of([Contains(path(group, key), lower) for group in (META, LOWER)])


def _is_empty(key: str, _: None) -> Clause:
    return Group(every=(IsEmpty(path(META, key)),), no=(Equals(path(LIST, key), (FILLED,)),))


_OPERATORS: Final[Mapping[FilterOperator, Written]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda key, value: negated(_equal(key, value)),
    FilterOperator.IN: _among,
    FilterOperator.NIN: lambda key, values: negated(_among(key, values)),
    FilterOperator.GT: _sized("gt"),
    FilterOperator.GTE: _sized("gte"),
    FilterOperator.LT: _sized("lt"),
    FilterOperator.LTE: _sized("lte"),
    FilterOperator.ANY: _has_any,
    FilterOperator.ALL: _has_all,
    FilterOperator.CONTAINS: _has,
    FilterOperator.TEXT_MATCH: _contains_text,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _contains_text_in_any_case,
    FilterOperator.IS_EMPTY: _is_empty,
}


def clause_for(target: Target) -> Clause | None:
    """The clause for the nodes that are meant; None for every node."""
    parts: list[Clause] = []
    if target.node_ids is not None:
        parts.append(HasId(frozenset(point_id(node_id) for node_id in target.node_ids)))
    if target.doc_ids is not None:
        texts = tuple(utf8_safe(doc_id) for doc_id in target.doc_ids)
        parts.append(Equals(DOC, texts) if texts else NOTHING)
    condition = target.condition
    if condition is not None:
        parts.append(clause_of(condition))
    return Group(every=tuple(parts)) if parts else None
