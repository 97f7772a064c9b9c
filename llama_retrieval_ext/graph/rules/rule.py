"""`Rule`: a pattern over the graph and its conclusion, as frozen values; YAML is the notation.

A pattern is a start node and steps, each from a bound variable to another variable. The required
steps of a pattern use no edge twice, as in one Cypher ``MATCH``; an optional step and an exclusion
may use any edge.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from pydantic import ValidationError

from llama_retrieval_ext.errors import InvalidFilterError, RuleError
from llama_retrieval_ext.filters import Compare, Value, parse_filters
from llama_retrieval_ext.graph.elements import Direction, Edge, Partition

MAX_HOPS: Final = 6
MAX_STEPS: Final = 16
VARIABLE: Final = re.compile(r"[^\W\d]\w{0,63}")
# A variable or its property in a text: {hazard} or {hazard.level}.
_SLOT: Final = re.compile(r"\{\{|\}\}|\{(\w+)(?:\.([^{}]+))?\}|[{}]")


@dataclass(frozen=True, slots=True)
class FromContext:
    """Reference to a value in the context of the query; a condition without it is false."""

    key: str


class Timing(StrEnum):
    """How the time for which a step holds relates to another: as in Allen's interval algebra."""

    OVERLAPS = "overlaps"
    BEFORE = "before"
    DURING = "during"

    def holds(self, first: tuple[float, float], second: tuple[float, float]) -> bool:
        """Return whether it holds for two periods, each a start and the first instant after it.

        Examples:
            >>> Timing.BEFORE.holds((1, 2), (2, 3)), Timing.DURING.holds((1, 3), (2, 3))
            (True, False)

        """
        if self is Timing.BEFORE:
            return first[1] <= second[0]
        if self is Timing.DURING:
            return second[0] <= first[0] and first[1] <= second[1]
        return first[0] < second[1] and second[0] < first[1]


@dataclass(frozen=True, slots=True)
class During:
    """A condition on when a required step holds, which then may hold at any time.

    Attributes:
        variable: The end of the step.
        timing: The relation.
        other: The end of another step, or a period: a start and an end, of which one may be None.
    """

    variable: str
    timing: Timing
    other: "str | tuple[str | None, str | None]"


RuleValue: TypeAlias = Value | FromContext


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on a property of a node, or on the context of the query.

    Attributes:
        variable: Variable of the node; None for the context.
        key: The property, or the name in the context.
        operator: Operator of metadata filters, with the same meaning.
        value: The value to compare with.
    """

    variable: str | None
    key: str
    operator: FilterOperator = FilterOperator.EQ
    value: RuleValue = None

    def compare(self, context: Mapping[str, object]) -> Compare:
        """Return the condition with its value; it never holds if the context lacks the value."""
        if not isinstance(self.value, FromContext):
            return Compare(self.key, self.operator, self.value)
        try:
            return compared(self.key, self.operator, context.get(self.value.key))
        except InvalidFilterError:
            return Compare(self.key, FilterOperator.IN, ())


def compared(key: str, operator: FilterOperator, value: object) -> Compare:
    """Return a condition if it is valid as a metadata filter; raise `InvalidFilterError` if not."""
    listed = list(value) if isinstance(value, list | tuple) else value
    for number in listed if isinstance(listed, list) else [listed]:
        if isinstance(number, int) and not -(2**63) <= number < 2**63:
            raise InvalidFilterError(f"a number has at most 64 bits, got {number}")
    try:
        one = MetadataFilter(key=key, operator=operator, value=listed)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InvalidFilterError(
            f"a condition takes text, numbers or a list of them, got {value!r}"
        ) from error
    parse_filters(MetadataFilters(filters=[one]))
    return Compare(key, operator, tuple(one.value) if isinstance(one.value, list) else one.value)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pattern, along one or several edges.

    Attributes:
        source: Start variable, bound by an earlier step.
        types: Allowed relation types of an edge.
        target: End variable; if it is already bound, the step must end at its node.
        direction: Direction of the edges, seen from the source.
        hops: Minimum and maximum number of edges, each of the types and the direction.
        optional: Whether the pattern matches without it.
    """

    source: str
    types: tuple[str, ...]
    target: str
    direction: Direction = Direction.OUT
    hops: tuple[int, int] = (1, 1)
    optional: bool = False


