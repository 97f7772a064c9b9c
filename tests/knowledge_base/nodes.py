"""Nodes to add, and what keyword search finds of them."""

from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase

LONG = " ".join(f"Sentence number {number} is about leave." for number in range(200))


def found(kb: KnowledgeBase, query: str = "leave") -> dict[str, str]:
    """Texts by node id, of everything that keyword search finds."""
    hits = kb.retriever("keyword", top_k=1000).retrieve(query)
    return {hit.node_id: hit.node.get_content(MetadataMode.NONE) for hit in hits}


def node_of(ref: str, id_: str, text: str, **fields: object) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=ref)}
    return TextNode(id_=id_, text=text, relationships=source, **fields)


def book(ref: str) -> list[BaseNode]:
    """The twelve nodes of a document, in the order of its text."""
    return [
        node_of(ref, f"{ref}-{n}", f"leave, {ref} {n}", start_char_idx=50 * n) for n in range(12)
    ]
