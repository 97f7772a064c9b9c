"""Finds the matches of a pattern: by one Cypher statement, or by traversal of an adjacency."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError, RuleError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.neo4j_rows import edge_of
from llama_retrieval_ext.graph.protocols import AdjacencyGraph, CypherGraph
from llama_retrieval_ext.graph.rules.cypher import compiled
from llama_retrieval_ext.graph.rules.rule import Pattern, Step
from llama_retrieval_ext.query import Scope

MAX_MATCHES: Final = 10_000
# Edges that one traversal may look at.
MAX_EDGES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Match:
    """One way in which a pattern matches.

    Attributes:
        ids: Node of each of the pattern's variables, in their order; None for an optional one that
            is not there.
        proof: Edges of each required step, then of each optional one.
    """

    ids: tuple[str | None, ...]
    proof: tuple[tuple[Edge, ...], ...]

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: by nodes, then by edges; a node that is not there comes last."""
        nodes = tuple((id_ is None, id_ or "") for id_ in self.ids)
        return nodes, tuple(tuple(edge.id for edge in step) for step in self.proof)


def find_matches(
    graph: GraphBackend,
    pattern: Pattern,
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object],
    scope: Scope | None,
) -> Call[list[Match]]:
    """Return every match of a pattern, sorted.

    Args:
        graph: What it is matched against.
        pattern: What to look for.
        seeds: Ids that the start is one of; None for every node with its label.
        context: Of the query.
        scope: Who asks; every node and edge of a match is in it.

    Raises:
        RuleError: There are more than 10,000 matches, or a traversal goes on for too long.
        ConfigurationError: The graph knows neither Cypher nor traversal.
    """
    if (seeds is not None and not seeds) or not _context_holds(pattern, context):
        return _nothing()
    if isinstance(graph, CypherGraph):
        statement, parameters = compiled(
            pattern, seeds=seeds, context=context, scope=scope, limit=MAX_MATCHES + 1
        )
        return graph.read(statement, parameters).then(_from_rows)
    if isinstance(graph, AdjacencyGraph):
        return _traversal(graph, pattern, seeds, context, scope)
    raise ConfigurationError(
        f"{graph!r} can match no rules: it has neither read() for Cypher nor views()"
    )


def _traversal(
    graph: AdjacencyGraph,
    pattern: Pattern,
    seeds: Sequence[str] | None,
    context: Mapping[str, object],
    scope: Scope | None,
) -> Call[list[Match]]:
    def function() -> list[Match]:
        found: list[Match] = []
        budget = _Budget()
        for view in graph.views(scope):
            traversal = _Traversal(graph, view, pattern, context, budget)
            for match in traversal.matches(seeds):
                found.append(match)
                _check_number(found)
        return _sorted(found)

    return Call(function)


def _from_rows(rows: list[dict[str, Any]]) -> list[Match]:
    _check_number(rows)
    return _sorted(
        Match(
            tuple(row["ids"]),
            tuple(tuple(map(edge_of, step or ())) for step in row["proof"]),
        )
        for row in rows
    )


def _sorted(found: "Iterator[Match] | list[Match]") -> list[Match]:
    return sorted(dict.fromkeys(found), key=lambda match: match.order)


def _check_number(found: Sequence[object]) -> None:
    if len(found) > MAX_MATCHES:
        raise RuleError(
            f"a rule has more than {MAX_MATCHES} matches; bind it to a process, or add conditions"
        )


def _nothing() -> Call[list[Match]]:
    async def coroutine() -> list[Match]:
        return []

    return Call(list, coroutine)


def _context_holds(pattern: Pattern, context: Mapping[str, object]) -> bool:
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in context.items()}
    return all(
        matches(where.compare(context), values) for where in pattern.where if where.variable is None
    )


