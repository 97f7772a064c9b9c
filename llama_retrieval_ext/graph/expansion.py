"""Expansion by hops: the nodes within a number of hops, with distances and paths."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.scope import Scope


class Path(NamedTuple):
    """A walk through the graph.

    Attributes:
        nodes: Ids from start to end, one more than edges.
        edges: The edges between them, each in either direction.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...] = ()

    def __str__(self) -> str:
        """Return the path in words.

        Examples:
            >>> print(Path(("a", "b"), (Edge("b", "NAMES", "a"),)))
            a <-NAMES- b

        """
        parts = [self.nodes[0]]
        for at, edge, to in zip(self.nodes, self.edges, self.nodes[1:], strict=False):
            arrow = f"-{edge.type}->" if edge.source == at else f"<-{edge.type}-"
            parts += [arrow, to]
        return " ".join(parts)


class Expansion:
    """All nodes within a number of hops of the seeds, nearest first.

    Attributes:
        distances: Hops from the nearest seed by node id; 0 for a seed. In the order of discovery:
            by distance, then by the order of the edges.
    """

    __slots__ = ("_came_by", "distances")

    def __init__(self, seeds: Sequence[str]) -> None:
        self.distances: dict[str, int] = dict.fromkeys(seeds, 0)
        self._came_by: dict[str, tuple[str, Edge]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.distances)

    def __len__(self) -> int:
        return len(self.distances)

    def path(self, node_id: str) -> Path:
        """Return a shortest path from a seed to the node; the choice is deterministic.

        Raises:
            KeyError: The node was not reached.
        """
        nodes: list[str] = [node_id]
        edges: list[Edge] = []
        while self.distances[nodes[-1]] > 0:
            before, edge = self._came_by[nodes[-1]]
            nodes.append(before)
            edges.append(edge)
        return Path(tuple(nodes[::-1]), tuple(edges[::-1]))

    def add(self, edges: Mapping[str, Sequence[Edge]], distance: int, *, limit: int) -> list[str]:
        """Add the edges of a frontier and return the new nodes."""
        distances, came_by = self.distances, self._came_by
        new: list[str] = []
        for node_id, incident in edges.items():
            for edge in incident:
                other = edge[2] if edge[0] == node_id else edge[0]
                if other not in distances:
                    if len(distances) >= limit:
                        return new
                    distances[other] = distance
                    came_by[other] = (node_id, edge)
                    new.append(other)
        return new


def plan_expand(
    backend: GraphBackend,
    seeds: Sequence[str],
    *,
    max_hops: int,
    hop: Hop = Hop(fan_out=50),  # noqa: B008 - frozen
    limit: int = 10_000,
    scope: Scope | None = None,
) -> Plan[Expansion]:
    """Expand from the seeds with one request to the engine per hop.

    Args:
        backend: The graph.
        seeds: Ids to start from; invisible ones are ignored.
        max_hops: Maximum distance, at least 1.
        hop: Which edges a hop follows. The distance is exact among these edges.
        limit: Maximum number of nodes in the result, including the seeds.
        scope: The rows that are visible.

    Raises:
        ConfigurationError: A number is out of range.
    """
    check_count(max_hops, "max_hops")
    check_count(limit, "limit")
    frontier = list(dict.fromkeys(seeds))[:limit]
    expansion = Expansion(())
    for distance in range(1, max_hops + 1):
        if not frontier or len(expansion) >= limit:
            break
        edges = yield backend.plan_neighbours(frontier, hop, scope=scope)
        if distance == 1:
            expansion = Expansion([id_ for id_ in frontier if id_ in edges])
        frontier = expansion.add(edges, distance, limit=limit)
    return expansion


expand, aexpand = callers(plan_expand)


def expand_each(  # noqa: PLR0913 - one more than `plan_expand`
    backend: GraphBackend,
    seeds: Sequence[str],
    *,
    max_hops: int,
    hop: Hop,
    limit: int,
    scope: Scope | None,
    passable: Callable[[GraphNode], bool] | None = None,
) -> Plan[dict[str, Expansion]]:
    """Expand as `expand` from each seed separately, with one request per hop for all of them.

    ``passable`` filters the nodes to enter, at the cost of one more request per hop.
    """
    edges_of: dict[str, list[Edge]] = {}
    entered: dict[str, bool] = {}
    expansions = {seed: Expansion([seed]) for seed in dict.fromkeys(seeds)}
    frontiers = {seed: [seed] for seed in expansions}
    for distance in range(1, max_hops + 1):
        new = sorted({id_ for frontier in frontiers.values() for id_ in frontier} - edges_of.keys())
        neighbours = (yield backend.plan_neighbours(new, hop, scope=scope)) if new else {}
        edges_of.update({id_: neighbours.get(id_, []) for id_ in new})
        if distance == 1:
            expansions = {
                seed: expansion for seed, expansion in expansions.items() if seed in neighbours
            }
        if passable is not None:
            others = {e.other(id_) for id_ in new for e in edges_of[id_]} - entered.keys()
            nodes = (yield backend.plan_nodes(sorted(others), scope=scope)) if others else {}
            entered.update({id_: id_ in nodes and passable(nodes[id_]) for id_ in others})
        for seed, expansion in expansions.items():
            edges = {
                id_: [edge for edge in edges_of[id_] if entered.get(edge.other(id_), True)]
                for id_ in frontiers[seed]
            }
            frontiers[seed] = expansion.add(edges, distance, limit=limit)
    return expansions
