"""`Adjacency`: nodes and edges of one partition in memory, each as its documents claim it."""

import gc
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

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
from llama_retrieval_ext.graph.sqlite_rows import EdgeKey, GraphRows
from llama_retrieval_ext.query import Scope

T = TypeVar("T")
_MANY_OBJECTS: Final = 100_000
_ById: TypeAlias = list[str] | Mapping[int, str]


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
        is_restricted: Whether there has been a row that not everyone sees.
    """

    __slots__ = (
        "_entries",
        "_into",
        "_out",
        "_sorted",
        "is_restricted",
        "key",
        "nodes",
        "partition",
    )

    def __init__(self, partition: Partition = Partition(), key: int = 0) -> None:  # noqa: B008
        self.partition = partition
        self.key = key
        self.is_restricted = False
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

    def visible_to(self, principals: Iterable[str]) -> "Adjacency":
        """Return the rows that name none or one of the principals, as these see them."""
        return VisibleAdjacency(self, frozenset(principals))

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
    """The part of an adjacency that some principals see, without a copy of it; read only."""

    __slots__ = ("_principals", "_whole")

    def __init__(self, whole: Adjacency, principals: frozenset[str]) -> None:
        super().__init__(whole.partition, whole.key)
        self._whole, self._principals = whole, principals
        self.nodes = _VisibleNodes(whole.nodes, principals)

    def neighbours(self, frontier: Collection[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the visible edges that a hop follows, by node; others have no entry."""
        edges = self._whole.neighbours(frontier, hop)
        if not self._whole.is_restricted:  # tested after reading: it is set before a row is written
            return edges
        visible_ids = [id_ for id_ in frontier if id_ in self.nodes]
        edges = self._whole.neighbours(visible_ids, replace(hop, fan_out=None))
        return {id_: self._first(id_, hop, edges[id_]) for id_ in visible_ids if id_ in edges}

    def outgoing(self) -> Iterable[Edge]:
        """Return every visible edge."""
        return filter(None, map(self._shown, self._whole.outgoing()))

    def _first(self, node_id: str, hop: Hop, edges: Iterable[Edge]) -> list[Edge]:
        """Return the visible ones of a node's edges, in order; a claim can have another weight."""
        pairs = [(edge, visible) for edge in edges if (visible := self._shown(edge)) is not None]
        visible_edges = [visible for _, visible in pairs]
        if all(edge.weight == visible.weight for edge, visible in pairs):
            return visible_edges[: hop.fan_out]
        return hop.first(node_id, visible_edges)

    def _shown(self, edge: Edge) -> Edge | None:
        """Return an edge by its greatest visible claim; None if it or one of its ends is hidden."""
        visible = shown(edge.claims, self._principals) if isinstance(edge, ClaimedEdge) else edge
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


def load(rows: GraphRows) -> dict[Partition, Adjacency]:
    """Return the adjacency of each partition of a graph on disk."""
    views = {key: Adjacency(partition, key) for key, partition in rows.partitions()}
    with _no_collection():
        # Lists by key have better memory locality than a dictionary of a million keys.
        size = rows.last_keys()[0] + 1
        ids, homes = [""] * size, [Adjacency()] * size
        for key, partition, id_ in rows.nodes():
            ids[key], homes[key] = id_, views[partition]
        entries: list[NodeEntry | None] = [None] * size
        labels: dict[str, str] = {}  # interns equal strings
        for key, claim, label, *names in rows.entries():
            entries[key] = _entry(key, claim, labels.setdefault(label, label), *names)
        for key, entry in read_nodes(rows, ids).items():
            entries[key], homes[key].is_restricted = entry, True
        for key, (id_, view) in enumerate(zip(ids, homes, strict=True)):
            if id_:
                view.load_node(id_, entries[key] or named_entry(key, id_))
        _load_edges(read_edges(rows, ids), ids, homes)
    return {view.partition: view for view in views.values()}


def _load_edges(
    rows: Iterable[tuple[int, int, Edge]], ids: Sequence[str], views: Sequence[Adjacency]
) -> None:
    """Fill the adjacencies with sorted edges; ids and views are lists by key."""
    edges: list[Edge] = []
    ends: tuple[list[int], list[int]] = ([], [])
    add_edge, add_source, add_target = edges.append, ends[0].append, ends[1].append
    for source, target, edge in rows:
        add_edge(edge)
        add_source(source)
        add_target(target)
        if type(edge) is ClaimedEdge:
            views[source].is_restricted = True
    for keys, direction in zip(ends, (Direction.OUT, Direction.IN), strict=True):
        column = np.array(keys, dtype=np.int64)
        order = np.argsort(column, kind="stable")
        ordered = [edges[at] for at in order.tolist()]
        nodes, starts = np.unique(column[order], return_index=True)
        stops = [*starts[1:].tolist(), len(ordered)]
        for node, start, stop in zip(nodes.tolist(), starts.tolist(), stops, strict=False):
            views[node].load_edges(ids[node], ordered[start:stop], direction)


