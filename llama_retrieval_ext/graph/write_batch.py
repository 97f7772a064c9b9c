"""`WriteBatch`: the nodes and edges of one write, with their keys on disk."""

from collections.abc import Iterator, Mapping
from typing import Final

from llama_retrieval_ext.graph.adjacency import Adjacency
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Partition
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY

# The source of rows without a document.
_NO_SOURCE: Final = ""


class WriteBatch:
    """Rows of one write transaction.

    Args:
        views: Stored nodes, by partition.
        partition_keys: Keys of the existing partitions.
        next_key: The first free key of a node.

    Attributes:
        partitions: Keys of the new partitions.
        nodes: Key and node by partition and id.
        edges: Keys of both ends and the edge, by partition and identity.
        node_sources: Pairs of source and node key.
        edge_sources: Source, key of the start, type and key of the end of an edge.
        next_key: The first free key of a node after this batch.
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
        self.nodes: dict[tuple[Partition, str], tuple[int, GraphNode]] = {}
        self.edges: dict[tuple[Partition, tuple[str, str, str]], tuple[int, int, Edge]] = {}
        self.node_sources: list[tuple[str, int]] = []
        self.edge_sources: list[tuple[str, int, str, int]] = []

    def add_node(self, node: GraphNode, source: str | None) -> int:
        """Add a node, or replace the one with the same id, and return its key."""
        partition = node.partition
        key = self._key(partition, node.id)
        if key is None:
            key, self.next_key = self.next_key, self.next_key + 1
        self.nodes[partition, node.id] = (key, node)
        self.node_sources.append((source or _NO_SOURCE, key))
        if partition not in self._partition_keys and partition not in self.partitions:
            self.partitions[partition] = len(self._partition_keys) + len(self.partitions) + 1
        return key

    def add_edge(self, edge: Edge, source: str | None) -> None:
        """Add an edge, and an entity for each missing end."""
        partition = Partition.of(edge.properties)
        first, second = (self._end(partition, id_, source) for id_ in (edge.source, edge.target))
        self.edges[partition, edge.id] = (first, second, edge)
        self.edge_sources.append((source or _NO_SOURCE, first, edge.type, second))

    def node_rows(self) -> Iterator[tuple[int, int, GraphNode]]:
        """Yield the key of each node, the key of its partition, and the node."""
        keys = {**self._partition_keys, **self.partitions}
        for (partition, _), (key, node) in self.nodes.items():
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
        if (partition, id_) in self.nodes:
            return self.nodes[partition, id_][0]
        view = self._views.get(partition)
        entry = None if view is None else view.nodes.get(id_)
        return None if entry is None else entry.key
