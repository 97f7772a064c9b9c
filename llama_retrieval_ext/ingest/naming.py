"""Ids for fresh nodes: the same for the same text of the same document, and nobody else's."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
)

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.ingest.documents import DocumentKey

# Of this package's chunks; made up once, never to change.
_NAMESPACE = UUID("6b0a4f6e-6d2c-4a4e-9d5d-0c8b0b6f5a11")


def named(nodes: Sequence[BaseNode], key: DocumentKey) -> list[BaseNode]:
    """Copies of a document's fresh nodes under lasting ids; what refers to them is rewritten.

    An id depends on the document, the node's text, and how many nodes with that text come before
    it, so that a chunk keeps its id when something is added in front of it. Ids are UUIDs, which
    every engine takes.

    Args:
        nodes: What the transformations made of the document, in order.
        key: The document; each node gets it as its source.

    Raises:
        DuplicateNodeError: Two nodes have the same id.
    """
    seen: Counter[str] = Counter()
    ids: dict[str, str] = {}
    for node in nodes:
        if node.node_id in ids:
            raise DuplicateNodeError(
                f"the transformations gave two nodes of document {key.ref!r} the id "
                f"{node.node_id!r}; each must be a node of its own",
                node.node_id,
            )
        text = node.get_content(MetadataMode.NONE)
        ids[node.node_id] = str(uuid5(_NAMESPACE, json.dumps([*key, text, seen[text]])))
        seen[text] += 1
    return [_renamed(node, ids, key) for node in nodes]


def _renamed(node: BaseNode, ids: Mapping[str, str], key: DocumentKey) -> BaseNode:
    relationships: dict[NodeRelationship, object] = {
        kind: [_refer(each, ids) for each in related]
        if isinstance(related, list)
        else _refer(related, ids)
        for kind, related in node.relationships.items()
    }
    relationships[NodeRelationship.SOURCE] = _source(node, key)
    update: dict[str, object] = {"id_": ids[node.node_id], "relationships": relationships}
    if isinstance(node, IndexNode):
        update["index_id"] = ids.get(node.index_id, node.index_id)
    return node.model_copy(update=update)


def _refer(related: RelatedNodeInfo, ids: Mapping[str, str]) -> RelatedNodeInfo:
    if related.node_id not in ids:
        return related
    return related.model_copy(update={"node_id": ids[related.node_id]})


def _source(node: BaseNode, key: DocumentKey) -> RelatedNodeInfo:
    source = node.relationships.get(NodeRelationship.SOURCE)
    if isinstance(source, RelatedNodeInfo):
        return source.model_copy(update={"node_id": key.ref})
    return RelatedNodeInfo(node_id=key.ref, node_type=ObjectType.DOCUMENT)
