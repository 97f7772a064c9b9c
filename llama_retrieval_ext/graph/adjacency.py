"""`Adjacency`: nodes and edges of one partition in memory, loaded from rows, and rows to write."""

import gc
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

import numpy as np

from llama_retrieval_ext.graph.elements import (
    Contents,
    Direction,
    Edge,
    EdgeId,
    GraphNode,
    Hop,
    Partition,
    edge_order,
)
from llama_retrieval_ext.graph.sqlite_rows import UNSAID, GraphRows, Restrictions, Said
from llama_retrieval_ext.query import Scope

T = TypeVar("T")
_MANY_OBJECTS: Final = 100_000


class NodeEntry(NamedTuple):
    """The part of a node in memory: key on disk, label, and names, empty for a passage."""

    key: int
    label: str
    names: tuple[str, ...] = ()


class Adjacency:
    """In-memory graph of one partition. The caller locks writes; reads need no lock.

    Lists of edges are replaced, never modified, so each read sees a consistent list.
    """

    __slots__ = ("_entries", "_into", "_out", "_sorted", "nodes", "restricted", "said")

    def __init__(self) -> None:
        self._entries: dict[str, NodeEntry] = {}
        self.nodes: Mapping[str, NodeEntry] = self._entries
        # The principals who may see a node or an edge, for those that not everyone may see.
        self.restricted: dict[str | EdgeId, frozenset[str]] = {}
        # What such a row says to whom, unless all its passages say the same; see `Restrictions`.
        self.said: Restrictions = {}
        self._out: dict[str, list[Edge]] = {}
        self._into: dict[str, list[Edge]] = {}
        # Sorted edges of a node, by direction; computed on first read.
        self._sorted: dict[Direction, dict[str, list[Edge]]] = {d: {} for d in Direction}

    def put_nodes(self, entries: Mapping[str, NodeEntry]) -> None:
        """Add or replace entries of nodes."""
        self._entries.update(entries)

    def load_node(self, id_: str, entry: NodeEntry) -> None:
        """Add a node before the graph is read."""
        self._entries[id_] = entry

    def load(self, id_: str, edges: list[Edge], direction: Direction) -> None:
        """Set the edges of a node in one direction, before the graph is read."""
        (self._out if direction is Direction.OUT else self._into)[id_] = edges

    def put_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges, or replace those with the same identity."""
        self._replace({edge.id: edge for edge in edges})

    def drop_edges(self, ids: Iterable[EdgeId]) -> None:
        """Remove edges."""
        gone = list(ids)
        self._replace(dict.fromkeys(gone))
        for id_ in gone:
            self.restricted.pop(id_, None)
            self.said.pop(id_, None)

    def restrict(self, changes: Restrictions, *, is_written: bool) -> None:
        """Set who may see rows; before these are written, only those who may before and after."""
        for id_, said in changes.items():
            after = None if frozenset() in said else frozenset[str]().union(*said)
            before, said_before = self.restricted.get(id_), self.said.get(id_)
            if not is_written:
                if before is not None:
                    after = before if after is None else before & after
                if said_before is not None:  # the row is still what it was
                    said = {  # noqa: PLW2901
                        names: said_before.get(names, UNSAID) if new is None else new
                        for names, new in said.items()
                    }
            _set(self.restricted, id_, after)
            _set(self.said, id_, said if any(new is not None for new in said.values()) else None)

    def shown(self, node: GraphNode) -> GraphNode:
        """Return a node with what its passages say that this view sees."""
        return node

    def visible_to(self, principals: Iterable[str]) -> "Adjacency":
        """Return the rows that name none or one of the principals, with what these see of them."""
        return VisibleAdjacency(self, frozenset(principals))

    def drop_nodes(self, ids: Iterable[str]) -> None:
        """Remove nodes; the caller has removed their edges."""
        for id_ in ids:
            self._entries.pop(id_, None)
            self.restricted.pop(id_, None)
            self.said.pop(id_, None)

    def entries(self) -> Iterator[tuple[str, NodeEntry]]:
        """Yield every node with its id, except those that another thread deletes meanwhile."""
        for id_ in list(self.nodes):
            entry = self.nodes.get(id_)
            if entry is not None:
                yield id_, entry

    def neighbours(self, frontier: Collection[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the edges that a hop follows, by node; unknown nodes have no entry."""
        ordered, known = self._sorted[hop.direction], self.nodes
        found: dict[str, list[Edge]] = {}
        for id_ in frontier:
            if id_ not in known:
                continue
            edges = ordered.get(id_)
            if edges is None:
                edges = self._order(id_, hop.direction)
            if hop.types is not None:
                edges = [edge for edge in edges if edge.type in hop.types]
            found[id_] = edges if hop.fan_out is None else edges[: hop.fan_out]
        return found

    def outgoing(self) -> Iterable[Edge]:
        """Return every edge."""
        for edges in list(self._out.values()):
            yield from edges

    def edges(self, ids: Iterable[EdgeId]) -> dict[EdgeId, Edge]:
        """Return the edges with these identities."""
        wanted = set(ids)
        own = {source for source, _, _ in wanted}
        return {
            edge.id: edge for id_ in own for edge in self._out.get(id_, ()) if edge.id in wanted
        }

    def key_of(self, edge: Edge) -> tuple[int, str, int]:
        """Return the keys of both ends of an edge, with its type between them."""
        return self.nodes[edge.source].key, edge.type, self.nodes[edge.target].key

    def incident(self, ids: Collection[str]) -> set[Edge]:
        """Return the edges with at least one end among the ids."""
        return {edge for neighbour in self.neighbours(ids, Hop()).values() for edge in neighbour}

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

    def _replace(self, changed: Mapping[EdgeId, Edge | None]) -> None:
        """Replace the edge with each identity; None removes it."""
        for lists, end in ((self._out, 0), (self._into, 2)):
            changes: dict[str, dict[EdgeId, Edge | None]] = defaultdict(dict)
            for id_, edge in changed.items():
                changes[id_[end]][id_] = edge
            for node_id, own in changes.items():
                merged = {edge.id: edge for edge in lists.get(node_id, ())} | own
                lists[node_id] = [edge for edge in merged.values() if edge is not None]
                for ordered in self._sorted.values():
                    ordered.pop(node_id, None)


