"""Pattern matching by one Cypher statement, or by traversal of an adjacency."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from llama_retrieval_ext.errors import ConfigurationError, RuleError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.filters import Compare, matches
from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.backend import AdjacencyGraph, CypherGraph, GraphBackend, immediate
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.neo4j_rows import edge_of
from llama_retrieval_ext.graph.rules.cypher import compiled
from llama_retrieval_ext.graph.rules.rule import Pattern, Step
from llama_retrieval_ext.query import Scope

MAX_MATCHES: Final = 10_000
# Maximum number of edges that one traversal visits.
MAX_EDGES: Final = 200_000

_EdgeIds: TypeAlias = frozenset[tuple[str, str, str]]
_Proof: TypeAlias = tuple[tuple[Edge, ...], ...]
_Bound: TypeAlias = Mapping[str, str | None]
_Ways: TypeAlias = Iterator[tuple[str, tuple[Edge, ...]]]


@dataclass(frozen=True, slots=True)
class Match:
    """One match of a pattern.

    Attributes:
        ids: Node id of each variable of the pattern, in their order; None for a missing optional
            one.
        proof: Edges of each required step, then of each optional one.
    """

    ids: tuple[str | None, ...]
    proof: _Proof

    @property
    def order(self) -> tuple[object, ...]:
        """Return the sort key: nodes, then edges; a missing node comes last."""
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
        graph: The graph to search.
        pattern: The pattern to search for.
        seeds: Allowed ids of the start node; None for every node with its label.
        context: Values of the query, for conditions.
        scope: The visible rows; every node and edge of a match is in the scope.

    Raises:
        RuleError: There are more than 10,000 matches, or a traversal visits too many edges.
        ConfigurationError: The graph supports neither Cypher nor traversal.
    """
    if (seeds is not None and not seeds) or not _context_holds(pattern, context):
        return immediate(list)
    if isinstance(graph, AdjacencyGraph):
        traversal = _Traversal(graph, pattern, context)
        return Call(lambda: _sorted(traversal.matches(seeds, scope)))
    if isinstance(graph, CypherGraph):
        statement, parameters = compiled(
            pattern, seeds=seeds, context=context, scope=scope, limit=MAX_MATCHES + 1
        )
        return graph.read(statement, parameters).then(_from_rows)
    raise ConfigurationError(
        f"{graph!r} can match no rules: it has neither read() for Cypher nor views()"
    )


def _from_rows(rows: list[dict[str, Any]]) -> list[Match]:
    return _sorted(
        Match(tuple(row["ids"]), tuple(tuple(map(edge_of, step or ())) for step in row["proof"]))
        for row in rows
    )


def _sorted(found: Iterable[Match]) -> list[Match]:
    kept = list(islice(found, MAX_MATCHES + 1))
    if len(kept) > MAX_MATCHES:
        raise RuleError(
            f"a rule has more than {MAX_MATCHES} matches; bind it to a process, or add conditions"
        )
    return sorted(dict.fromkeys(kept), key=lambda match: match.order)


def _context_holds(pattern: Pattern, context: Mapping[str, object]) -> bool:
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in context.items()}
    return all(
        matches(where.compare(context), values) for where in pattern.where if where.variable is None
    )


class _Traversal:
    """Depth-first search for one pattern, one partition after the other."""

    def __init__(
        self, graph: AdjacencyGraph, pattern: Pattern, context: Mapping[str, object]
    ) -> None:
        self.graph, self.pattern = graph, pattern
        self.view = Adjacency()
        self.edges_left = MAX_EDGES
        self.conditions: dict[str | None, list[Compare]] = {}
        for where in pattern.where:
            self.conditions.setdefault(where.variable, []).append(where.compare(context))

    def matches(self, seeds: Sequence[str] | None, scope: Scope | None) -> Iterator[Match]:
        """Yield every match, each once."""
        start = self.pattern.start
        label = next(iter(self.pattern.labels_of(start)), None)
        for view in self.graph.views(scope):
            self.view = view
            starts = sorted(view.ids(label)) if seeds is None else dict.fromkeys(seeds)
            for node_id in starts:
                if node_id in view.nodes and self._fits(start, node_id):
                    yield from self._required(0, {start: node_id}, ())

    def _required(self, at: int, bound: _Bound, proof: _Proof) -> Iterator[Match]:
        if at == len(self.pattern.required):
            if not any(self._is_possible(step, bound) for step in self.pattern.unless):
                yield from self._optional(0, bound, proof)
            return
        step = self.pattern.required[at]
        used = frozenset(edge.id for path in proof for edge in path)
        for node_id, path in self._ways(step, bound, used):
            yield from self._required(at + 1, {**bound, step.target: node_id}, (*proof, path))

    def _optional(self, at: int, bound: _Bound, proof: _Proof) -> Iterator[Match]:
        if at == len(self.pattern.optional):
            yield Match(tuple(bound[name] for name in self.pattern.variables), proof)
            return
        step = self.pattern.optional[at]
        ways: list[tuple[str | None, tuple[Edge, ...]]] = [*self._ways(step, bound, frozenset())]
        for node_id, path in ways or [(None, ())]:
            yield from self._optional(at + 1, {**bound, step.target: node_id}, (*proof, path))

    def _is_possible(self, step: Step, bound: _Bound) -> bool:
        return next(self._ways(step, bound, frozenset()), None) is not None

    def _ways(self, step: Step, bound: _Bound, used: _EdgeIds) -> _Ways:
        """Yield the ends of a step and the edges to them; no edge is used twice."""
        source, known = bound[step.source], bound.get(step.target)
        if source is None:
            return
        hop = Hop(step.direction, frozenset(step.types))
        for node_id, path in self._trails(step, hop, source, (), used):
            if node_id == known or (known is None and self._fits(step.target, node_id)):
                yield node_id, path

    def _trails(
        self, step: Step, hop: Hop, node_id: str, path: tuple[Edge, ...], used: _EdgeIds
    ) -> _Ways:
        least, most = step.hops
        edges = self.view.neighbours((node_id,), hop).get(node_id, ())
        self.edges_left -= len(edges) + 1
        if self.edges_left < 0:
            raise RuleError(
                f"a rule looks at more than {MAX_EDGES} edges; bind it to a process, or allow "
                "fewer hops"
            )
        for edge in edges:
            other = edge.other(node_id)
            if edge.id in used or other not in self.view.nodes:
                continue
            longer = (*path, edge)
            if len(longer) >= least:
                yield other, longer
            if len(longer) < most:
                yield from self._trails(step, hop, other, longer, used | {edge.id})

    def _fits(self, variable: str, node_id: str) -> bool:
        label = self.view.nodes[node_id].label
        if any(label != expected for expected in self.pattern.labels_of(variable)):
            return False
        conditions = self.conditions.get(variable)
        if not conditions:
            return True
        properties = stored_properties(self.graph.node(self.view, node_id))
        return all(matches(condition, properties) for condition in conditions)


def stored_properties(node: GraphNode) -> dict[str, object]:
    """Return the values of a node for conditions and texts: properties, id, name or text."""
    own = {"name": node.name} if node.text is None else {"text": node.text}
    return {**node.properties, "id": node.id, **own}
