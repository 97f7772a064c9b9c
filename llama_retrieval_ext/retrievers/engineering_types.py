"""Engineering types of processes: edges ``APPLIES_TO``, or the property ``engineering_types``."""

from collections.abc import Collection, Sequence
from typing import Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Direction, GraphNode, Hop
from llama_retrieval_ext.graph.rules.matching import plan_matches
from llama_retrieval_ext.graph.rules.rule import Pattern, Where
from llama_retrieval_ext.scope import Scope

APPLIES_TO: Final = "APPLIES_TO"
TYPES_KEY: Final = "engineering_types"


def processes_of_type(
    graph: GraphBackend, name: str, type_ids: Sequence[str], *, scope: Scope | None
) -> Plan[list[str]]:
    """Return the ids of the processes that a graph links to an engineering type, sorted.

    Properties are read only if no edge leads to the type: that reads every node.

    Args:
        graph: The graph.
        name: Name of the type, as in the property.
        type_ids: Ids of the nodes with this name.
        scope: The rows that are visible.
    """
    hop = Hop(Direction.IN, frozenset({APPLIES_TO}))
    edges = yield graph.plan_neighbours(type_ids, hop, scope=scope)
    ids = {edge.source for group in edges.values() for edge in group}
    if not ids:
        where = Where("process", TYPES_KEY, FilterOperator.CONTAINS, name)
        pattern = Pattern("process", where=(where,))
        (matches,) = yield from plan_matches(graph, [pattern], seeds=None, context={}, scope=scope)
        ids = {match.ids[0] or "" for match in matches}
    return sorted(ids)


def of_type_or_any(
    graph: GraphBackend,
    ids: Sequence[str],
    name: str,
    type_ids: Collection[str],
    *,
    scope: Scope | None,
) -> Plan[set[str]]:
    """Return the ids of the nodes that belong to an engineering type, or to none in particular."""
    nodes = yield graph.plan_nodes(ids, scope=scope)
    hop = Hop(Direction.OUT, frozenset({APPLIES_TO}))
    edges = yield graph.plan_neighbours(ids, hop, scope=scope)
    kept: set[str] = set()
    for id_, node in nodes.items():
        linked = {edge.target for edge in edges.get(id_, ())}
        listed = _listed(node)
        if linked & set(type_ids) or name in listed or not (linked or listed):
            kept.add(id_)
    return kept


def _listed(node: GraphNode) -> Sequence[object]:
    value = node.properties.get(TYPES_KEY) or ()
    return value if isinstance(value, list | tuple) else (value,)


def types_in(graph: GraphBackend, *, scope: Scope | None) -> Plan[list[str]]:
    """Return the names of the engineering types of a graph; this reads all of it."""
    contents = yield graph.plan_contents(scope=scope)
    targets = {edge.target for edge in contents.edges if edge.type == APPLIES_TO}
    names = {node.name for node in contents.nodes if node.id in targets}
    return sorted(names | {str(value) for node in contents.nodes for value in _listed(node)})