def read_nodes(
    rows: GraphRows, ids: _ById, keys: Iterable[int] | None = None
) -> dict[int, NodeEntry]:
    """Return the entries of nodes with claims, by key; None for all that not everyone sees."""
    entries: dict[int, NodeEntry] = {}
    for key, group in groupby(rows.entry_claims(keys), itemgetter(1)):
        claims = {
            _principals(allowed): _entry(key, claim, *content)
            if claim > 0
            else named_entry(key, ids[key])
            for allowed, _, claim, *content in group
        }
        entries[key] = next(iter(claims.values()))._replace(claims=_restricted(claims))
    return entries


def read_edges(
    rows: GraphRows, ids: _ById, keys: Sequence[EdgeKey] | None = None
) -> Iterator[tuple[int, int, Edge]]:
    """Yield edges with claims, and before each the keys of its ends; None for all edges."""
    types: dict[str, str] = {}
    make, once = tuple.__new__, types.setdefault  # half the time of Edge(...)
    for (source, type_, target), group in groupby(rows.edges(keys), itemgetter(0, 1, 2)):
        claims = [*group]
        if len(claims) > 1:
            claims.sort(key=itemgetter(-1), reverse=True)
        ends = ids[source], once(type_, type_), ids[target]
        *_, weight, payload, allowed, _ = claims[0]
        edge: Edge = make(Edge, (*ends, weight, payload or "{}"))
        if allowed:
            by_principals: dict[frozenset[str], Edge] = {}
            for *_, weight, payload, allowed, _ in claims:
                claimed = Edge(*ends, weight, payload or "{}")
                by_principals.setdefault(_principals(allowed), claimed)
            edge = ClaimedEdge(*edge)
            edge.claims = _restricted(by_principals) or ()
        yield source, target, edge


def named_entry(key: int, id_: str) -> NodeEntry:
    """Return the entry of a node that documents only name, as the end of an edge."""
    return NodeEntry(key, 0, "entity", (id_,))


def _restricted(claims: Mapping[frozenset[str], T]) -> Claims[T] | None:
    """Return the claims that some caller sees as the greatest; None if everyone sees the first."""
    listed = [*claims.items()]
    public = next((at for at, (allowed, _) in enumerate(listed) if not allowed), len(listed))
    return listed[: public + 1] if public else None


def _entry(
    key: int, claim: int, label: str, name: str, aliases: str | None, is_passage: int
) -> NodeEntry:
    names = () if is_passage else (name, *(aliases.split("\0") if aliases else ()))
    return NodeEntry(key, claim, label, names)


@lru_cache
def _principals(allowed: str) -> frozenset[str]:
    return frozenset(allowed.split("\n") if allowed else ())


class LoadedGraph:
    """Contents of a graph in memory, to traverse by partition.

    If no two partitions have the same id, as in LlamaIndex's stores, it is one adjacency: there,
    edges can join partitions.
    """

    def __init__(self, contents: Contents) -> None:
        self._nodes = contents.nodes
        homes = {node.id: node.partition for node in contents.nodes}
        whole = Adjacency() if len(homes) == len(contents.nodes) else None
        self._views: dict[Partition, Adjacency] = defaultdict(lambda: whole or Adjacency())
        for key, node in enumerate(contents.nodes):
            entry = NodeEntry(key, 0, node.label, node.names)
            self._views[node.partition].load_node(node.id, entry)
        edges: dict[Partition, dict[EdgeId, Edge | None]] = defaultdict(dict)
        for edge in contents.edges:
            edges[self._home(edge, homes)][edge.id] = edge
        for home, by_id in edges.items():
            nodes = self._views[home].nodes
            inner = {i: edge for i, edge in by_id.items() if i[0] in nodes and i[2] in nodes}
            self._views[home].apply(Changes(edges=inner))

    def views(self, scope: Scope | None) -> list[Adjacency]:
        """Return each adjacency, in the order of the partitions' names."""
        partitions = sorted(self._views, key=lambda partition: partition.order)
        return [*dict.fromkeys(self._views[home] for home in partitions if home.is_in(scope))]

    def node(self, view: Adjacency, node_id: str) -> GraphNode:
        """Return a node of a view."""
        return self._nodes[view.nodes[node_id].key]

    def _home(self, edge: Edge, homes: Mapping[str, Partition]) -> Partition:
        """Return the partition of an edge; LlamaIndex's stores write some edges without one."""
        home = Partition.of(edge.properties)
        if home != Partition() or (home in self._views and edge.source in self._views[home].nodes):
            return home
        return homes.get(edge.source, home)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the garbage collector while millions of long-lived objects are created."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Freeze and unfreeze move all objects to the oldest generation without a scan; otherwise
        # the next collection scans a million new objects. get_freeze_count() takes linear time, so
        # it is called last.
        if gc.get_count()[0] > _MANY_OBJECTS and gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
