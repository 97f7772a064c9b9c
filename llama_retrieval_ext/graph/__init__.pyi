from llama_retrieval_ext.graph.elements import Edge as Edge
from llama_retrieval_ext.graph.elements import GraphNode as GraphNode
from llama_retrieval_ext.graph.embedded_store import (
    EmbeddedPropertyGraphStore as EmbeddedPropertyGraphStore,
)
from llama_retrieval_ext.graph.entity_linking import EntityLinker as EntityLinker
from llama_retrieval_ext.graph.open import open_graph as open_graph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs as PassageGraphs
from llama_retrieval_ext.graph.passage_links import PassageLinks as PassageLinks
from llama_retrieval_ext.graph.rules.yaml import load_rules as load_rules
from llama_retrieval_ext.graph.text_to_cypher import TextToCypher as TextToCypher
