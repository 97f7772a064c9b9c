"""Pattern matching by one Cypher statement, or by traversal of an adjacency."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import Any, Final, TypeAlias

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import RuleError
from llama_retrieval_ext.execution.context import call
from llama_retrieval_ext.execution.plan import Call, Plan, Task, Together
from llama_retrieval_ext.filters import (
    EQUALITY_OPERATORS,
    Compare,
    compares_dates,
    in_all_spellings,
    matches,
    meanings,
)
from llama_retrieval_ext.graph.adjacency import Adjacency, LoadedGraph
from llama_retrieval_ext.graph.backend import (
    AdjacencyGraph,
    CypherGraph,
    GraphBackend,
    answers_cypher,
)
from llama_retrieval_ext.graph.cypher import (
    has_label,
    nodes_by_id,
    own_id,
    quoted,
    scope_parameters,
    sees_edge,
    sees_node,
)
from llama_retrieval_ext.graph.elements import Direction, Edge, EdgeId, GraphNode, Hop, Partition
from llama_retrieval_ext.graph.neo4j_rows import edge_of
from llama_retrieval_ext.graph.rules.rule import Match, Pattern, Proof, Step
from llama_retrieval_ext.graph.validity import is_dated_entity, period_of
from llama_retrieval_ext.scope import ANY_TIME, KB_KEY, TENANT_KEY, Scope, at_time

MAX_MATCHES: Final = 10_000
# Maximum number of edges that one traversal visits.
MAX_EDGES: Final = 200_000

_Bound: TypeAlias = Mapping[str, str | None]
_Ways: TypeAlias = Iterator[tuple[str, tuple[Edge, ...]]]


def plan_matches(
    graph: GraphBackend,
    patterns: Sequence[Pattern],
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object],
    scope: Scope | None,
) -> Plan[list[list[Match]]]:
    """Return the matches of each pattern in a scope, sorted.

    They are searched in memory, or by one request a pattern, which run concurrently.

    Args:
        graph: The graph.
        patterns: The patterns.
        seeds: Allowed ids of the start node; None for any node.
        context: Values of the query, for conditions.
        scope: The rows that are visible.

    Raises:
        RuleError: There are more than 10,000 matches, or a traversal visits too many edges.
    """
    matchable = yield from plan_matchable(
        graph, patterns, seeds=seeds, context=context, scope=scope
    )
    find = partial(find_matches, matchable, seeds=seeds, context=context, scope=scope)
    if isinstance(matchable, AdjacencyGraph):
        matches: list[list[Match]] = yield Call(lambda: [find(p).function() for p in patterns])
        return matches
    outcomes = yield Together([Task("rule", call(find(pattern))) for pattern in patterns])
    return [outcome.result() for outcome in outcomes]


def find_matches(
    graph: CypherGraph | AdjacencyGraph,
    pattern: Pattern,
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object],
    scope: Scope | None,
) -> Call[list[Match]]:
    """Return every match of a pattern in a scope, sorted.

    The start node is one of the seeds, or any node for None.

    Raises:
        RuleError: There are more than 10,000 matches, or a traversal visits too many edges.
    """
    if (seeds is not None and not seeds) or not _context_holds(pattern, context):
        return Call(list)
    if isinstance(graph, AdjacencyGraph):
        traversal = _Traversal(graph, pattern, context)
        return Call(lambda: _sorted(traversal.matches(seeds, scope)))
    statement = _Compilation(pattern, context, scope).statement(seeds, MAX_MATCHES + 1)
    return graph.plan_read(*statement).then(_from_rows)


def plan_matchable(
    graph: GraphBackend,
    patterns: Sequence[Pattern],
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object],
    scope: Scope | None,
) -> Plan[CypherGraph | AdjacencyGraph]:
    """Return the graph if it can match patterns, else the rows that these reach, in memory.

    Cypher would compare dates as text.
    """
    if isinstance(graph, AdjacencyGraph):
        return graph
    possible = [pattern for pattern in patterns if _context_holds(pattern, context)]
    on_nodes = (w.compare(context) for pattern in possible for w in pattern.where if w.variable)
    compares_times = any(pattern.times for pattern in possible) or any(
        map(compares_dates, on_nodes)
    )
    rows = graph  # as for type checkers it is one that answers Cypher, below
    if not compares_times and answers_cypher(graph, scope) and not (yield graph.plan_has_dates()):
        return graph
    # The conditions on time, and the traversal, choose among all facts of edges.
    at_any_time = at_time(scope, ANY_TIME, None)
    ids = None if seeds is None else (yield from _reached(rows, possible, seeds, at_any_time))
    contents = yield rows.plan_contents(ids, scope=at_any_time)
    if any(map(is_dated_entity, contents.nodes)):
        contents = contents._replace(nodes=(yield rows.plan_contents(ids, scope=scope)).nodes)
    return LoadedGraph(contents)


def _reached(
    graph: GraphBackend, patterns: Sequence[Pattern], seeds: Sequence[str], scope: Scope | None
) -> Plan[set[str]]:
    """Return the ids that the steps of patterns lead to; at most one request per hop of a step."""
    others: dict[Hop, dict[str, set[str]]] = defaultdict(dict)
    reached = set(seeds)
    for pattern in patterns:
        ends = {pattern.start: set(seeds)}
        for step in (*pattern.required, *pattern.optional, *pattern.unless):
            hop = Hop(step.direction, frozenset(step.types))
            ends_of, frontier, ends_here = others[hop], ends[step.source], set[str]()
            for _ in range(step.hops[1]):
                new = frontier - ends_of.keys()
                edges = (yield graph.plan_neighbours(sorted(new), hop, scope=scope)) if new else {}
                ends_of.update({id_: {e.other(id_) for e in edges.get(id_, ())} for id_ in new})
                frontier = set().union(*(ends_of[id_] for id_ in frontier))
                ends_here |= frontier
            # An exclusion between bound nodes does not narrow these for the other exclusions.
            if step.target not in ends or step in pattern.required:
                ends[step.target] = ends_here & ends.get(step.target, ends_here)
            reached |= ends_here
    return reached


def _from_rows(rows: list[dict[str, Any]]) -> list[Match]:
    return _sorted(
        Match(
            tuple(row["ids"]),
            tuple(tuple(map(edge_of, step or ())) for step in row["proof"]),
            Partition.of(row["home"]),
        )
        for row in rows
    )


def _sorted(matches_: Iterable[Match]) -> list[Match]:
    kept = list(islice(matches_, MAX_MATCHES + 1))
    if len(kept) > MAX_MATCHES:
        raise RuleError(
            f"a rule has more than {MAX_MATCHES} matches; bind it to a process, or add conditions"
        )
    return sorted(dict.fromkeys(kept), key=attrgetter("order"))


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
        self.view: Adjacency  # the rows of a partition
        self.at_any_time: Adjacency  # those of any time, for patterns that compare times
        self.edges_left = MAX_EDGES
        self.labels: dict[str, set[str]] = defaultdict(set)
        for variable, label in pattern.labels:
            self.labels[variable].add(label)
        self.conditions: dict[str | None, list[Compare]] = {}
        for where in pattern.where:
            self.conditions.setdefault(where.variable, []).append(where.compare(context))

    def matches(self, seeds: Sequence[str] | None, scope: Scope | None) -> Iterator[Match]:
        """Yield every match, each once."""
        start = self.pattern.start
        for view in self.graph.views(scope):
            self.view = view
            self.at_any_time = view.at_any_time() if self.pattern.times else view
            starts = sorted(view.nodes) if seeds is None else dict.fromkeys(seeds)
            for node_id in starts:
                if self._fits(start, node_id):
                    yield from self._required(0, {start: node_id}, ())

    def _required(self, at: int, bound: _Bound, proof: Proof) -> Iterator[Match]:
        if at == len(self.pattern.required):
            if self.pattern.times and not _times_hold(self.pattern, proof):
                return
            for step in self.pattern.unless:
                if next(self._ways(step, bound, frozenset()), None) is not None:
                    return
            yield from self._optional(0, bound, proof)
            return
        step = self.pattern.required[at]
        used = frozenset(map(attrgetter("id"), chain.from_iterable(proof)))
        for node_id, path in self._ways(step, bound, used):
            yield from self._required(at + 1, {**bound, step.target: node_id}, (*proof, path))

    def _optional(self, at: int, bound: _Bound, proof: Proof) -> Iterator[Match]:
        if at == len(self.pattern.optional):
            start = self.graph.node(self.view, bound[self.pattern.start] or "")
            home = Partition() if start is None else start.partition
            yield Match(tuple(map(bound.__getitem__, self.pattern.variables)), proof, home)
            return
        step = self.pattern.optional[at]
        ways: list[tuple[str | None, tuple[Edge, ...]]] = [*self._ways(step, bound, frozenset())]
        for node_id, path in ways or [(None, ())]:
            yield from self._optional(at + 1, {**bound, step.target: node_id}, (*proof, path))

    def _ways(self, step: Step, bound: _Bound, used: frozenset[EdgeId]) -> _Ways:
        """Yield the ends of a step and the edges to them; no edge is used twice."""
        source, bound_target = bound[step.source], bound.get(step.target)
        if source is None:
            return
        hop = Hop(step.direction, frozenset(step.types))
        for node_id, path in self._trails(step, hop, source, (), used):
            if node_id == bound_target or (
                bound_target is None and self._fits(step.target, node_id)
            ):
                yield node_id, path

    def _trails(
        self, step: Step, hop: Hop, node_id: str, path: tuple[Edge, ...], used: frozenset[EdgeId]
    ) -> _Ways:
        least, most = step.hops
        is_timed = step.target in self.pattern.at_any_time
        view = self.at_any_time if is_timed else self.view
        edges = view.neighbours((node_id,), hop).get(node_id, ())
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
        entry = self.view.nodes.get(node_id)
        if entry is None or self.labels[variable].difference((entry.label,)):
            return False
        conditions = self.conditions.get(variable)
        if not conditions:
            return True
        node = self.graph.node(self.view, node_id)
        if node is None:
            return False
        properties = stored_properties(node)
        return all(matches(condition, properties) for condition in conditions)


def _times_hold(pattern: Pattern, proof: Proof) -> bool:
    """Return whether the conditions on time hold for the edges of each required step."""
    periods = {
        step.target: (
            max((period_of(edge).start for edge in path), default=-inf),
            min((period_of(edge).end for edge in path), default=inf),
        )
        for step, path in zip(pattern.required, proof, strict=False)
        if step.target in pattern.at_any_time
    }
    for time in pattern.times:
        if isinstance(time.other, str):
            other = periods[time.other]
        else:
            start, end = map(instant, time.other)
            other = (-inf if start is None else start, inf if end is None else end)
        if not time.timing.holds(periods[time.variable], other):
            return False
    return True


def stored_properties(node: GraphNode) -> dict[str, object]:
    """Return the values of a node for conditions and texts: properties, id, name or text."""
    content = {"name": node.name} if node.text is None else {"text": node.text}
    return {**node.properties, "id": node.id, **content}


_ARROWS: Final = {Direction.OUT: ("-", "->"), Direction.IN: ("<-", "-"), Direction.ANY: ("-", "-")}
_IS_LIST: Final = "{0} IS :: LIST<ANY> NOT NULL"
# Templates by operator, for property and parameter. A comparison with null is false.
_CONDITIONS: Final[Mapping[FilterOperator, str]] = {
    FilterOperator.EQ: "coalesce({0} IN {1}, false)",
    FilterOperator.NE: "NOT coalesce({0} IN {1}, false)",
    FilterOperator.GT: "coalesce({0} > {1}, false)",
    FilterOperator.GTE: "coalesce({0} >= {1}, false)",
    FilterOperator.LT: "coalesce({0} < {1}, false)",
    FilterOperator.LTE: "coalesce({0} <= {1}, false)",
    FilterOperator.IN: "coalesce({0} IN {1}, false)",
    FilterOperator.NIN: "NOT coalesce({0} IN {1}, false)",
    FilterOperator.CONTAINS: f"CASE WHEN {_IS_LIST} THEN {{1}} IN {{0}} ELSE false END",
    FilterOperator.ANY: (
        f"CASE WHEN {_IS_LIST} THEN any(item IN {{0}} WHERE item IN {{1}}) ELSE false END"
    ),
    FilterOperator.ALL: (
        f"CASE WHEN {_IS_LIST} THEN all(item IN {{1}} WHERE item IN {{0}}) ELSE false END"
    ),
    FilterOperator.TEXT_MATCH: (
        "CASE WHEN {0} IS :: STRING NOT NULL THEN {0} CONTAINS {1} ELSE false END"
    ),
    FilterOperator.TEXT_MATCH_INSENSITIVE: (
        "CASE WHEN {0} IS :: STRING NOT NULL THEN toLower({0}) CONTAINS toLower({1}) ELSE false END"
    ),
    FilterOperator.IS_EMPTY: (
        f"({{0}} IS NULL OR CASE WHEN {_IS_LIST} THEN size({{0}}) = 0 ELSE false END)"
    ),
}


class _Compilation:
    """Names and parameters of one statement; every value is a parameter."""

    def __init__(
        self, pattern: Pattern, context: Mapping[str, object], scope: Scope | None
    ) -> None:
        self.pattern = pattern
        self.context = context
        self.scope = scope
        self.parameters: dict[str, Any] = scope_parameters(scope)
        # Generated names: words of a rule are in the statement only in quotes.
        self.names = {name: f"v{at}" for at, name in enumerate(pattern.variables)}

    def statement(self, seeds: Sequence[str] | None, limit: int) -> tuple[str, dict[str, Any]]:
        """Return the statement of a pattern, whose conditions on the context hold, and parameters.

        Its rows have ``ids``, one per variable of the pattern (null for a missing optional one),
        ``proof``, a list of edges per step, required steps first, and ``home``, the partition.
        """
        pattern = self.pattern
        start = self.names[pattern.start]
        required = [(f"p{at}", step) for at, step in enumerate(pattern.required)]
        optional = [(f"o{at}", step) for at, step in enumerate(pattern.optional)]
        paths = [f"({start}:__Node__)", *(self._path(path, step) for path, step in required)]
        sure = [pattern.start, *(step.target for step in pattern.required)]
        conditions = [c for name in dict.fromkeys(sure) for c in self._node_conditions(name)]
        conditions += [c for path, step in required for c in self._path_conditions(path, step)]
        for at, step in enumerate(pattern.unless):
            self.names.setdefault(step.target, f"u{at}")
            excluded = [*self._node_conditions(step.target), *self._path_conditions(f"x{at}", step)]
            path = self._path(f"x{at}", step)
            conditions.append(f"NOT EXISTS {{ MATCH {path} {_where(excluded)} }}")
        lines: list[str] = []
        if seeds is not None:
            self.parameters["seeds"] = list(dict.fromkeys(seeds))
            lines.append(nodes_by_id(start, "$seeds"))
        lines += [f"MATCH {', '.join(paths)}", _where(conditions)]
        for path, step in optional:
            lines.append(f"OPTIONAL MATCH {self._path(path, step)}")
            further = [*self._node_conditions(step.target), *self._path_conditions(path, step)]
            lines.append(_where(further))
        ids = ", ".join(own_id(self.names[name]) for name in pattern.variables)
        first, last = own_id("startNode(edge)"), own_id("endNode(edge)")
        edge = f"[{first}, type(edge), {last}, properties(edge)]"
        named_paths = [path for path, _ in (*required, *optional)]
        proof = ", ".join(f"[edge IN relationships({path}) | {edge}]" for path in named_paths)
        self.parameters["row_limit"] = limit
        home = f"{start} {{.{TENANT_KEY}, .{KB_KEY}}}"
        lines.append(
            f"RETURN DISTINCT [{ids}] AS ids, [{proof}] AS proof, {home} AS home LIMIT $row_limit"
        )
        return "\n".join(line for line in lines if line), self.parameters

    def _path(self, path: str, step: Step) -> str:
        left, right = _ARROWS[step.direction]
        types = "|".join(map(quoted, step.types))
        least, most = step.hops
        # Bounds cannot be parameters.
        hops = "" if step.hops == (1, 1) else f"*{int(least)}..{int(most)}"
        ends = self.names[step.source], self.names[step.target]
        return f"{path} = ({ends[0]}){left}[:{types}{hops}]{right}({ends[1]})"

    def _node_conditions(self, name: str) -> Iterable[str]:
        variable = self.names[name]
        yield f"{variable}:__Node__"
        yield sees_node(variable, self.scope)
        for labelled, label in self.pattern.labels:
            if labelled == name:
                yield has_label(variable, label)
        for where in self.pattern.where:
            if where.variable == name:
                yield self._condition(variable, where.compare(self.context))

    def _path_conditions(self, path: str, step: Step) -> Iterable[str]:
        if step.hops != (1, 1):
            sees = sees_node("node", self.scope)
            yield f"all(node IN nodes({path}) WHERE node:__Node__ AND {sees})"
        if self.scope is not None:
            yield f"all(edge IN relationships({path}) WHERE {sees_edge('edge', self.scope)})"

    def _condition(self, variable: str, compare: Compare) -> str:
        stored = own_id(variable) if compare.key == "id" else f"{variable}.{quoted(compare.key)}"
        parts: list[str] = []
        for part in in_all_spellings(compare):
            name, value = f"c{len(self.parameters)}", part.value
            if part.operator in EQUALITY_OPERATORS:
                value = (*meanings(value if isinstance(value, tuple) else (value,)),)  # type: ignore[arg-type]
            self.parameters[name] = [*value] if isinstance(value, tuple) else value
            parts.append(_CONDITIONS[part.operator].format(stored, f"${name}"))
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


def _where(conditions: Iterable[str]) -> str:
    kept = [condition for condition in dict.fromkeys(conditions) if condition != "true"]
    return f"WHERE {' AND '.join(kept)}" if kept else ""
