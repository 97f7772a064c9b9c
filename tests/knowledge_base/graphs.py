"""What the graph of a knowledge base must hold: what a new one made of the store's nodes does."""

from typing import Any

from llama_index.core.schema import BaseNode

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.graph import Edge, GraphNode, PassageLinks
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.knowledge_base.graph import GraphTarget
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared

LINKS = PassageLinks(entity_fields=["tags"])


def rows(graph: Any, scope: Scope | None = None) -> tuple[list[str], list[str]]:
    """Every node and edge of a graph, in an order of its own; any graph backend."""
    nodes, edges = graph.contents(scope=scope)
    return sorted(map(_node, nodes)), sorted(map(_edge, edges))


def _node(node: GraphNode) -> str:
    return repr((node.id, node.label, node.name, sorted(node.properties.items()), node.text))


def _edge(edge: Edge) -> str:
    return repr((*edge.id, sorted(edge.properties.items())))


def check_in_step(kb: KnowledgeBase, *scopes: Scope) -> None:
    """Each scope sees of the graph what a graph made of its nodes in the store has."""
    for scope in scopes or (None,):
        names = sorted({document.document_id for document in kb.documents(scope=scope)})
        nodes: list[BaseNode] = [node for name in names for node in kb.get(name, scope=scope)]
        passages = Prepared(DocumentKey("", "", "all"), "", tuple(nodes))
        with EmbeddedGraph(":memory:") as expected:
            GraphTarget(expected, LINKS, "").upsert([passages])
            assert rows(kb.graph, scope) == rows(expected)