@dataclass(frozen=True)
class Pattern:
    """Pattern of a rule: the nodes and edges to match.

    Attributes:
        start: Variable that the seeds bind.
        labels: Pairs of a variable and a required label of its node.
        steps: Steps, ordered so that each starts at a bound variable.
        unless: Steps that must be impossible.
        where: Conditions; those on the variable of an optional step belong to that step.
        times: Conditions on when steps hold.
    """

    start: str
    labels: tuple[tuple[str, str], ...] = ()
    steps: tuple[Step, ...] = ()
    unless: tuple[Step, ...] = ()
    where: tuple[Where, ...] = ()
    times: tuple[During, ...] = ()

    @cached_property
    def at_any_time(self) -> frozenset[str]:
        """Ends of the steps that conditions on time name."""
        others = (time.other for time in self.times if isinstance(time.other, str))
        return frozenset((*(time.variable for time in self.times), *others))

    @cached_property
    def required(self) -> tuple[Step, ...]:
        """Required steps."""
        return tuple(step for step in self.steps if not step.optional)

    @cached_property
    def optional(self) -> tuple[Step, ...]:
        """Optional steps."""
        return tuple(step for step in self.steps if step.optional)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Variables that a match binds, in the order of the steps."""
        names = (self.start, *(step.target for step in (*self.required, *self.optional)))
        return tuple(dict.fromkeys(names))


Proof: TypeAlias = tuple[tuple[Edge, ...], ...]


@dataclass(frozen=True, slots=True)
class Match:
    """One match of a pattern.

    Attributes:
        ids: Node id of each variable of the pattern; None for a missing optional one.
        proof: Edges of each required step, then of each optional one.
        partition: Partition of the start node.
    """

    ids: tuple[str | None, ...]
    proof: Proof
    partition: Partition

    @property
    def node_ids(self) -> set[str]:
        """The ids of the bound nodes, and of the ends of the edges."""
        ids = {*filter(None, self.ids)}
        for edge in chain.from_iterable(self.proof):
            ids.update((edge.source, edge.target))
        return ids

    @property
    def order(self) -> tuple[object, ...]:
        """Return the sort key: nodes, edges, partition; a missing node comes last."""
        nodes = tuple((id_ is None, id_ or "") for id_ in self.ids)
        edges = tuple(tuple(map(attrgetter("id"), step)) for step in self.proof)
        return nodes, edges, self.partition.order


@dataclass(frozen=True, slots=True)
class Concludes:
    """An edge between two variables that follows from a match, for other rules to step along."""

    source: str
    type: str
    target: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern with the conclusion for each match.

    Attributes:
        id: Name of the rule, unique in a rule set.
        pattern: The pattern to match.
        then: The conclusion in words: ``{variable}`` is a node's name, ``{variable.property}`` a
            property, ``{{`` a brace.
        kind: The kind of conclusion, such as ``safety``.
        priority: 1 is the most important.
        confidence: In (0, 1]; confidences of chained rules are multiplied.
        missing: Text for a missing optional node or property.
        concludes: The edge that other rules can use.

    Raises:
        RuleError: A part is out of range or has an unknown reference; the message names it.
    """

    id: str
    pattern: Pattern
    then: str
    kind: str = ""
    priority: int = 1
    confidence: float = 1.0
    missing: str = "?"
    concludes: Concludes | None = None

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise RuleError(f"rule {self.id!r}: {problem}")

    @property
    def properties_of(self) -> set[str]:
        """Variables of which the sentence names a property."""
        return {slot[1] for slot in _SLOT.finditer(self.then) if slot[2] is not None}

    def text(self, names: Mapping[str, str], properties: Mapping[str, Mapping[str, object]]) -> str:
        """Return the conclusion for the node names and properties of the bound variables."""

        def fill(slot: re.Match[str]) -> str:
            variable, key = slot[1], slot[2]
            if variable is None:
                return slot[0][0]
            if key is None:
                return names.get(variable, self.missing)
            value = properties.get(variable, {}).get(key)
            if isinstance(value, list | tuple):
                return ", ".join(map(str, value))
            return self.missing if value is None else str(value)

        return _SLOT.sub(fill, self.then)

    def _problems(self) -> Iterator[str]:
        yield from pattern_problems(self.pattern)
        bound = self.pattern.variables
        for slot in _SLOT.finditer(self.then):
            if slot[0] in "{}":
                yield f"a brace of {self.then!r} has no partner; write {{{{ for a brace"
            elif slot[1] is not None and slot[1] not in bound:
                yield f"the conclusion names {slot[1]!r}, which no step binds"
        if not 0 < self.confidence <= 1:
            yield f"confidence must be in (0, 1], got {self.confidence}"
        if self.priority < 1:
            yield f"priority must be at least 1, got {self.priority}"
        sure = {self.pattern.start, *(step.target for step in self.pattern.required)}
        for end in () if self.concludes is None else (self.concludes.source, self.concludes.target):
            if end not in sure:
                yield f"it concludes an edge at {end!r}, which no required step binds"


def pattern_problems(pattern: Pattern) -> Iterator[str]:
    """Yield a message for each error in a pattern."""
    if len(pattern.steps) + len(pattern.unless) > MAX_STEPS:
        yield f"it has more than {MAX_STEPS} steps"
    bound = {pattern.start}
    for step in (*pattern.required, *pattern.optional):
        yield from _step_problems(step, bound)
        bound.add(step.target)
    sure = {pattern.start, *(step.target for step in pattern.required)}
    for step in pattern.unless:
        yield from _step_problems(step, sure)
        if step.target in bound - sure:
            yield f"'unless' leads to {step.target!r}, which only an optional step binds"
    for variable in sorted(pattern.at_any_time.difference(sure - {pattern.start})):
        yield f"a condition on time is on {variable!r}, to which no required step leads"
    bound_anywhere = bound | {step.target for step in pattern.unless}
    conditions = {where.variable for where in pattern.where if where.variable is not None}
    for variable in sorted(conditions - bound_anywhere):
        yield f"a condition is on {variable!r}, which no step binds"


def _step_problems(step: Step, bound: set[str]) -> Iterator[str]:
    if step.optional and step.target in bound:
        yield f"an optional step leads to {step.target!r}, which is bound already"
    if step.source not in bound:
        yield f"a step leaves {step.source!r}, which no step before it binds"
    if not step.types:
        yield f"the step to {step.target!r} names no relation type"
    least, most = step.hops
    if not 1 <= least <= most <= MAX_HOPS:
        yield f"hops of the step to {step.target!r} must be 1 to {MAX_HOPS}, got {least} to {most}"
