"""`GraphBackend`, the adapter around a property graph.

Every row of a graph, node or edge, carries its tenant and knowledge base in its properties, as the
nodes of a vector store do. A read takes a `Scope` and sees only rows in it, so a path never
passes a row outside. An edge is visible if the edge and both of its ends are in the scope; one
that names neither a tenant nor a knowledge base is where its ends are.

The order of results is part of the contract: edges of a node come by weight, heaviest first, then
by the id of the other end, the type, and the direction. So a fan-out limit keeps the same edges on
every engine.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self, TypeGuard, TypeVar, runtime_checkable

from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.graph.adjacency import Adjacency, LoadedGraph
from llama_retrieval_ext.graph.cypher import has_principals, scope_parameters, sees_edge, sees_node
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop
from llama_retrieval_ext.scope import Scope

T = TypeVar("T")
ANY_HOP: Final = Hop()


class GraphBackend(ABC):
    """Read interface of every graph.

    `nodes`, `neighbours`, `contents` and `names` read, and have async twins (`anodes`, …). An
    engine implements the methods ``plan_…`` with the same arguments: each returns a `Call`, which
    a plan yields and its driver runs in a thread or on the loop.

    Attributes:
        engine: Name of the engine.
        version: Number that changes after every write through this object.
        functional: Relations that have one value at a time.
    """

    engine: ClassVar[str]
    version: int
    functional: frozenset[str] = frozenset()

    @abstractmethod
    def plan_nodes(
        self, ids: Sequence[str], *, scope: Scope | None = None
    ) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id; an empty list gives no nodes.

        If several visible partitions have an id, the first by name wins.
        """

    @abstractmethod
    def plan_neighbours(
        self, frontier: Sequence[str], hop: Hop = ANY_HOP, *, scope: Scope | None = None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered.

        The result has the order of the frontier; a node without edges has an empty list, and an
        invisible node has no entry.
        """

    @abstractmethod
    def plan_contents(
        self, ids: Collection[str] | None = None, *, scope: Scope | None = None
    ) -> Call[Contents]:
        """Return the visible nodes, without embeddings, and the visible edges between them.

        They are in any order. Without ids these are all nodes; if several visible partitions have
        an id, one node for each.
        """

    @abstractmethod
    def plan_names(self, *, scope: Scope | None = None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair per name or alias, sorted."""

    nodes, anodes = callers(plan_nodes)
    neighbours, aneighbours = callers(plan_neighbours)
    contents, acontents = callers(plan_contents)
    names, anames = callers(plan_names)

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WritableGraph(GraphBackend):
    """A graph backend with idempotent writes: `upsert`, `delete_sources`, `clear` and others."""

    @abstractmethod
    def plan_upsert(
        self, nodes: Sequence[GraphNode], edges: Sequence[Edge] = (), *, source: str | None = None
    ) -> Call[None]:
        """Insert or replace nodes and edges; the write is idempotent.

        If an end of an edge does not exist, an entity with the id as its name is created.

        Args:
            nodes: Nodes; the properties of each name its partition. One that is None is left out.
            edges: Edges, likewise.
            source: The document that the rows come from. A row stays until every source of it is
                deleted.
        """

    @abstractmethod
    def plan_replace_sources(self, contents: Mapping[str, Contents]) -> Call[None]:
        """Replace the earlier rows of documents, in one round trip.

        It is one transaction. Of rows of a document with the same identity the last is written.

        Args:
            contents: Nodes and edges by document.
        """

    @abstractmethod
    def plan_claims_of(self, sources: Sequence[str]) -> Call[dict[str, Contents]]:
        """Return the rows that each document wrote, in every partition, with embeddings.

        Each is as the document wrote it. Nodes that it only names as ends of edges are left out.
        """

    @abstractmethod
    def plan_delete_sources(self, sources: Sequence[str], *, scope: Scope | None) -> Call[None]:
        """Remove the rows of documents, except those that another source supports."""

    @abstractmethod
    def plan_clear(self, *, scope: Scope | None) -> Call[None]:
        """Remove every visible row."""

    @abstractmethod
    def set_functional(self, relations: Collection[str]) -> None:
        """Record the relations that have one value at a time, also for when it is opened again."""

    upsert, aupsert = callers(plan_upsert)
    replace_sources, areplace_sources = callers(plan_replace_sources)
    claims_of, aclaims_of = callers(plan_claims_of)
    delete_sources, adelete_sources = callers(plan_delete_sources)
    clear, aclear = callers(plan_clear)

    @abstractmethod
    def compact(self) -> int:
        """Free the disk space of deleted rows if the engine does not; return the bytes."""


@runtime_checkable
class AdjacencyGraph(Protocol):
    """A graph that can be traversed in memory."""

    def views(self, scope: Scope | None) -> Sequence[Adjacency]:
        """Return the adjacency of each visible partition."""
        ...

    def node(self, view: Adjacency, node_id: str) -> GraphNode | None:
        """Return a node of a view; None if it was deleted meanwhile."""
        ...


@runtime_checkable
class CypherGraph(Protocol):
    """A graph that answers Cypher."""

    def plan_read(
        self, statement: str, parameters: Mapping[str, object]
    ) -> Call[list[dict[str, Any]]]:
        """Run a read-only statement; the server refuses a statement that writes."""
        ...

    def plan_has_dates(self) -> Call[bool]:
        """Return whether an edge may have dates, or a relation one value at a time."""
        ...


def answers_cypher(graph: object, scope: Scope | None) -> TypeGuard[CypherGraph]:
    """Return whether a scope's statements in Cypher can be sent to a graph.

    For principals they cannot: conditions would test what hidden documents wrote. For a time they
    cannot: what held then depends on other facts.
    """
    is_timed = scope is not None and (scope.as_of is not None or scope.known_at is not None)
    return isinstance(graph, CypherGraph) and not (has_principals(scope) or is_timed)


def immediate(function: Callable[[], T]) -> Call[T]:
    """Return a call that runs without a thread: it is faster than starting one."""

    async def coroutine() -> T:
        return function()

    return Call(function, coroutine)


_LABEL: Final = (
    "coalesce(head([l IN labels({0}) WHERE NOT l IN ['__Node__', '__Entity__']]), 'entity')"
)


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """Numbers of nodes in a scope by label, and of edges by source label, type, target label."""

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
    """Count the labels and relations of a graph."""
    if answers_cypher(graph, scope):
        return (yield from _by_cypher(graph, scope))
    if isinstance(graph, AdjacencyGraph):
        counted: GraphSummary = yield Call(lambda: _by_traversal(graph, scope))
        return counted
    return _by_traversal(LoadedGraph((yield graph.plan_contents(scope=scope))), scope)


def _by_traversal(graph: AdjacencyGraph, scope: Scope | None) -> GraphSummary:
    labels: Counter[str] = Counter()
    relations: Counter[tuple[str, str, str]] = Counter()
    for view in graph.views(scope):
        labels.update(entry.label for _, entry in view.entries())
        for edge in view.outgoing():
            ends = view.nodes.get(edge.source), view.nodes.get(edge.target)
            if ends[0] is not None and ends[1] is not None:
                relations[(ends[0].label, edge.type, ends[1].label)] += 1
    return _ordered(labels, relations)


def _by_cypher(graph: CypherGraph, scope: Scope | None) -> Plan[GraphSummary]:
    parameters = scope_parameters(scope)
    label = _LABEL.format
    nodes: list[dict[str, Any]] = yield graph.plan_read(
        f"MATCH (n:__Node__) WHERE {sees_node('n', scope)} "
        f"RETURN {label('n')} AS label, count(*) AS count",
        parameters,
    )
    edges: list[dict[str, Any]] = yield graph.plan_read(
        f"MATCH (n:__Node__)-[r]->(m:__Node__) WHERE {sees_node('n', scope)} "
        f"AND {sees_edge('r', scope)} AND {sees_node('m', scope)} "
        f"RETURN {label('n')} AS source, type(r) AS type, {label('m')} AS target, "
        "count(*) AS count",
        parameters,
    )
    labels = Counter({row["label"]: row["count"] for row in nodes})
    relations = Counter(
        {(row["source"], row["type"], row["target"]): row["count"] for row in edges}
    )
    return _ordered(labels, relations)


def _ordered(labels: "Counter[str]", relations: "Counter[tuple[str, str, str]]") -> GraphSummary:
    return GraphSummary(
        dict(sorted(labels.items(), key=lambda item: (-item[1], item[0]))),
        dict(sorted(relations.items(), key=lambda item: (-item[1], item[0]))),
    )
