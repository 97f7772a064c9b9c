"""Filters of the Qdrant family, before one of its engines' own classes are made of them.

The embedded engine and the client of the server each have classes for the same filters. What a
condition means is worked out once, in these, and each engine writes them down its own way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID


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
