"""Compiler from a pattern to one Cypher statement; every value is a parameter."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import Compare
from llama_retrieval_ext.graph.cypher_text import quoted, scope_parameters, sees_edge, sees_node
from llama_retrieval_ext.graph.elements import Direction
from llama_retrieval_ext.graph.rules.rule import Pattern, Step
from llama_retrieval_ext.query import Scope

_ARROWS: Final = {
    Direction.OUT: ("-", "->"),
    Direction.IN: ("<-", "-"),
    Direction.ANY: ("-", "-"),
}
_IS_LIST: Final = "{0} IS :: LIST<ANY> NOT NULL"
# Templates by operator, for property and parameter. A comparison with null is false.
_CONDITIONS: Final[Mapping[FilterOperator, str]] = {
    FilterOperator.EQ: "coalesce({0} = {1}, false)",
    FilterOperator.NE: "NOT coalesce({0} = {1}, false)",
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


def compiled(
    pattern: Pattern,
    *,
    seeds: Sequence[str] | None,
    context: Mapping[str, object],
    scope: Scope | None,
    limit: int,
) -> tuple[str, dict[str, Any]]:
    """Return the statement of a pattern and its parameters.

    Args:
        pattern: A pattern whose conditions on the context already hold.
        seeds: Allowed ids of the start node; None for every node.
        context: Values for conditions.
        scope: The visible rows; every node and edge of a match is in the scope.
        limit: Maximum number of rows.

    Returns:
        A statement whose rows have ``ids``, one per variable of the pattern (null for a missing
        optional one), and ``proof``, a list of edges per step, required steps first.

    Raises:
        ConfigurationError: A label, relation type or property has an invalid character.
    """
    return _Compilation(pattern, context, scope).statement(seeds, limit)


class _Compilation:
    """Names and parameters of one statement."""

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
        pattern = self.pattern
        start = self.names[pattern.start]
        required = [(f"p{at}", step) for at, step in enumerate(pattern.required)]
        optional = [(f"o{at}", step) for at, step in enumerate(pattern.optional)]
        paths = [f"({start}:__Node__)", *(self._path(path, step) for path, step in required)]
        sure = [pattern.start, *(step.target for step in pattern.required)]
        conditions = [c for name in dict.fromkeys(sure) for c in self._node_conditions(name)]
        conditions += [c for path, step in required for c in self._path_conditions(path, step)]
        conditions += [self._exclusion(at, step) for at, step in enumerate(pattern.unless)]
        if seeds is not None:
            self.parameters["seeds"] = list(dict.fromkeys(seeds))
            conditions.append(f"{start}.id IN $seeds")
        lines = [f"MATCH {', '.join(paths)}", _where(conditions)]
        for path, step in optional:
            lines.append(f"OPTIONAL MATCH {self._path(path, step)}")
            own = [*self._node_conditions(step.target), *self._path_conditions(path, step)]
            lines.append(_where(own))
        ids = ", ".join(f"{self.names[name]}.id" for name in pattern.variables)
        proof = ", ".join(_edges(path) for path, _ in (*required, *optional))
        self.parameters["row_limit"] = limit
        lines.append(f"RETURN DISTINCT [{ids}] AS ids, [{proof}] AS proof LIMIT $row_limit")
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
        for label in self.pattern.labels_of(name):
            yield f"{variable}:{quoted(label)}"
        for where in self.pattern.where_of(name):
            yield self._condition(variable, where.compare(self.context))

    def _path_conditions(self, path: str, step: Step) -> Iterable[str]:
        if step.hops != (1, 1):
            sees = sees_node("node", self.scope)
            yield f"all(node IN nodes({path}) WHERE node:__Node__ AND {sees})"
        if self.scope is not None:
            yield f"all(edge IN relationships({path}) WHERE {sees_edge('edge', self.scope)})"

    def _exclusion(self, at: int, step: Step) -> str:
        self.names.setdefault(step.target, f"u{at}")
        conditions = [
            *self._node_conditions(step.target),
            *self._path_conditions(f"x{at}", step),
        ]
        return f"NOT EXISTS {{ MATCH {self._path(f'x{at}', step)} {_where(conditions)} }}"

    def _condition(self, variable: str, compare: Compare) -> str:
        parameter = f"c{len(self.parameters)}"
        value = compare.value
        self.parameters[parameter] = list(value) if isinstance(value, tuple) else value
        text = _CONDITIONS[compare.operator]
        return text.format(f"{variable}.{quoted(compare.key)}", f"${parameter}")


def _where(conditions: Iterable[str]) -> str:
    kept = [condition for condition in dict.fromkeys(conditions) if condition != "true"]
    return f"WHERE {' AND '.join(kept)}" if kept else ""


def _edges(path: str) -> str:
    return (
        f"[edge IN relationships({path}) | "
        "[startNode(edge).id, type(edge), endNode(edge).id, properties(edge)]]"
    )
