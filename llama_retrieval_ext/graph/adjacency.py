"""`Adjacency`: nodes and edges of one partition in memory, each as its documents claim it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from llama_retrieval_ext.graph.elements import (
    Claims,
    Contents,
    Direction,
    Edge,
    EdgeId,
    GraphNode,
    Hop,
    Partition,
    edge_order,
    shown,
)
from llama_retrieval_ext.graph.validity import When, claimed_edge, facts_at, is_dated
from llama_retrieval_ext.scope import ANY_TIME, Scope, at_time


class NodeEntry(NamedTuple):
    """The part of a node in memory, by its greatest claim.

    Attributes:
        key: Key of the node on disk.
        claim: Key of the claim on disk; 0 if it only names the node, as the end of an edge.
        label: Label of the node.
        names: Names of the node, empty for a passage.
        claims: All claims that some caller sees, if not everyone sees the greatest one.
    """

    key: int
    claim: int
    label: str
    names: tuple[str, ...] = ()
    claims: "Claims[NodeEntry] | None" = None


class ClaimedEdge(Edge):
    """An edge, by its greatest claim, which not everyone sees, with all claims."""

    claims: Claims[Edge]


@dataclass(slots=True)
class Changes:
    """Nodes and edges to put into an adjacency; None for those to remove."""

    nodes: dict[str, NodeEntry | None] = field(default_factory=dict)
    dated_nodes: set[str] = field(default_factory=set)
    edges: dict[EdgeId, Edge | None] = field(default_factory=dict)


class Adjacency:
    """In-memory graph of one partition. The caller locks writes; reads need no lock.

    Lists of edges are replaced, never modified, and a row is one object with its claims, so each
    read sees a consistent list, and nothing of a row that is hidden from it.

    Args:
        partition: The partition.
        key: Its key on disk.

    Attributes:
        nodes: Entries of the nodes by id.
        dated_nodes: Ids of nodes that have had properties with dates.
        is_restricted: Whether there has been a row that not everyone sees.
        is_dated: Whether there has been an edge with dates.
        when: The time, and the reader, for whom it is shown; None for each.
    """

    __slots__ = (
        "_entries",
        "_into",
        "_out",
        "_sorted",
        "dated_nodes",
        "is_dated",
        "is_restricted",
        "key",
        "nodes",
        "partition",
        "when",
    )

    def __init__(self, partition: Partition = Partition(), key: int = 0) -> None:  # noqa: B008
        self.partition = partition
        self.key = key
        self.is_restricted = False
        self.is_dated = False
        self.when: When | None = None
        self.dated_nodes: set[str] = set()
        self._entries: dict[str, NodeEntry] = {}
        self.nodes: Mapping[str, NodeEntry] = self._entries
        self._out: dict[str, list[Edge]] = {}
        self._into: dict[str, list[Edge]] = {}
        # Sorted edges of a node, by direction; computed on first read.
        self._sorted: dict[Direction, dict[str, list[Edge]]] = {d: {} for d in Direction}

    def load_node(self, id_: str, entry: NodeEntry) -> None:
        """Add a node before the graph is read."""
        self._entries[id_] = entry

    def load_edges(self, id_: str, edges: list[Edge], direction: Direction) -> None:
        """Set the edges of a node in one direction, before the graph is read."""
        (self._out if direction is Direction.OUT else self._into)[id_] = edges

    def apply(self, changes: Changes) -> None:
        """Put or remove nodes and edges; edges of a removed node are among the changes."""
        entries = {id_: entry for id_, entry in changes.nodes.items() if entry is not None}
        self.is_restricted |= any(entry.claims is not None for entry in entries.values())
        self.is_restricted |= any(type(edge) is ClaimedEdge for edge in changes.edges.values())
        self.is_dated |= any(edge is not None and is_dated(edge) for edge in changes.edges.values())
        self.dated_nodes |= changes.dated_nodes
        self._entries.update(entries)
        for lists, end in ((self._out, 0), (self._into, 2)):
            by_node: dict[str, dict[EdgeId, Edge | None]] = defaultdict(dict)
            for edge_id, edge in changes.edges.items():
                by_node[edge_id[end]][edge_id] = edge
            for node_id, changed in by_node.items():
                merged = {edge.id: edge for edge in lists.get(node_id, ())} | changed
                lists[node_id] = [edge for edge in merged.values() if edge is not None]
                for ordered in self._sorted.values():
                    ordered.pop(node_id, None)
        for id_, entry in changes.nodes.items():
            if entry is None:
                self._entries.pop(id_, None)

    def named(self, id_: str) -> GraphNode:
        """Return a node that visible documents only name, as the end of an edge."""
        return GraphNode(id_, properties=self.partition.properties)

    def seen_by(self, scope: Scope | None, functional: Collection[str] = ()) -> "Adjacency":
        """Return the rows as the principals of a scope see them, at the time that it asks for."""
        is_restricted = scope is not None and scope.principals is not None
        if not (is_restricted or self.is_dated or self.dated_nodes or functional):
            return self
        return VisibleAdjacency(self, scope, functional)

    def at_any_time(self) -> "Adjacency":
        """Return it with each fact of an edge, whenever it holds."""
        return self

    def entries(self) -> Iterator[tuple[str, NodeEntry]]:
        """Yield every node with its id, except those that another thread deletes meanwhile."""
        for id_ in list(self.nodes):
            entry = self.nodes.get(id_)
            if entry is not None:
                yield id_, entry

    def neighbours(self, frontier: Collection[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the edges that a hop follows, by node; unknown nodes have no entry."""
        ordered, nodes = self._sorted[hop.direction], self.nodes
        by_node: dict[str, list[Edge]] = {}
        for id_ in frontier:
            if id_ not in nodes:
                continue
            edges = ordered.get(id_)
            if edges is None:
                edges = self._order(id_, hop.direction)
            if hop.types is not None:
                edges = [edge for edge in edges if edge.type in hop.types]
            by_node[id_] = edges if hop.fan_out is None else edges[: hop.fan_out]
        return by_node

    def outgoing(self) -> Iterable[Edge]:
        """Return every edge."""
        for edges in list(self._out.values()):
            yield from edges

    def key_of(self, edge: Edge) -> tuple[int, str, int]:
        """Return the keys of both ends of an edge, with its type between them."""
        return self.nodes[edge.source].key, edge.type, self.nodes[edge.target].key

    def incident(self, ids: Collection[str]) -> set[Edge]:
        """Return the edges with at least one end among the ids."""
        return {edge for edges in self.neighbours(ids, Hop()).values() for edge in edges}

    def _order(self, node_id: str, direction: Direction) -> list[Edge]:
        """Return and keep the edges of a node in the order that `GraphBackend` defines."""
        while True:
            out, into = self._out.get(node_id), self._into.get(node_id)
            if direction is Direction.OUT:
                edges = out or []
            elif direction is Direction.IN:
                edges = into or []
            else:  # both lists contain a loop
                edges = [*(out or ()), *(e for e in into or () if e.source != node_id)]
            ordered = sorted(edges, key=edge_order(node_id))
            self._sorted[direction][node_id] = ordered
            # Otherwise another thread has replaced a list meanwhile.
            if self._out.get(node_id) is out and self._into.get(node_id) is into:
                return ordered


