"""Adjacencies from what documents claim on disk."""

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

import numpy as np

from llama_retrieval_ext.graph.adjacency import Adjacency, ClaimedEdge, NodeEntry
from llama_retrieval_ext.graph.elements import Claims, Direction, Edge, GraphNode, Partition
from llama_retrieval_ext.graph.sqlite_rows import EdgeKey, GraphRows
from llama_retrieval_ext.graph.validity import (
    When,
    claimed_edge,
    entity_at,
    fact_of,
    has_dates,
    is_dated,
)

T = TypeVar("T")
_MANY_OBJECTS: Final = 100_000
_ById: TypeAlias = list[str] | Mapping[int, str]


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
        for (key,) in rows.dated_nodes():
            homes[key].dated_nodes.add(ids[key])
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
        elif is_dated(edge):
            views[source].is_dated = True
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
            principals(allowed): _entry(key, claim, *content)
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
        if any(claim[4] and has_dates(claim[4]) for claim in claims):
            facts = [(principals(c[5]), Edge(*ends, c[3], c[4] or "{}")) for c in claims]
            edge = claimed_edge(facts) or edge
        elif allowed:
            by_principals: dict[frozenset[str], Edge] = {}
            for *_, weight, payload, allowed, _ in claims:
                claimed = Edge(*ends, weight, payload or "{}")
                by_principals.setdefault(principals(allowed), claimed)
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
def principals(allowed: str) -> frozenset[str]:
    """Return the principals in a claim on disk; none are everyone."""
    return frozenset(allowed.split("\n") if allowed else ())


def entities_at(
    rows: GraphRows, dated: Mapping[int, tuple[GraphNode, When]]
) -> Iterator[GraphNode]:
    """Yield entities, which are by key, with the properties that hold at a time."""
    for key, group in groupby(rows.properties_of(dated), itemgetter(0)):
        claims = [(principals(row[1]), fact_of(json.loads(row[2]))) for row in group]
        yield entity_at(*dated[key], claims)


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
