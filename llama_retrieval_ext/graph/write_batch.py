"""`WriteBatch`: the rows of one write to the embedded graph, and what each source says of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.elements import Edge, EdgeId, GraphNode, Partition, allowed_of
from llama_retrieval_ext.graph.sqlite_rows import UNSAID, GraphRows, Restrictions, Said
from llama_retrieval_ext.query import ALLOWED_KEY, KB_KEY, TENANT_KEY

# The source of rows without a document.
_NO_SOURCE: Final = ""


class WriteBatch:
    """Rows of one write transaction, with their keys on disk.

    Attributes:
        partitions: Keys of the new partitions.
        nodes: Key and node by id, by partition.
        edges: Keys of both ends and the edge by identity, by partition.
        node_sources: Source, its principals, the node unless it only names it, and node key.
        edge_sources: Source, its principals, the edge, and the keys of its ends and its type.
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
        self._named: set[tuple[str, int]] = set()
        self.node_sources: list[tuple[str, tuple[str, ...], GraphNode | None, int]] = []
        self.edge_sources: list[tuple[str, tuple[str, ...], Edge, tuple[int, str, int]]] = []

    def add_node(self, node: GraphNode, source: str | None, *, is_end: bool = False) -> int:
        """Add a node, or replace the one with the same id, and return its key."""
        partition, allowed = node.partition, allowed_of(node.properties)
        node = node.stored()
        key = self._key(partition, node.id)
        if key is None:
            key, self.next_key = self.next_key, self.next_key + 1
        self.nodes[partition][node.id] = (key, node)
        self.node_sources.append((source or _NO_SOURCE, allowed, None if is_end else node, key))
        self._named.add((source or _NO_SOURCE, key))
        if partition not in self._partition_keys and partition not in self.partitions:
            self.partitions[partition] = len(self._partition_keys) + len(self.partitions) + 1
        return key

    def add_edge(self, edge: Edge, source: str | None) -> None:
        """Add an edge, and an entity for each missing end."""
        properties = edge.properties
        partition, allowed = Partition.of(properties), allowed_of(properties)
        edge = edge.stored()
        ends = edge.source, edge.target
        first, second = (self._end(partition, id_, source, allowed) for id_ in ends)
        self.edges[partition][edge.id] = (first, second, edge)
        self.edge_sources.append((source or _NO_SOURCE, allowed, edge, (first, edge.type, second)))

    def _node_rows(self) -> Iterator[tuple[int, int, GraphNode]]:
        """Yield the key of each node, the key of its partition, and the node."""
        keys = {**self._partition_keys, **self.partitions}
        for partition, own in self.nodes.items():
            for key, node in own.values():
                yield key, keys[partition], node

    def write(self, rows: GraphRows) -> None:
        """Write new partitions, the nodes and edges, and what each source says of them."""
        for partition, key in self.partitions.items():
            rows.add_partition(key, partition)
        nodes = {key: node for own in self.nodes.values() for key, node in own.values()}
        edges = [row for edge in self.edges.values() for row in edge.values()]
        last = {(first, edge.type, second): edge for first, second, edge in edges}
        rows.keep_said(nodes, self._replaced_edges())
        rows.put_nodes(self._node_rows())
        rows.put_edges(edges)
        rows.support(
            (
                (source, allowed, _said(node, beside=nodes.get(key)), key)
                for source, allowed, node, key in self.node_sources
            ),
            (
                (source, allowed, None if edge == last[ends] else edge.payload, *ends)
                for source, allowed, edge, ends in self.edge_sources
            ),
        )

    def restore(self, rows: GraphRows, nodes: Sequence[int], edges: Sequence[int]) -> None:
        """Write what a remaining source says of rows whose content no source says any more."""
        others, links = rows.outdated(nodes, edges)
        keys = {**self._partition_keys, **self.partitions}
        rows.put_nodes((key, keys[node.partition], node) for key, node in others.items())
        rows.put_edges((first, second, edge) for (first, _, second), edge in links.items())
        for key, node in others.items():
            self.nodes[node.partition][node.id] = key, node
        for (first, _, second), edge in links.items():
            self.edges[Partition.of(edge.properties)][edge.id] = first, second, edge

    def _replaced_edges(self) -> Iterator[tuple[tuple[int, str, int], Edge]]:
        """Yield the stored edges that will have other properties."""
        for partition, own in self.edges.items():
            view = self._views.get(partition)
            for id_, edge in {} if view is None else view.edges(own).items():
                first, second, new = own[id_]
                if edge != new:
                    yield (first, edge.type, second), edge

    def restrictions(
        self, rows: GraphRows, nodes: Sequence[int], edges: Sequence[int]
    ) -> dict[int, Restrictions]:
        """Return who may see the written rows, and these others, by the key of their partition."""
        supports = (*self.node_sources, *self.edge_sources)
        if not any(support[1] for support in supports) and not self._is_restricted:
            return {}
        ends = (edge_source[3] for edge_source in self.edge_sources)
        own = [node_source[3] for node_source in self.node_sources]
        return rows.restrictions({*own, *nodes}, {*rows.edge_keys(ends), *edges})

    @property
    def _is_restricted(self) -> bool:
        return any(view.restricted or view.said for view in self._views.values())

    def _end(
        self, partition: Partition, id_: str, source: str | None, allowed: tuple[str, ...]
    ) -> int:
        key = self._key(partition, id_)
        if key is None:
            names = {TENANT_KEY: partition.tenant_id, KB_KEY: partition.kb_id}
            properties: dict[str, object] = {k: v for k, v in names.items() if v is not None}
            if allowed:
                properties[ALLOWED_KEY] = allowed
            return self.add_node(GraphNode(id_, properties=properties), source, is_end=True)
        # The source of an edge supports its ends, unless it names them as nodes.
        if source and (source, key) not in self._named:
            self.node_sources.append((source, allowed, None, key))
        return key

    def _key(self, partition: Partition, id_: str) -> int | None:
        if id_ in self.nodes[partition]:
            return self.nodes[partition][id_][0]
        view = self._views.get(partition)
        entry = None if view is None else view.nodes.get(id_)
        return None if entry is None else entry.key


def _said(node: GraphNode | None, *, beside: GraphNode | None) -> Said:
    """Return what a source says of a node, beside the stored content; None if it is the same."""
    if node is None:
        return UNSAID
    return None if node == beside else node.said
