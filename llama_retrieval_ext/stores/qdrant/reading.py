"""Reads nodes back with their embeddings, by id or all that match."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_client import models

from llama_retrieval_ext.stores.nodes.stored_node import node_from_text
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.payload import NODE
from llama_retrieval_ext.stores.qdrant.manifest import DENSE
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk
from llama_retrieval_ext.stores.qdrant.written import as_filter

_PAGE: Final = 256


def matching_nodes(
    collection: str, clause: Clause | None, *, order: Sequence[str] | None
) -> Talk[list[BaseNode]]:
    """Every node that matches, with its embedding.

    Args:
        collection: The collection's name.
        clause: What they match; None for all.
        order: Node ids in the order wanted; None for ascending ids.
    """
    nodes: dict[str, BaseNode] = {}
    offset: models.ExtendedPointId | None = None
    while True:
        records, offset = yield Request(
            "scroll",
            {
                "collection_name": collection,
                "scroll_filter": None if clause is None else as_filter(clause),
                "limit": _PAGE,
                "offset": offset,
                "with_payload": [NODE],
                "with_vectors": [DENSE],
            },
        )
        nodes |= {node.node_id: node for node in map(_node, records)}
        if offset is None:
            break
    ids = sorted(nodes) if order is None else dict.fromkeys(order)
    return [nodes[node_id] for node_id in ids if node_id in nodes]


def count_matching(collection: str, clause: Clause | None) -> Talk[int]:
    """How many nodes match."""
    wanted = None if clause is None else as_filter(clause)
    answer = yield Request(
        "count", {"collection_name": collection, "count_filter": wanted, "exact": True}
    )
    count: int = answer.count
    return count


def _node(record: models.Record) -> BaseNode:
    node = node_from_text((record.payload or {})[NODE])
    vectors = record.vector
    vector = vectors.get(DENSE) if isinstance(vectors, dict) else None
    if isinstance(vector, list):
        node.embedding = [float(number) for number in vector if isinstance(number, int | float)]
    return node
