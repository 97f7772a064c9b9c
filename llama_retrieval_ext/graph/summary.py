"""`summary`: counts of labels, and of relation types between labels."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.graph.backend import AdjacencyGraph, CypherGraph, GraphBackend
from llama_retrieval_ext.graph.cypher_text import scope_parameters, sees_edge, sees_node
from llama_retrieval_ext.query import Scope

_OWN_LABEL: Final = (
    "coalesce(head([l IN labels({0}) WHERE NOT l IN ['__Node__', '__Entity__']]), 'entity')"
)


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """Counts of the nodes and edges that a scope sees.

    Attributes:
        labels: Number of nodes with each label, descending.
        relations: Number of edges by source label, relation type and target label.
    """

    labels: Mapping[str, int] = field(default_factory=dict)
    relations: Mapping[tuple[str, str, str], int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(self.labels.values())

    @property
    def edges(self) -> int:
        """Number of edges."""
        return sum(self.relations.values())


def summary(graph: GraphBackend, *, scope: Scope | None) -> Plan[GraphSummary]:
    """Count the labels and relations of a graph.

    Args:
        graph: An embedded graph or a Neo4j graph.
        scope: The rows to count.

    Returns:
        A plan for the execution drivers ``run`` and ``arun``.

    Raises:
        ConfigurationError: The graph is of another type.
    """
    if isinstance(graph, CypherGraph):
        return (yield from _by_cypher(graph, scope))
    if isinstance(graph, AdjacencyGraph):
        own = graph
        counted: GraphSummary = yield Call(lambda: _by_traversal(own, scope))
        return counted
    raise ConfigurationError(
        f"{graph!r} cannot be counted: it has neither read() for Cypher nor views()"
    )


def _by_traversal(graph: AdjacencyGraph, scope: Scope | None) -> GraphSummary:
    labels: Counter[str] = Counter()
    relations: Counter[tuple[str, str, str]] = Counter()
    for view in graph.views(scope):
        labels.update(entry.label for entry in list(view.nodes.values()))
        for edge in view.outgoing():
            ends = view.nodes.get(edge.source), view.nodes.get(edge.target)
            if ends[0] is not None and ends[1] is not None:
                relations[(ends[0].label, edge.type, ends[1].label)] += 1
    return _ordered(labels, relations)


def _by_cypher(graph: CypherGraph, scope: Scope | None) -> Plan[GraphSummary]:
    parameters = scope_parameters(scope)
    own = _OWN_LABEL.format
    nodes: list[dict[str, Any]] = yield graph.read(
        f"MATCH (n:__Node__) WHERE {sees_node('n', scope)} "
        f"RETURN {own('n')} AS label, count(*) AS count",
        parameters,
    )
    edges: list[dict[str, Any]] = yield graph.read(
        f"MATCH (n:__Node__)-[r]->(m:__Node__) WHERE {sees_node('n', scope)} "
        f"AND {sees_edge('r', scope)} AND {sees_node('m', scope)} "
        f"RETURN {own('n')} AS source, type(r) AS type, {own('m')} AS target, count(*) AS count",
        parameters,
    )
    labels = Counter({row["label"]: row["count"] for row in nodes})
    relations = Counter(
        {(row["source"], row["type"], row["target"]): row["count"] for row in edges}
    )
    return _ordered(labels, relations)


def _ordered(labels: "Counter[str]", relations: "Counter[tuple[str, str, str]]") -> GraphSummary:
    return GraphSummary(
        dict(sorted(labels.items(), key=lambda each: (-each[1], each[0]))),
        dict(sorted(relations.items(), key=lambda each: (-each[1], each[0]))),
    )
