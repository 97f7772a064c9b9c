"""Conversion of conditions to clauses on our payload, with the semantics of `matches`.

The embedded engine and the server's client have different classes for the same filters. Conditions
are compiled to clauses, and each engine converts clauses to its own classes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import NANOSECONDS, instant
from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar
from llama_retrieval_ext.query import DOCUMENT_FIELD, START_FIELD
from llama_retrieval_ext.stores.encoding.values import utf8_safe
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage, target_parts
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.qdrant_common.points import (
    ALLOWED,
    BIG,
    DOC,
    EXACT,
    FILLED,
    LIST,
    LOWER,
    META,
    NANO,
    START,
    TIME,
    boolean,
    digits,
    marked,
    path,
    point_id,
    principal_number,
)


@dataclass(frozen=True, slots=True)
class Equals:
    """Clause: the field, or an item of a list in it, equals one of the values, of one type."""

    field: str
    values: tuple[str, ...] | tuple[int, ...] | tuple[bool]


@dataclass(frozen=True, slots=True)
class Within:
    """Clause: a number of the field, or of a list in it, is within the given bounds."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True)
class Contains:
    """Clause: a string of the field, or of a list in it, contains the text, case-sensitive."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class IsEmpty:
    """Clause: the field is missing, null or an empty list."""

    field: str


@dataclass(frozen=True, slots=True)
class HasId:
    """Clause: the point has one of the ids; never true for an empty set."""

    ids: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class Group:
    """Clause: all of ``every``, any of ``some`` unless it is empty, and none of ``no``."""

    every: "tuple[Clause, ...]" = ()
    some: "tuple[Clause, ...]" = ()
    no: "tuple[Clause, ...]" = ()


Clause: TypeAlias = Equals | Within | Contains | IsEmpty | HasId | Group
Language: TypeAlias = FilterLanguage[Clause]

# The engines treat an empty list of alternatives as no restriction.
NOTHING: Final = Group(every=(HasId(frozenset()),))


def any_of(clauses: Sequence[Clause]) -> Clause:
    """Return the disjunction of clauses; never true for an empty list."""
    if len(clauses) == 1:
        return clauses[0]
    return Group(some=tuple(clauses)) if clauses else NOTHING


def negated(clause: Clause) -> Group:
    """Return the negation of a clause."""
    return Group(no=(clause,))


def every(clauses: Sequence[Clause]) -> Group:
    """Return the conjunction of clauses."""
    return Group(every=tuple(clauses))


def clause_of(condition: Condition) -> Clause:
    """Return the clause for a condition on the payload of `payload_of`."""
    return _LANGUAGE.write(condition)


def clause_language(
    comparisons: Mapping[FilterOperator, Comparison[Clause]],
    visible: Callable[[Sequence[str]], Clause] | None = None,
) -> Language:
    """Return the clause language with the comparisons for a payload layout."""
    return FilterLanguage(comparisons, every, any_of, negated, visible=visible)


def exact_bounds(key: str, value: Scalar, bound: str) -> Mapping[str, float]:
    """Return bounds that the engine compares like Python; raise for dates, and 2**53 or more."""
    if isinstance(value, str):
        raise UnsupportedFilterError(
            f"dates in this collection are only text to the engine, got {value!r} for {key!r}; "
            "open a store by URL, or store dates as numbers",
            bound.upper(),
        )
    if abs(value) >= EXACT:
        raise UnsupportedFilterError(
            f"the engine compares sizes with numbers below 2**53, got {value!r} for {key!r}; store "
            "such numbers divided by a power of ten",
            bound.upper(),
        )
    return {bound: value}


# Fields of a node beside its metadata, by the keys of filters.
_BESIDE: Final = {DOCUMENT_FIELD: DOC, START_FIELD: START}


def _path(key: str) -> str:
    return _BESIDE.get(key) or path(META, key)


def _equal(key: str, value: Scalar) -> Clause:
    if isinstance(value, str):
        return Equals(_path(key), (utf8_safe(value),))
    if abs(value) >= EXACT:
        return Equals(path(BIG, key), (digits(value),))
    # A range, because the engine's value match distinguishes 3 from 3.0.
    return Within(_path(key), gte=value, lte=value)


def _among(key: str, values: Sequence[Scalar]) -> Clause:
    texts = tuple(utf8_safe(value) for value in values if isinstance(value, str))
    clauses = [_equal(key, value) for value in values if not isinstance(value, str | bool)]
    clauses += [Equals(path(BIG, key), (boolean(v),)) for v in values if isinstance(v, bool)]
    if texts:
        clauses.append(Equals(_path(key), texts))
    return any_of(clauses)


def _ordered(bound: str) -> Comparison[Clause]:
    def write(key: str, value: Scalar) -> Clause:
        moment = instant(value)
        if moment is None:
            return Within(_path(key), **exact_bounds(key, value, bound))
        later = _since(key, moment + (bound in {"gt", "lte"}))
        if bound in {"gt", "gte"}:
            return later
        until = Within(path(TIME, key), lte=moment // NANOSECONDS)
        return Group(every=(until,), no=(later,))

    return write


def _since(key: str, moment: int) -> Clause:
    """Return the clause for dates from a moment on; a date without nanoseconds has none stored."""
    seconds, rest = divmod(moment, NANOSECONDS)
    since = Within(path(TIME, key), gte=seconds)
    if not rest:
        return since
    within = every([since, Within(path(NANO, key), gte=rest)])
    return any_of([Within(path(TIME, key), gt=seconds), within])


def _has(key: str, value: Scalar) -> Clause:
    return Equals(path(LIST, key), (utf8_safe(marked(value)),))


def _has_any(key: str, values: Sequence[Scalar]) -> Clause:
    if not values:
        return NOTHING
    return Equals(path(LIST, key), tuple(utf8_safe(marked(value)) for value in values))


def _has_all(key: str, values: Sequence[Scalar]) -> Clause:
    # Every stored list starts with a marker, so an empty list is not missing.
    return Group(every=tuple(_has(key, value) for value in values), no=(IsEmpty(path(LIST, key)),))


def _contains_text(key: str, text: str) -> Clause:
    return Contains(_path(key), utf8_safe(text))


def _contains_text_in_any_case(key: str, text: str) -> Clause:
    # A value in lower case has no lower-case entry. Otherwise the entry contains every
    # lower-case text that the value contains.
    lower = utf8_safe(text.lower())
    return any_of([Contains(path(group, key), lower) for group in (META, LOWER)])


def _is_empty(key: str, _: None) -> Clause:
    return Group(every=(IsEmpty(_path(key)),), no=(Equals(path(LIST, key), (FILLED,)),))


def _visible(principals: Sequence[str]) -> Clause:
    numbers = tuple(map(principal_number, principals))
    named = [Equals(ALLOWED, numbers)] if numbers else []
    return any_of([IsEmpty(ALLOWED), *named])


_LANGUAGE: Final = clause_language(
    {
        FilterOperator.EQ: _equal,
        FilterOperator.IN: _among,
        **{operator: _ordered(operator.name.lower()) for operator in ORDER_OPERATORS},
        FilterOperator.ANY: _has_any,
        FilterOperator.ALL: _has_all,
        FilterOperator.CONTAINS: _has,
        FilterOperator.TEXT_MATCH: _contains_text,
        FilterOperator.TEXT_MATCH_INSENSITIVE: _contains_text_in_any_case,
        FilterOperator.IS_EMPTY: _is_empty,
    },
    _visible,
)


def clause_for(target: Target) -> Clause | None:
    """Return the clause for the selected nodes; None for all nodes."""
    parts = target_parts(target, ids=_has_id, documents=_of_documents, write=clause_of)
    return every(parts) if parts else None


def _has_id(node_ids: Sequence[str]) -> Clause:
    return HasId(frozenset(map(point_id, node_ids)))


def _of_documents(doc_ids: Sequence[str]) -> Clause:
    return Equals(DOC, tuple(map(utf8_safe, doc_ids))) if doc_ids else NOTHING
