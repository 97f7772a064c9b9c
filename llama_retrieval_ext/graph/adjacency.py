"""`Adjacency`: nodes and edges of one partition in memory, for traversal."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from llama_retrieval_ext.graph.elements import Direction, Edge, Hop, edge_order

_MANY_OBJECTS = 100_000


class NodeEntry(NamedTuple):
    """What memory holds of a node; the rest is on disk.

    Attributes:
        key: Its row on disk.
        label: Its kind.
        names: Name and aliases; empty for a passage.
    """

    key: int
    label: str
    names: tuple[str, ...] = ()


class Adjacency:
    """The graph of one partition: who writes holds a lock of its own, readers need none.

    Lists of edges are replaced, never changed, so that a reader sees one state of them.

    Attributes:
        nodes: What is known of each node, by id.
    """

    __slots__ = ("_by_label", "_into", "_out", "_sorted", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self._out: dict[str, list[Edge]] = {}
        self._into: dict[str, list[Edge]] = {}
        # Edges of a node in the contract's order, by direction; made when first read.
        self._sorted: dict[Direction, dict[str, list[Edge]]] = {d: {} for d in Direction}
        self._by_label: dict[str, list[str]] | None = None

    def put_nodes(self, entries: Mapping[str, NodeEntry]) -> None:
        """Add nodes or replace what is known of them."""
        self.nodes.update(entries)
        self._by_label = None

    def load(self, id_: str, edges: list[Edge], direction: Direction) -> None:
        """Set the edges of a node in one direction, while nobody reads."""
        (self._out if direction is Direction.OUT else self._into)[id_] = edges

    def put_edges(self, edges: Iterable[Edge]) -> None:
        """Add edges, or replace those with the same identity."""
        self._replace({edge.id: edge for edge in edges})

    def drop_edges(self, ids: Iterable[tuple[str, str, str]]) -> None:
        """Remove edges."""
        self._replace(dict.fromkeys(ids))

    def drop_nodes(self, ids: Iterable[str]) -> None:
        """Remove nodes; their edges are gone already."""
        for id_ in ids:
            self.nodes.pop(id_, None)
        self._by_label = None

    def edges(self, node_id: str, direction: Direction = Direction.ANY) -> list[Edge]:
        """Return the edges of a node in the contract's order."""
        ordered = self._sorted[direction].get(node_id)
        if ordered is None:
            ordered = self._order(node_id, direction)
        return ordered

    def neighbours(self, frontier: Iterable[str], hop: Hop) -> dict[str, list[Edge]]:
        """Return the edges that a hop follows, by node; a node that is not here has no entry."""
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
        """Return the ids of all nodes, or of those with a label."""
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

    def incident(self, ids: Iterable[str]) -> set[Edge]:
        """Return the edges with an end among the ids."""
        return {edge for id_ in ids for edge in self.edges(id_)}

    def _order(self, node_id: str, direction: Direction) -> list[Edge]:
        if node_id not in self.nodes:
            return []
        out, into = self._out.get(node_id, []), self._into.get(node_id, [])
        if direction is Direction.OUT:
            edges = out
        elif direction is Direction.IN:
            edges = into
        else:  # a loop is in both lists
            edges = [*out, *(edge for edge in into if edge.source != node_id)]
        ordered = sorted(edges, key=edge_order(node_id))
        self._sorted[direction][node_id] = ordered
        return ordered

    def _replace(self, changed: Mapping[tuple[str, str, str], Edge | None]) -> None:
        """Put in each edge in place of the one with its identity; None removes it."""
        by_source: dict[str, dict[tuple[str, str, str], Edge | None]] = {}
        by_target: dict[str, dict[tuple[str, str, str], Edge | None]] = {}
        for id_, edge in changed.items():
            by_source.setdefault(id_[0], {})[id_] = edge
            by_target.setdefault(id_[2], {})[id_] = edge
        for lists, changes in ((self._out, by_source), (self._into, by_target)):
            for node_id, own in changes.items():
                merged: dict[tuple[str, str, str], Edge | None] = {
                    edge.id: edge for edge in lists.get(node_id, ())
                }
                merged.update(own)
                lists[node_id] = [edge for edge in merged.values() if edge is not None]
                for ordered in self._sorted.values():
                    ordered.pop(node_id, None)


def neighbours_in(
    views: Sequence[Adjacency], frontier: Sequence[str], hop: Hop
) -> dict[str, list[Edge]]:
    """Return the edges that a hop follows, by node, in several partitions; the first's count."""
    if len(views) == 1:
        return views[0].neighbours(frontier, hop)
    found: dict[str, dict[tuple[str, str, str], Edge]] = {}
    for view in reversed(views):
        for id_, edges in view.neighbours(frontier, hop).items():
            found.setdefault(id_, {}).update((edge.id, edge) for edge in edges)
    return {id_: hop.first(id_, found[id_].values()) for id_ in frontier if id_ in found}


def edges_between(views: Sequence[Adjacency], ids: Sequence[str]) -> list[Edge]:
    """Return the edges with both ends among the ids, ordered by their identity."""
    ends = set(ids)
    found = neighbours_in(views, sorted(ends), Hop(Direction.OUT))
    edges = {edge.id: edge for own in found.values() for edge in own if edge.target in ends}
    return [edges[id_] for id_ in sorted(edges)]


def names_in(views: Sequence[Adjacency]) -> list[tuple[str, str]]:
    """Return name and id of every entity, one pair an alias, sorted."""
    return sorted(
        {
            (name, id_)
            for view in views
            for id_, entry in list(view.nodes.items())
            for name in entry.names
        }
    )


def load_edges(
    rows: Iterable[tuple[int, str, int, float, str | None]],
    ids: Sequence[str],
    views: Sequence[Adjacency],
) -> None:
    """Fill adjacencies that have no edges yet.

    Lists that grow one by one all over memory take twice as long as edges that are sorted first.

    Args:
        rows: Keys of both ends around the type, the weight, and the payload; None for none.
        ids: Id of each node, at the place of its key.
        views: Adjacency of each node, likewise.
    """
    types: dict[str, str] = {}
    make, once = tuple.__new__, types.setdefault  # half of what Edge(...) costs
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
def no_collection() -> Iterator[None]:
    """Make objects without the garbage collector, and then make all of them old."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Both together make everything old without looking at it: a million new objects would
        # otherwise be gone through at once. To count what is frozen takes as long as there is.
        if gc.get_count()[0] > _MANY_OBJECTS and gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