class _VisibleNodes(Mapping[str, NodeEntry]):
    """The visible nodes of an adjacency, each by its greatest visible claim."""

    def __init__(self, entries: Mapping[str, NodeEntry], principals: frozenset[str]) -> None:
        self._entries, self._principals = entries, principals

    def __getitem__(self, id_: str) -> NodeEntry:
        entry = self._entries[id_]
        if entry.claims is None:
            return entry
        visible = shown(entry.claims, self._principals)
        if visible is None:
            raise KeyError(id_)
        return visible

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, list(self._entries))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class VisibleAdjacency(Adjacency):
    """The part of an adjacency that a scope sees at a time, without a copy of it; read only."""

    __slots__ = ("_functional", "_scope", "_values", "_when", "_whole")

    def __init__(
        self, whole: Adjacency, scope: Scope | None, functional: Collection[str] = ()
    ) -> None:
        super().__init__(whole.partition, whole.key)
        self._whole, self._scope, self._functional = whole, scope, functional
        self.when = self._when = When.of(scope)
        self.dated_nodes = whole.dated_nodes
        # The values of functional relations, by source and type.
        self._values: dict[tuple[str, str], list[Edge]] = {}
        reader = self._when.principals
        self.nodes = whole.nodes if reader is None else _VisibleNodes(whole.nodes, reader)

    def at_any_time(self) -> Adjacency:
        """Return it with each fact of an edge, whenever it holds."""
        return self._whole.seen_by(at_time(self._scope, ANY_TIME, None), self._functional)

    def neighbours(self, frontier: Collection[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the visible edges that a hop follows, by node; others have no entry."""
        edges = self._whole.neighbours(frontier, hop)
        # Tested after reading: it is set before a row is written.
        if not (self._whole.is_restricted or self._has_dates):
            return edges
        visible_ids = [id_ for id_ in frontier if id_ in self.nodes]
        edges = self._whole.neighbours(visible_ids, replace(hop, fan_out=None))
        return {id_: self._first(id_, hop, edges[id_]) for id_ in visible_ids if id_ in edges}

    def outgoing(self) -> Iterable[Edge]:
        """Return every visible edge."""
        if not self._has_dates:
            yield from filter(None, map(self._shown, self._whole.outgoing()))
            return
        for _, edges in groupby(self._whole.outgoing(), itemgetter(0)):
            yield from self._holding([*edges])

    @property
    def _has_dates(self) -> bool:
        return self._whole.is_dated or bool(self._functional)

    def _first(self, node_id: str, hop: Hop, edges: Sequence[Edge]) -> list[Edge]:
        """Return the visible ones of a node's edges, in order; a claim can have another weight."""
        if self._has_dates:
            return hop.first(node_id, self._holding(edges))
        pairs = [(edge, visible) for edge in edges if (visible := self._shown(edge)) is not None]
        visible_edges = [visible for _, visible in pairs]
        if all(edge.weight == visible.weight for edge, visible in pairs):
            return visible_edges[: hop.fan_out]
        return hop.first(node_id, visible_edges)

    def _holding(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return the visible edges that hold, or each fact of them for any time."""
        visible = [shown_ for edge in edges if (shown_ := self._shown(edge)) is not None]
        others = [edge for edge in visible if edge.type not in self._functional]
        ids = {edge.id for edge in visible if edge.type in self._functional}
        values = (self._values_of(*key) for key in dict.fromkeys(id_[:2] for id_ in ids))
        return [
            *facts_at(others, self._when),
            *(edge for listed in values for edge in listed if edge.id in ids),
        ]

    def _values_of(self, source: str, type_: str) -> list[Edge]:
        if (source, type_) not in self._values:
            hop = Hop(Direction.OUT, frozenset([type_]))
            edges = self._whole.neighbours((source,), hop).get(source, ())
            visible = [shown_ for edge in edges if (shown_ := self._shown(edge)) is not None]
            self._values[source, type_] = facts_at(visible, self._when, self._functional)
        return self._values[source, type_]

    def _shown(self, edge: Edge) -> Edge | None:
        """Return an edge by its greatest visible claim; None if it or one of its ends is hidden.

        One with facts is returned whole.
        """
        reader = self._when.principals
        if reader is None:
            return edge
        visible = shown(edge.claims, reader) if isinstance(edge, ClaimedEdge) else edge
        is_at_nodes = edge.source in self.nodes and edge.target in self.nodes
        return visible if is_at_nodes else None


def neighbours_in(
    views: Sequence[Adjacency], frontier: Sequence[str], hop: Hop
) -> dict[str, list[Edge]]:
    """Return the edges of a hop by node; of edges with one identity the first view's wins."""
    if len(views) == 1:
        return views[0].neighbours(frontier, hop)
    by_node: dict[str, dict[EdgeId, Edge]] = {}
    for view in reversed(views):
        for id_, edges in view.neighbours(frontier, hop).items():
            by_node.setdefault(id_, {}).update((edge.id, edge) for edge in edges)
    return {id_: hop.first(id_, by_node[id_].values()) for id_ in frontier if id_ in by_node}


def names_in(views: Sequence[Adjacency]) -> list[tuple[str, str]]:
    """Return name and id of every entity, one pair per name or alias, sorted."""
    return sorted(
        {(name, id_) for view in views for id_, entry in view.entries() for name in entry.names}
    )


class LoadedGraph:
    """Contents of a graph in memory, to traverse by partition.

    If no two partitions have the same id, as in LlamaIndex's stores, it is one adjacency: there,
    edges can join partitions. Edges with the same ends and type are facts of one.
    """

    def __init__(self, contents: Contents) -> None:
        self._nodes = contents.nodes
        homes = {node.id: node.partition for node in contents.nodes}
        whole = Adjacency() if len(homes) == len(contents.nodes) else None
        self._views: dict[Partition, Adjacency] = defaultdict(lambda: whole or Adjacency())
        for key, node in enumerate(contents.nodes):
            entry = NodeEntry(key, 0, node.label, node.names)
            self._views[node.partition].load_node(node.id, entry)
        edges: dict[Partition, dict[EdgeId, list[Edge]]] = defaultdict(lambda: defaultdict(list))
        for edge in contents.edges:
            home = Partition.of(edge.properties)
            is_there = home in self._views and edge.source in self._views[home].nodes
            if home == Partition() and not is_there:  # LlamaIndex's stores write some without one
                home = homes.get(edge.source, home)
            edges[home][edge.id].append(edge)
        for home, by_id in edges.items():
            nodes = self._views[home].nodes
            inner: dict[EdgeId, Edge | None] = {
                # Of several without dates, the last one.
                id_: (len(listed) > 1 and claimed_edge([(frozenset(), e) for e in listed[::-1]]))
                or listed[-1]
                for id_, listed in by_id.items()
                if id_[0] in nodes and id_[2] in nodes
            }
            self._views[home].apply(Changes(edges=inner))

    def views(self, scope: Scope | None) -> list[Adjacency]:
        """Return each adjacency, in the order of the partitions' names."""
        partitions = sorted(self._views, key=lambda partition: partition.order)
        views = dict.fromkeys(self._views[home] for home in partitions if home.is_in(scope))
        time = None if scope is None else at_time(None, scope.as_of, scope.known_at)
        return [view.seen_by(time) for view in views]  # what is hidden was not loaded

    def node(self, view: Adjacency, node_id: str) -> GraphNode:
        """Return a node of a view."""
        return self._nodes[view.nodes[node_id].key]
