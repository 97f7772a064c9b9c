"""`GraphTarget`: the graph of a knowledge base as a target of its writes.

Each passage is a source of rows in the graph: itself, its document, and its entities. Deleting or
replacing a passage deletes its rows, except those that other passages support.
"""

import json
from collections.abc import Mapping, Sequence

from llama_index.core.schema import BaseNode
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode
from llama_retrieval_ext.graph.passage_links import DOCUMENT_LABEL, PassageLinks, passage_rows
from llama_retrieval_ext.ingest.readers.documents import ROWS_KEY, without_rows
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY


class GraphTarget:
    """A graph as the target of writes.

    Args:
        graph: The graph.
        links: The entities that passages are linked to.
        key: Distinguishes the rows of this knowledge base from those of others in the same graph.
    """

    def __init__(self, graph: WritableGraph, links: PassageLinks, key: str) -> None:
        self._graph = graph
        self._links = links
        self._key = key

    def check(self) -> None:
        """Raise if the graph cannot be reached or was closed."""
        self._graph.nodes([], scope=None).function()

    def upsert(self, nodes: Sequence[BaseNode]) -> None:
        """Write the rows of passages, replacing their earlier rows."""
        known: set[tuple[object, str]] = set()
        said: dict[str, Contents] = {}
        for node in nodes:
            rows = self._rows(node)
            # The first passage writes the row of its document; edges of the others support it.
            own = {(n.partition, n.id): n for n in rows.nodes if n.label == DOCUMENT_LABEL}
            kept = [n for n in rows.nodes if (n.partition, n.id) not in own.keys() & known]
            known |= own.keys()
            said[self._source(node.node_id)] = Contents(kept, rows.edges)
        if said:
            self._graph.replace_sources(said).function()

    def delete(self, node_ids: Sequence[str]) -> None:
        """Delete the rows of passages; missing ids are ignored."""
        self._graph.delete_sources([*map(self._source, node_ids)], scope=None).function()

    def flush(self) -> None:
        """No-op: graphs write to disk at once."""

    def copy_unsaid_to(self, other: WritableGraph) -> None:
        """Copy the rows that come from no document, such as an equipment graph."""
        rows = self._graph.said_by([""]).function()[""]
        if rows.nodes or rows.edges:
            other.upsert(*rows).function()

    def rows_of(self, node_ids: Sequence[str]) -> dict[str, Contents]:
        """Return the rows of each passage, without the passage itself."""
        ids = {self._source(node_id): node_id for node_id in node_ids}
        found = self._graph.said_by(list(ids)).function()
        return {
            ids[source]: Contents([n for n in rows.nodes if n.id != ids[source]], rows.edges)
            for source, rows in found.items()
        }

    def _source(self, node_id: str) -> str:
        return f"{self._key}:{node_id}"

    def _rows(self, node: BaseNode) -> Contents:
        metadata = to_jsonable_python(
            without_rows(node).metadata, inf_nan_mode="null", serialize_unknown=True
        )
        passage = node.model_copy(update={"metadata": metadata})
        nodes, edges = passage_rows([passage], self._links)
        # Entities are written as ends of edges only, so that their existing rows stay.
        nodes = [each for each in nodes if each.is_passage or each.label == DOCUMENT_LABEL]
        packed = node.metadata.get(ROWS_KEY)
        if packed is None:
            return Contents(nodes, edges)
        more = unpacked_rows(packed, _scope_of(metadata))
        return Contents(nodes + more.nodes, edges + more.edges)


def _scope_of(metadata: Mapping[str, object]) -> dict[str, object]:
    return {key: metadata[key] for key in (TENANT_KEY, KB_KEY) if key in metadata}


def with_rows(node: BaseNode, rows: Contents) -> BaseNode:
    """Return a copy of a node with rows for the graph in its metadata."""
    nodes = [
        (each.id, each.label, each.name, dict(each.properties), each.text, each.embedding)
        for each in rows.nodes
    ]
    edges = [(*edge.id, edge.properties) for edge in rows.edges]
    packed = json.dumps(
        to_jsonable_python([nodes, edges], inf_nan_mode="null", serialize_unknown=True)
    )
    return node.model_copy(update={"metadata": {**node.metadata, ROWS_KEY: packed}})


def unpacked_rows(packed: str, scope: Mapping[str, object]) -> Contents:
    """Return the rows in the metadata of a node, each in the scope of the node."""
    nodes, edges = json.loads(packed)
    return Contents(
        [
            GraphNode(id_, label, name, _scoped(properties, scope), text, embedding)
            for id_, label, name, properties, text, embedding in nodes
        ],
        [
            Edge.of(source, type_, target, _scoped(properties, scope))
            for source, type_, target, properties in edges
        ],
    )


def _scoped(properties: Mapping[str, object], scope: Mapping[str, object]) -> dict[str, object]:
    own = {key: value for key, value in properties.items() if key not in (TENANT_KEY, KB_KEY)}
    return {**own, **scope}
