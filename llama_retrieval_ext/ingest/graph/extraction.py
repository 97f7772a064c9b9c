"""`Extraction`: writes entities and relations of LlamaIndex's extractors into the graph."""

from collections.abc import Sequence

from llama_index.core.graph_stores.types import (
    KG_NODES_KEY,
    KG_RELATIONS_KEY,
    TRIPLET_SOURCE_KEY,
    LabelledNode,
    Relation,
)
from llama_index.core.ingestion import run_transformations
from llama_index.core.schema import BaseNode, TransformComponent

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode
from llama_retrieval_ext.graph.passage_links import DOCUMENT_LABEL, MENTIONS, PassageLinks
from llama_retrieval_ext.ingest.graph.target import with_rows
from llama_retrieval_ext.ingest.readers.documents import Prepared, each_or_error, fingerprint_of


class Extraction:
    """Extracts entities and relations from passages for a graph.

    Args:
        links: The entities that passages are linked to; None for the default.
        extractors: LlamaIndex extractors, such as ``SimpleLLMPathExtractor``, run in order.

    Raises:
        ConfigurationError: One is not a LlamaIndex transformation.
    """

    def __init__(
        self, links: PassageLinks | None, extractors: Sequence[TransformComponent]
    ) -> None:
        links = PassageLinks() if links is None else of_type(links, PassageLinks, "links")
        for each in extractors:
            if not isinstance(each, TransformComponent):
                raise ConfigurationError(
                    f"expected LlamaIndex extractors, got {type(each).__name__}; write "
                    "kg_extractors=[SimpleLLMPathExtractor(llm=...)], for instance"
                )
        self._extractors = list(extractors)
        ner = getattr(links.ner, "__qualname__", type(links.ner).__qualname__)
        names = (links.entities, links.entity_fields, links.gazetteer)
        self.fingerprint = repr((*names, ner, fingerprint_of(extractors)))

    def extracted(self, documents: Sequence[Prepared]) -> list[Prepared | Exception]:
        """Return each document with graph rows on its nodes, or its error."""
        return each_or_error(documents, self._extracted) if self._extractors else [*documents]

    def _extracted(self, documents: Sequence[Prepared]) -> list[Prepared]:
        # Extractors modify their input.
        copies = [
            node.model_copy(update={"metadata": dict(node.metadata)})
            for document in documents
            for node in document.nodes
        ]
        made = {node.node_id: node for node in run_transformations(copies, self._extractors)}
        return [
            Prepared(
                each.key,
                each.digest,
                tuple(with_rows(node, _rows(made.get(node.node_id, node))) for node in each.nodes),
            )
            for each in documents
        ]


def extraction_for(
    graph: object, links: PassageLinks | None, extractors: Sequence[TransformComponent] | None
) -> Extraction | None:
    """Return the extraction for a graph; None without one.

    Raises:
        ConfigurationError: Graph arguments are given without a graph.
    """
    if graph is not None:
        return Extraction(links, extractors or ())
    if links is None and extractors is None:
        return None
    raise ConfigurationError(
        "links and kg_extractors are for a graph: pass graph='graph:./dir', for instance"
    )


def _rows(passage: BaseNode) -> Contents:
    """Return the extracted rows in the metadata, with an edge from the passage to each entity."""
    nodes: list[LabelledNode] = passage.metadata.get(KG_NODES_KEY) or []
    relations: list[Relation] = passage.metadata.get(KG_RELATIONS_KEY) or []
    document = {passage.ref_doc_id: f"{DOCUMENT_LABEL}:{passage.ref_doc_id}"}
    edges = [
        edge._replace(
            source=document.get(edge.source, edge.source),
            target=document.get(edge.target, edge.target),
        )
        for edge in map(Edge.from_llama_index, relations)
    ]
    named = dict.fromkeys(node.id for node in nodes)
    for edge in edges:
        if passage.node_id not in (edge.source, edge.target):  # then it is linked already
            named |= {edge.source: None, edge.target: None}
    source = {TRIPLET_SOURCE_KEY: passage.node_id}
    mentions = [Edge.of(passage.node_id, MENTIONS, name, source) for name in named]
    return Contents([*map(GraphNode.from_llama_index, nodes)], edges + mentions)
