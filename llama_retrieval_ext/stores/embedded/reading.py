"""Reads nodes back with their embeddings, by id or all that match."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_edge import CountRequest, EdgeShard, Record, ScrollRequest

from llama_retrieval_ext.stores.embedded.conditions import filter_of
from llama_retrieval_ext.stores.embedded.shard import DENSE
from llama_retrieval_ext.stores.nodes.stored_node import node_from_text
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.payload import NODE
from llama_retrieval_ext.stores.points.point_id import point_id

_PAGE: Final = 1024


def matching_nodes(
    shard: EdgeShard, clause: Clause | None, *, order: Sequence[str] | None
) -> list[BaseNode]:
    """Every node that matches, with its embedding.

    Args:
        shard: Where.
        clause: What they match; None for all.
        order: Node ids in the order wanted; None for ascending ids.
    """
    nodes: dict[str, BaseNode] = {}
    offset, wanted = None, filter_of(clause)
    while True:
        request = ScrollRequest(
            offset=offset,
            limit=_PAGE,
            filter=wanted,
            with_payload=True,
            with_vector=[DENSE],
        )
        records, offset = shard.scroll(request)
        nodes |= {node.node_id: node for node in map(_node, records)}
        if offset is None:
            break
    ids = sorted(nodes) if order is None else dict.fromkeys(order)
    return [nodes[node_id] for node_id in ids if node_id in nodes]


def count_matching(shard: EdgeShard, clause: Clause | None) -> int:
    """How many nodes match."""
    return shard.count(CountRequest(exact=True, filter=filter_of(clause)))


def stored_vectors(shard: EdgeShard, node_ids: Sequence[str]) -> dict[str, list[float]]:
    """The embeddings of nodes by id, without those that are not there."""
    by_point = {point_id(node_id): node_id for node_id in node_ids}
    records = shard.retrieve(list(by_point), with_payload=False, with_vector=[DENSE])
    vectors = {record.id: record.vector for record in records}
    return {
        node_id: vector[DENSE]  # type: ignore[misc]  # a plain list by this name
        for point, node_id in by_point.items()
        if isinstance(vector := vectors.get(point), dict)
    }


def _node(record: Record) -> BaseNode:
    payload, vectors = record.payload or {}, record.vector
    node = node_from_text(payload[NODE])
    if isinstance(vectors, dict):
        node.embedding = vectors[DENSE]  # type: ignore[assignment]  # a plain list by this name
    return node
