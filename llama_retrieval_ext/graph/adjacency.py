"""`Adjacency`: nodes and edges of one partition in memory, loaded from rows, and rows to write."""

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from llama_retrieval_ext.graph.elements import (
    Direction,
    Edge,
    EdgeId,
    GraphNode,
    Hop,
    Partition,
    edge_order,
)
from llama_retrieval_ext.graph.sqlite_rows import GraphRows
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY

_MANY_OBJECTS: Final = 100_000
# The source of rows without a document.
_NO_SOURCE: Final = ""


class NodeEntry(NamedTuple):
    """The part of a node in memory: key on disk, label, and names, empty for a passage."""

    key: int
    label: str
    names: tuple[str, ...] = ()


class Adjacency:
    """In-memory graph of one partition. The caller locks writes; reads need no lock.

    Lists of edges are replaced, never modified, so each read sees a consistent list.
    """

    __slots__ = ("_by_label", "_into", "_out", "_sorted", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self._out: dict[str, list[Edge]] = {}
        self._into: dict[str, list[Edge]] = {}
        # Sorted edges of a node, by direction; computed on first read.
        self._sorted: dict[Direction, dict[str, list[Edge]]] = {d: {} for d in Direction}
        self._by_label: dict[str, list[str]] | None = None

    def put_nodes(self, entries: Mapping[str, NodeEntry]) -> None:
        """Add or replace entries of nodes."""
        self.nodes.update(entries)
        self._by_label = None

    def load(self, id_: str, edges: list[Edge], direction: Direction) -> None:
        """Set the edges of a node in one direction, before the graph is read."""
        (self._out if direction is Direction.OUT else self._into)[id_] = edges

    def put_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges, or replace those with the same identity."""
        self._replace({edge.id: edge for edge in edges})

    def drop_edges(self, ids: Iterable[EdgeId]) -> None:
        """Remove edges."""
        self._replace(dict.fromkeys(ids))

    def drop_nodes(self, ids: Iterable[str]) -> None:
        """Remove nodes; the caller has removed their edges."""
        for id_ in ids:
            self.nodes.pop(id_, None)
        self._by_label = None

    def neighbours(self, frontier: Iterable[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the edges that a hop follows, by node; unknown nodes have no entry."""
        ordered, known = self._sorted[hop.direction], self.nodes
        found: dict[str, list[Edge]] = {}
        for id_ in frontier:
            edges = ordered.get(id_)
            if edges is None:
                if id_ not in known:
                    continue
                edges = self._order(id_, hop.direction)
            if hop.types is not None:
                edges = [edge for edge in edges if edge.type in hop.types]
            found[id_] = edges if hop.fan_out is None else edges[: hop.fan_out]
        return found

    def ids(self, label: str | None) -> Iterable[str]:
        """Return the ids of all nodes, or of the nodes with a label."""
        if label is None:
            return self.nodes
        if self._by_label is None:
            by_label: dict[str, list[str]] = {}
            for id_, entry in list(self.nodes.items()):
                by_label.setdefault(entry.label, []).append(id_)
            self._by_label = by_label
        return self._by_label.get(label, ())

    def outgoing(self) -> Iterable[Edge]:
        """Return every edge."""
        for edges in list(self._out.values()):
            yield from edges

    def key_of(self, edge: Edge) -> tuple[int, str, int]:
        """Return the keys of both ends of an edge, with its type between them."""
        return self.nodes[edge.source].key, edge.type, self.nodes[edge.target].key

    def incident(self, ids: Iterable[str]) -> set[Edge]:
        """Return the edges with at least one end among the ids."""
        return {edge for own in self.neighbours(ids, Hop()).values() for edge in own}

    def _order(self, node_id: str, direction: Direction) -> list[Edge]:
        """Return and keep the edges of a node in the order that `GraphBackend` defines."""
        out, into = self._out.get(node_id, []), self._into.get(node_id, [])
        if direction is Direction.OUT:
            edges = out
        elif direction is Direction.IN:
            edges = into
        else:  # both lists contain a loop
            edges = [*out, *(edge for edge in into if edge.source != node_id)]
        ordered = sorted(edges, key=edge_order(node_id))
        self._sorted[direction][node_id] = ordered
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
        {
            (name, id_)
            for view in views
            for id_, entry in list(view.nodes.items())
            for name in entry.names
        }
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
            homes[key].nodes[id_] = NodeEntry(key, seen.setdefault(label, label), names)
        _load_edges(rows.edges(), ids, homes)
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


class WriteBatch:
    """Rows of one write transaction, with their keys on disk.

    Attributes:
        partitions: Keys of the new partitions.
        nodes: Key and node by id, by partition.
        edges: Keys of both ends and the edge by identity, by partition.
        node_sources: Pairs of source and node key.
        edge_sources: Source, key of the start, type and key of the end of an edge.
        next_key: The first free key of a node, after this batch.
    """

    def __init__(
        self,
        views: Mapping[Partition, Adjacency],
        partition_keys: Mapping[Partition, int],
        next_key: int,
    ) -> None:
        self._views, self._partition_keys = views, partition_keys
        self.next_key = next_key
        self.partitions: dict[Partition, int] = {}
        self.nodes: dict[Partition, dict[str, tuple[int, GraphNode]]] = defaultdict(dict)
        self.edges: dict[Partition, dict[EdgeId, tuple[int, int, Edge]]] = defaultdict(dict)
        self.node_sources: list[tuple[str, int]] = []
        self.edge_sources: list[tuple[str, int, str, int]] = []

    def add_node(self, node: GraphNode, source: str | None) -> int:
        """Add a node, or replace the one with the same id, and return its key."""
        partition = node.partition
        key = self._key(partition, node.id)
        if key is None:
            key, self.next_key = self.next_key, self.next_key + 1
        self.nodes[partition][node.id] = (key, node)
        self.node_sources.append((source or _NO_SOURCE, key))
        if partition not in self._partition_keys and partition not in self.partitions:
            self.partitions[partition] = len(self._partition_keys) + len(self.partitions) + 1
        return key

    def add_edge(self, edge: Edge, source: str | None) -> None:
        """Add an edge, and an entity for each missing end."""
        partition = Partition.of(edge.properties)
        first, second = (self._end(partition, id_, source) for id_ in (edge.source, edge.target))
        self.edges[partition][edge.id] = (first, second, edge)
        self.edge_sources.append((source or _NO_SOURCE, first, edge.type, second))

    def node_rows(self) -> Iterator[tuple[int, int, GraphNode]]:
        """Yield the key of each node, the key of its partition, and the node."""
        keys = {**self._partition_keys, **self.partitions}
        for partition, own in self.nodes.items():
            for key, node in own.values():
                yield key, keys[partition], node

    def _end(self, partition: Partition, id_: str, source: str | None) -> int:
        key = self._key(partition, id_)
        if key is None:
            names = {TENANT_KEY: partition.tenant_id, KB_KEY: partition.kb_id}
            properties = {name: value for name, value in names.items() if value is not None}
            return self.add_node(GraphNode(id_, properties=properties), source)
        if source:  # the source of an edge supports its ends
            self.node_sources.append((source, key))
        return key

    def _key(self, partition: Partition, id_: str) -> int | None:
        if id_ in self.nodes[partition]:
            return self.nodes[partition][id_][0]
        view = self._views.get(partition)
        entry = None if view is None else view.nodes.get(id_)
        return None if entry is None else entry.key