class _VisibleNodes(Mapping[str, NodeEntry]):
    """The visible nodes of an adjacency, each as its visible passages describe it."""

    def __init__(self, whole: Adjacency, principals: frozenset[str]) -> None:
        self._whole, self._principals = whole, principals

    def sees(self, id_: str | EdgeId) -> bool:
        """Return whether a row names none or one of the principals."""
        allowed = self._whole.restricted.get(id_)
        return allowed is None or not allowed.isdisjoint(self._principals)

    def said(self, id_: str | EdgeId) -> Said:
        """Return what the visible passages of a row say; None for the row itself."""
        contents = self._whole.said.get(id_)
        if contents is None:
            return None
        visible = [
            said
            for names, said in contents.items()
            if not names or not names.isdisjoint(self._principals)
        ]
        return None if None in visible else max(filter(None, visible), default=UNSAID)

    def __getitem__(self, id_: str) -> NodeEntry:
        if not self.sees(id_):
            raise KeyError(id_)
        entry, said = self._whole.nodes[id_], self.said(id_)
        if said is None:
            return entry
        node = GraphNode(id_).saying(said)
        return NodeEntry(entry.key, node.label, node.names)

    def __iter__(self) -> Iterator[str]:
        return filter(self.sees, list(self._whole.nodes))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class VisibleAdjacency(Adjacency):
    """The part of an adjacency that some principals see, without a copy of it; read only."""

    __slots__ = ("_visible", "_whole")

    def __init__(self, whole: Adjacency, principals: frozenset[str]) -> None:
        super().__init__()
        self._whole = whole
        self.nodes = self._visible = _VisibleNodes(whole, principals)

    def neighbours(self, frontier: Collection[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the visible edges that a hop follows, by node; others have no entry."""
        found = self._whole.neighbours(frontier, hop)
        # Tested after reading, because rows are restricted before they are written.
        if not self._whole.restricted and not self._whole.said:
            return found
        seen = [id_ for id_ in frontier if id_ in self.nodes]
        found = self._whole.neighbours(seen, replace(hop, fan_out=None))
        if not self._whole.said:
            return {id_: [*filter(self._sees, own)][: hop.fan_out] for id_, own in found.items()}
        return {id_: hop.first(id_, self._visible_edges(own)) for id_, own in found.items()}

    def outgoing(self) -> Iterable[Edge]:
        """Return every visible edge."""
        return self._visible_edges(self._whole.outgoing())

    def shown(self, node: GraphNode) -> GraphNode:
        """Return a node with what its passages say that this view sees."""
        said = self._visible.said(node.id)
        return node if said is None else node.saying(said)

    def _visible_edges(self, edges: Iterable[Edge]) -> Iterator[Edge]:
        """Yield the visible edges with what their visible passages say."""
        for edge in filter(self._sees, edges):
            said = self._visible.said(edge.id)
            yield edge if said is None else edge.saying(said)

    def _sees(self, edge: Edge) -> bool:
        sees = self._visible.sees
        return sees(edge.id) and sees(edge.source) and sees(edge.target)


def neighbours_in(
    views: Sequence[Adjacency], frontier: Sequence[str], hop: Hop
) -> dict[str, list[Edge]]:
    """Return the edges of a hop by node; of edges with one identity the first view's wins."""
    if len(views) == 1:
        return views[0].neighbours(frontier, hop)
    found: dict[str, dict[EdgeId, Edge]] = {}
    for view in reversed(views):
        for id_, edges in view.neighbours(frontier, hop).items():
            found.setdefault(id_, {}).update((edge.id, edge) for edge in edges)
    return {id_: hop.first(id_, found[id_].values()) for id_ in frontier if id_ in found}


def names_in(views: Sequence[Adjacency]) -> list[tuple[str, str]]:
    """Return name and id of every entity, one pair per name or alias, sorted."""
    return sorted(
        {(name, id_) for view in views for id_, entry in view.entries() for name in entry.names}
    )


def load(rows: GraphRows) -> tuple[dict[Partition, int], dict[Partition, Adjacency]]:
    """Return the key and the adjacency of each partition of a graph on disk."""
    keys = {partition: key for key, partition in rows.partitions()}
    views = {partition: Adjacency() for partition in keys}
    by_key = {key: views[partition] for partition, key in keys.items()}
    with _no_collection():
        # Lists by key have better memory locality than a dictionary of a million keys.
        size = rows.last_key() + 1
        ids, homes = [""] * size, [Adjacency()] * size
        seen: dict[str, str] = {}  # interns equal strings
        for key, partition, id_, label, name, aliases, is_passage in rows.entries():
            names = () if is_passage else (name, *(aliases.split("\0") if aliases else ()))
            ids[key], homes[key] = id_, by_key[partition]
            homes[key].load_node(id_, NodeEntry(key, seen.setdefault(label, label), names))
        _load_edges(rows.edges(), ids, homes)
        for key, allowed in rows.all_restrictions().items():
            by_key[key].restrict(allowed, is_written=True)
    return keys, views


def _load_edges(
    rows: Iterable[tuple[int, str, int, float, str | None]],
    ids: Sequence[str],
    views: Sequence[Adjacency],
) -> None:
    """Fill the adjacencies with sorted edges; ids and views are lists by key."""
    types: dict[str, str] = {}
    make, once = tuple.__new__, types.setdefault  # half the time of Edge(...)
    edges: list[Edge] = []
    ends: tuple[list[int], list[int]] = ([], [])
    add_edge, add_source, add_target = edges.append, ends[0].append, ends[1].append
    for source, type_, target, weight, own in rows:
        parts = ids[source], once(type_, type_), ids[target], weight, own or "{}"
        add_edge(make(Edge, parts))
        add_source(source)
        add_target(target)
    for keys, direction in zip(ends, (Direction.OUT, Direction.IN), strict=True):
        column = np.array(keys, dtype=np.int64)
        order = np.argsort(column, kind="stable")
        ordered = [edges[at] for at in order.tolist()]
        nodes, starts = np.unique(column[order], return_index=True)
        stops = [*starts[1:].tolist(), len(ordered)]
        for node, start, stop in zip(nodes.tolist(), starts.tolist(), stops, strict=False):
            views[node].load(ids[node], ordered[start:stop], direction)


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
            entry = NodeEntry(key, node.label, node.names)
            self._views[node.partition].load_node(node.id, entry)
        edges: dict[Partition, list[Edge]] = defaultdict(list)
        for edge in contents.edges:
            edges[self._home(edge, homes)].append(edge)
        for home, own in edges.items():
            nodes = self._views[home].nodes
            self._views[home].put_edges(e for e in own if e.source in nodes and e.target in nodes)

    def views(self, scope: Scope | None) -> list[Adjacency]:
        """Return each adjacency, in the order of the partitions' names."""
        found = sorted(self._views, key=lambda partition: partition.order)
        return [*dict.fromkeys(self._views[own] for own in found if own.is_in(scope))]

    def node(self, view: Adjacency, node_id: str) -> GraphNode:
        """Return a node of a view."""
        return self._nodes[view.nodes[node_id].key]

    def _home(self, edge: Edge, homes: Mapping[str, Partition]) -> Partition:
        """Return the partition of an edge; LlamaIndex's stores write some edges without one."""
        own = Partition.of(edge.properties)
        if own != Partition() or (own in self._views and edge.source in self._views[own].nodes):
            return own
        return homes.get(edge.source, own)


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


def _set(values: dict[str | EdgeId, T], id_: str | EdgeId, value: T | None) -> None:
    """Set the value of a row; None removes it."""
    if value is None:
        values.pop(id_, None)
    else:
        values[id_] = value
