"""Facts: edges and entities with dates, shown as they hold, and were known, at some time.

An edge or an entity with ``valid_from``, ``valid_to`` or ``known_from`` in its properties is a
fact. Each one stays a claim of its own beside the earlier ones. Facts of one edge or entity with
the same start, or the same property ``fact``, are versions of one: the latest known counts.
Everything else is decided when they are read, from the visible facts alone, so that a hidden one
closes nothing.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from llama_retrieval_ext.dates import (
    KNOWN_FROM,
    TIME_KEYS,
    VALID_FROM,
    VALID_TO,
    instant,
    moment_of,
    now,
)
from llama_retrieval_ext.graph.elements import Claims, Edge, EdgeId, GraphNode, Partition
from llama_retrieval_ext.scope import ANY_TIME, Scope

Row = TypeVar("Row", GraphNode, Edge)
# Property that names a fact, if its start is corrected later.
FACT_KEY: Final = "fact"
# Property of a fact of a functional relation: the other ends that hold from the same start.
CONTRADICTS_KEY: Final = "contradicts"
# Separates a document and its fact in the name of a claim.
MARK: Final = "\x01"
_TIMES: Final = re.compile(f'"(?:{"|".join(TIME_KEYS)})"')


class DatedEdge(Edge):
    """An edge with several facts: what documents claim of it, greatest first."""

    claims: Claims[Edge]


class When(NamedTuple):
    """What a reader asks for; times are in nanoseconds.

    Attributes:
        as_of: The time at which facts hold; None for any.
        known_at: The time at which they were known.
        principals: The principals of the reader; None for a trusted one.
    """

    as_of: float | None
    known_at: float
    principals: frozenset[str] | None

    @classmethod
    def of(cls, scope: Scope | None) -> "When":
        """Return what a scope asks for; without times, what holds and is known now."""
        moment = instant(now()) or 0
        if scope is None:
            return cls(moment, moment, None)
        principals = None if scope.principals is None else frozenset(scope.principals)
        as_of = None if scope.as_of == ANY_TIME else instant(scope.as_of) or moment
        return cls(as_of, instant(scope.known_at) or moment, principals)

    def sees(self, allowed: frozenset[str]) -> bool:
        """Return whether the reader sees what names these principals; none are everyone."""
        return not allowed or self.principals is None or not allowed.isdisjoint(self.principals)


class Period(NamedTuple):
    """The dates of a fact in nanoseconds, its name, and its partition."""

    start: float
    end: float
    known_from: float
    known_to: float
    fact: str
    home: Partition


@lru_cache(maxsize=2**16)
def _period(payload: str) -> Period:
    properties = json.loads(payload)
    start, end, known_from, known_to = (instant(properties.get(key)) for key in TIME_KEYS)
    return Period(
        -inf if start is None else start,
        inf if end is None else end,
        -inf if known_from is None else known_from,
        inf if known_to is None else known_to,
        str(properties.get(FACT_KEY) or properties.get(VALID_FROM) or ""),
        Partition.of(properties),
    )


def period_of(edge: Edge) -> Period:
    """Return the dates of an edge."""
    return _period(edge.payload)


def has_dates(payload: str) -> bool:
    """Return whether the properties of an edge, as JSON, have dates."""
    # Nearly all have no such letters, which is quicker to see than a pattern.
    may_have = '"valid_' in payload or '"known_' in payload
    return may_have and _TIMES.search(payload) is not None


def is_dated(edge: Edge) -> bool:
    """Return whether an edge is a fact, or has several."""
    return type(edge) is DatedEdge or has_dates(edge.payload)


def as_fact(document: str, row: Row) -> tuple[str, Row]:
    """Return the name of a document's claim of a node or an edge, and the row as it is stored.

    Raises:
        ConfigurationError: A date of the row cannot be read.
    """
    if not (is_dated(row) if isinstance(row, Edge) else is_dated_entity(row)):
        return document, row
    properties = dict(row.properties)
    for key in TIME_KEYS:
        if properties.get(key) is not None:
            what = row if isinstance(row, Edge) else row.id
            properties[key] = moment_of(properties[key], f"{key} of {what}")
    known_from = properties.setdefault(KNOWN_FROM, now())
    name = f"{document}{MARK}{period_of(fact_of(properties)).fact}{MARK}{known_from}"
    if isinstance(row, Edge):
        return name, Edge.of(*row.id, properties)
    return name, replace(row, properties=properties)


def is_dated_entity(node: GraphNode) -> bool:
    """Return whether a node has properties that hold for a time; passages hold as a whole."""
    return not node.properties.keys().isdisjoint(TIME_KEYS) and not node.is_passage


def fact_of(properties: Mapping[str, object]) -> Edge:
    """Return what is claimed of a node, as an edge from it to itself, whose ends are left out."""
    return Edge.of("", "", "", properties)


def entity_at(
    node: GraphNode, when: When, claims: Iterable[tuple[frozenset[str], Edge]] | None = None
) -> GraphNode:
    """Return an entity with the properties that hold at a time, and from when until when they do.

    They are those of its latest claim without dates, and over them those of the facts that hold,
    over which those of a later start win.

    Args:
        node: The entity, by its greatest visible claim.
        when: The time, and the reader; for any time, all facts count.
        claims: All claims of its properties, greatest first; None if it has the one alone.
    """
    listed = [(frozenset[str](), fact_of(node.properties))] if claims is None else [*claims]
    visible = [edge for allowed, edge in listed if when.sees(allowed)]
    facts = _known((claim for claim in listed if is_dated(claim[1])), when)
    holding = [fact for fact in facts if when.as_of is None or _holds(fact, when.as_of)]
    holding.sort(key=lambda fact: period_of(fact)[::2])
    properties: dict[str, Any] = node.partition.properties  # Any: JSON values
    for claim in (*[edge for edge in visible if not is_dated(edge)][:1], *holding):
        properties |= claim.properties
    return replace(node, properties=properties | intersection(holding))


def claimed_edge(claims: Sequence[tuple[frozenset[str], Edge]]) -> Edge | None:
    """Return the edge with these claims, greatest first, if one is a fact; else None."""
    if not any(is_dated(edge) for _, edge in claims):
        return None
    edge = DatedEdge(*claims[0][1])
    edge.claims = claims
    return edge


def facts_at(edges: Iterable[Edge], when: When, functional: Collection[str] = ()) -> list[Edge]:
    """Return edges as they hold at a time; for any time, each fact of an edge.

    Args:
        edges: Edges, with all others of the same source and type if that is functional.
        when: The times, and the reader.
        functional: Relations with one value at a time. A fact ends where the next one of its source
            starts; those that start at the same time name each other as ``contradicts``.
    """
    always: list[Edge] = []
    facts: list[Edge] = []
    groups: dict[tuple[object, ...], list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.type in functional:
            for fact in _known(_claims_of(edge), when):
                groups[period_of(fact).home, fact.source, fact.type].append(fact)
        elif is_dated(edge):
            facts += _known(_claims_of(edge), when)
        else:
            always.append(edge)
    facts += [fact for group in groups.values() for fact in _closed(group)]
    return always + (facts if when.as_of is None else _holding(facts, when.as_of))


def _holding(facts: Iterable[Edge], moment: float) -> list[Edge]:
    """Return the facts that hold at a moment, one for each edge: the last to start."""
    best: dict[tuple[EdgeId, Partition], Edge] = {}
    for fact in facts:
        period = period_of(fact)
        if _holds(fact, moment):
            other = best.setdefault((fact.id, period.home), fact)
            if period_of(other)[::2] < period[::2]:
                best[fact.id, period.home] = fact
    return [*best.values()]


def _holds(fact: Edge, moment: float) -> bool:
    return period_of(fact).start <= moment < period_of(fact).end


def _claims_of(edge: Edge) -> Claims[Edge]:
    return edge.claims if isinstance(edge, DatedEdge) else ((frozenset(), edge),)


def _known(claims: Iterable[tuple[frozenset[str], Edge]], when: When) -> Iterable[Edge]:
    """Return the latest version of each fact that was known then, and is visible."""
    latest: dict[str, Edge] = {}
    for allowed, fact in claims:
        period = period_of(fact)
        if when.sees(allowed) and period.known_from <= when.known_at < period.known_to:
            other = latest.setdefault(period.fact, fact)
            if period.known_from > period_of(other).known_from:
                latest[period.fact] = fact
    return latest.values()


def _closed(group: Sequence[Edge]) -> list[Edge]:
    """Return the facts of a functional relation, each until the next one starts."""
    by_start: dict[float, list[Edge]] = defaultdict(list)
    for fact in sorted(group, key=lambda fact: (period_of(fact).start, fact.target)):
        by_start[period_of(fact).start].append(fact)
    closed: list[Edge] = []
    for start, following in pairwise([*by_start, inf]):
        for fact in by_start[start]:
            more: dict[str, object] = {}
            others = [other.target for other in by_start[start] if other.target != fact.target]
            if others:
                more[CONTRADICTS_KEY] = list(dict.fromkeys(others))
            if following < period_of(fact).end:
                more[VALID_TO] = by_start[following][0].properties[VALID_FROM]
            closed.append(Edge.of(*fact.id, {**fact.properties, **more}) if more else fact)
    return closed


def period_in_words(edge: Edge) -> str:
    """Return the dates of an edge, and what contradicts it; empty if it has none.

    Examples:
        >>> period_in_words(Edge.of("ann", "WORKS_AT", "acme", {"valid_from": "2021-09-01"}))
        ' (from 2021-09-01)'

    """
    if not is_dated(edge):
        return ""
    properties = edge.properties
    ends = (("from", VALID_FROM), ("until", VALID_TO))
    dates = [f"{word} {properties[key]}" for word, key in ends if properties.get(key)]
    others = properties.get(CONTRADICTS_KEY)
    if others:
        dates.append(f"at the same time as {', '.join(others)}")
    return f" ({' '.join(dates)})" if dates else ""


def intersection(edges: Iterable[Edge]) -> dict[str, str]:
    """Return from when until when all of these edges hold; empty if always, or never."""
    dated = [edge for edge in edges if is_dated(edge)]
    last = max(dated, key=lambda edge: period_of(edge).start, default=None)
    first = min(dated, key=lambda edge: period_of(edge).end, default=None)
    if last is None or first is None or period_of(last).start >= period_of(first).end:
        return {}
    dates = {VALID_FROM: last.properties.get(VALID_FROM), VALID_TO: first.properties.get(VALID_TO)}
    return {key: date for key, date in dates.items() if date is not None}
