"""Graphs: backends, expansion by hops, entity linking and rules."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.graph.elements import Edge, GraphNode
    from llama_retrieval_ext.graph.embedded_store import EmbeddedPropertyGraphStore
    from llama_retrieval_ext.graph.entity_linking import EntityLinker
    from llama_retrieval_ext.graph.open import open_graph
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
    from llama_retrieval_ext.graph.passage_links import PassageLinks
    from llama_retrieval_ext.graph.rules.inference import ProcessRequirements
    from llama_retrieval_ext.graph.rules.yaml import load_rules
    from llama_retrieval_ext.graph.text_to_cypher import TextToCypher


__all__ = [
    "Edge",
    "EmbeddedPropertyGraphStore",
    "EntityLinker",
    "GraphNode",
    "PassageGraphs",
    "PassageLinks",
    "ProcessRequirements",
    "TextToCypher",
    "load_rules",
    "open_graph",
]

# A type checker that sees these accepts any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.graph.text_to_cypher": ("TextToCypher",),
        "llama_retrieval_ext.graph.rules.inference": ("ProcessRequirements",),
        "llama_retrieval_ext.graph.elements": ("Edge", "GraphNode"),
        "llama_retrieval_ext.graph.embedded_store": ("EmbeddedPropertyGraphStore",),
        "llama_retrieval_ext.graph.entity_linking": ("EntityLinker",),
        "llama_retrieval_ext.graph.open": ("open_graph",),
        "llama_retrieval_ext.graph.passage_graphs": ("PassageGraphs",),
        "llama_retrieval_ext.graph.passage_links": ("PassageLinks",),
        "llama_retrieval_ext.graph.rules.yaml": ("load_rules",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