class _Budget:
    """Counts edges, and stops a traversal that looks at too many."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_EDGES

    def spend(self, edges: int) -> None:
        self.left -= edges + 1
        if self.left < 0:
            raise RuleError(
                f"a rule looks at more than {MAX_EDGES} edges; bind it to a process, or allow "
                "fewer hops"
            )


_Ways: TypeAlias = Iterator[tuple[str, tuple[Edge, ...]]]


class _Traversal:
    """A depth-first search for one pattern in one partition."""

    def __init__(
        self,
        graph: AdjacencyGraph,
        view: Adjacency,
        pattern: Pattern,
        context: Mapping[str, object],
        budget: _Budget,
    ) -> None:
        self.graph, self.view, self.pattern, self.budget = graph, view, pattern, budget
        self.labels = {name: pattern.labels_of(name) for name in _all_variables(pattern)}
        self.conditions: dict[str, list[Compare]] = {
            name: [where.compare(context) for where in pattern.where_of(name)]
            for name in self.labels
        }
        self.required, self.optional = pattern.required, pattern.optional
        self.hops = {
            step: Hop(step.direction, frozenset(step.types))
            for step in (*pattern.steps, *pattern.unless)
        }

    def matches(self, seeds: Sequence[str] | None) -> Iterator[Match]:
        """Yield every match, each once."""
        labels = self.labels[self.pattern.start]
        if seeds is None:
            starts = sorted(self.view.ids(labels[0] if labels else None))
        else:
            starts = [id_ for id_ in dict.fromkeys(seeds) if id_ in self.view.nodes]
        for start in starts:
            if self._fits(self.pattern.start, start):
                yield from self._required(0, {self.pattern.start: start}, ())

    def _required(
        self, at: int, bound: dict[str, str | None], proof: tuple[tuple[Edge, ...], ...]
    ) -> Iterator[Match]:
        if at == len(self.required):
            if not any(self._is_possible(step, bound) for step in self.pattern.unless):
                yield from self._optional(0, bound, proof)
            return
        step = self.required[at]
        used = frozenset(edge.id for path in proof for edge in path)
        for node_id, path in self._ways(step, bound, used):
            yield from self._required(at + 1, {**bound, step.target: node_id}, (*proof, path))

    def _optional(
        self, at: int, bound: dict[str, str | None], proof: tuple[tuple[Edge, ...], ...]
    ) -> Iterator[Match]:
        if at == len(self.optional):
            yield Match(tuple(bound[name] for name in self.pattern.variables), proof)
            return
        step = self.optional[at]
        none = True
        for node_id, path in self._ways(step, bound, frozenset()):
            none = False
            yield from self._optional(at + 1, {**bound, step.target: node_id}, (*proof, path))
        if none:
            yield from self._optional(at + 1, {**bound, step.target: None}, (*proof, ()))

    def _is_possible(self, step: Step, bound: dict[str, str | None]) -> bool:
        return next(self._ways(step, bound, frozenset()), None) is not None

    def _ways(
        self, step: Step, bound: Mapping[str, str | None], used: frozenset[tuple[str, str, str]]
    ) -> _Ways:
        """Yield the ends of a step and the edges to them; no edge is used twice."""
        source, known = bound[step.source], bound.get(step.target)
        if source is None:
            return
        for node_id, path in self._trails(step, source, (), used):
            if known is not None and node_id != known:
                continue
            if known is not None or self._fits(step.target, node_id):
                yield node_id, path

    def _trails(
        self,
        step: Step,
        node_id: str,
        path: tuple[Edge, ...],
        used: frozenset[tuple[str, str, str]],
    ) -> _Ways:
        least, most = step.hops
        edges = self.view.neighbours((node_id,), self.hops[step]).get(node_id, ())
        self.budget.spend(len(edges))
        for edge in edges:
            if edge.id in used or edge.other(node_id) not in self.view.nodes:
                continue
            longer, other = (*path, edge), edge.other(node_id)
            if len(longer) >= least:
                yield other, longer
            if len(longer) < most:
                yield from self._trails(step, other, longer, used | {edge.id})

    def _fits(self, variable: str, node_id: str) -> bool:
        label = self.view.nodes[node_id].label
        if any(label != expected for expected in self.labels[variable]):
            return False
        conditions = self.conditions[variable]
        if not conditions:
            return True
        properties = stored_properties(self.graph.node(self.view, node_id))
        return all(matches(condition, properties) for condition in conditions)


def stored_properties(node: GraphNode) -> dict[str, object]:
    """Return what conditions and texts see of a node: its properties, id, and name or text."""
    own = {"name": node.name} if node.text is None else {"text": node.text}
    return {**node.properties, "id": node.id, **own}


def _all_variables(pattern: Pattern) -> tuple[str, ...]:
    return (*pattern.variables, *(step.target for step in pattern.unless))
