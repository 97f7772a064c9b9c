"""`PropertyGraph`: any LlamaIndex property graph store as a graph backend."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from llama_index.core.graph_stores.types import PropertyGraphStore

from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.execution.plan import Call
from llama_retrieval_ext.graph.adjacency import Adjacency, NodeEntry
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode, Hop, Partition
from llama_retrieval_ext.query import Scope

T = TypeVar("T")


class PropertyGraph:
    """Read-only graph backend that uses only ``get`` and ``get_triplets`` of a store.

    It is exact, and as fast as the store: ``SimplePropertyGraphStore`` scans all triplets for every
    hop; `EmbeddedPropertyGraphStore.from_simple` copies its contents to a faster store. It does not
    write, because these stores identify a node by its id alone, without the tenant, and deletion in
    some of them also removes neighbours. Write through the store itself.

    Args:
        store: The store. Its owner closes it.
    """

    engine = "generic"

    def __init__(self, store: PropertyGraphStore) -> None:
        self.store = store
        self.version = 0

    def __repr__(self) -> str:
        return f"PropertyGraph({type(self.store).__name__})"

    def views(self, scope: Scope | None) -> list[Adjacency]:
        """Read and return all visible rows, one adjacency per partition."""
        nodes = self._read(self.store.get)
        kept = [node for node in map(GraphNode.from_llama_index, nodes) if _sees(node, scope)]
        views: dict[Partition, Adjacency] = {}
        for key, node in enumerate(sorted(kept, key=lambda node: node.id)):
            view = views.setdefault(node.partition, Adjacency())
            view.put_nodes({node.id: NodeEntry(key, node.label, node.names)})
        for edge in self._edges_of([node.id for node in kept], scope):
            view = views[Partition.of(edge.properties)]
            if edge.source in view.nodes and edge.target in view.nodes:
                view.put_edges([edge])
        return [views[partition] for partition in sorted(views, key=lambda p: p.order)]

    def node(self, view: Adjacency, node_id: str) -> GraphNode:
        """Return a node of a view.

        Raises:
            KeyError: The node no longer exists.
        """
        del view
        return self._nodes([node_id], None)[node_id]

    def nodes(self, ids: Sequence[str], *, scope: Scope | None) -> Call[dict[str, GraphNode]]:
        """Return the visible nodes with these ids, by id."""
        return Call(lambda: self._nodes(ids, scope))

    def neighbours(
        self, frontier: Sequence[str], hop: Hop, *, scope: Scope | None
    ) -> Call[dict[str, list[Edge]]]:
        """Return the visible edges of each node of a frontier, capped and ordered."""

        def function() -> dict[str, list[Edge]]:
            visible = self._nodes(frontier, scope)
            edges: dict[str, list[Edge]] = {id_: [] for id_ in visible}
            for edge in self._edges_of(list(visible), scope):
                for id_ in {edge.source, edge.target} & edges.keys():
                    edges[id_].append(edge)
            return {id_: hop.first(id_, own) for id_, own in edges.items()}

        return Call(function)

    def edges_between(self, ids: Sequence[str], *, scope: Scope | None) -> Call[list[Edge]]:
        """Return the visible edges with both ends among the ids, ordered by their identity."""

        def function() -> list[Edge]:
            visible = self._nodes(ids, scope)
            edges = self._edges_of(list(visible), scope)
            kept = [edge for edge in edges if edge.source in visible and edge.target in visible]
            return sorted(kept, key=lambda edge: edge.id)

        return Call(function)

    def contents(self, *, scope: Scope | None) -> Call[Contents]:
        """Return every visible node, without embeddings, and every visible edge."""

        def function() -> Contents:
            read = map(GraphNode.from_llama_index, self._read(self.store.get))
            nodes = {n.id: replace(n, embedding=None) for n in read if _sees(n, scope)}
            return Contents(list(nodes.values()), self._edges_of(list(nodes), scope))

        return Call(function)

    def names(self, *, scope: Scope | None) -> Call[list[tuple[str, str]]]:
        """Return name and id of every visible entity, one pair per name or alias, sorted."""

        def function() -> list[tuple[str, str]]:
            nodes = map(GraphNode.from_llama_index, self._read(self.store.get))
            return sorted({(name, n.id) for n in nodes if _sees(n, scope) for name in n.names})

        return Call(function)

    def close(self) -> None:
        """No-op: the caller closes the store."""

    def _nodes(self, ids: Sequence[str], scope: Scope | None) -> dict[str, GraphNode]:
        wanted = list(dict.fromkeys(ids))
        if not wanted:  # for these stores an empty list means all
            return {}
        nodes = self._read(lambda: self.store.get(ids=wanted))
        kept = {node.id: GraphNode.from_llama_index(node) for node in nodes}
        return {id_: kept[id_] for id_ in wanted if id_ in kept and _sees(kept[id_], scope)}

    def _edges_of(self, ids: Sequence[str], scope: Scope | None) -> list[Edge]:
        """Return the visible edges with an end among the visible nodes with these ids."""
        if not ids:
            return []
        edges: dict[tuple[str, str, str], Edge] = {}
        for source, relation, target in self._read(lambda: self.store.get_triplets(ids=list(ids))):
            ends = GraphNode.from_llama_index(source), GraphNode.from_llama_index(target)
            # Use the nodes' ids, because some stores put names into the relation.
            properties = dict(relation.properties)
            edge = Edge.of(ends[0].id, relation.label, ends[1].id, properties)
            if all(_sees(end, scope) for end in ends) and Partition.of(properties).is_in(scope):
                edges[edge.id] = edge
        return list(edges.values())

    def _read(self, function: Callable[[], list[T]]) -> list[T]:
        try:
            return function()
        except Exception as error:
            raise StoreError(
                f"{type(self.store).__name__} failed: {type(error).__name__}: {error}"
            ) from error


def _sees(node: GraphNode, scope: Scope | None) -> bool:
    return node.partition.is_in(scope)
