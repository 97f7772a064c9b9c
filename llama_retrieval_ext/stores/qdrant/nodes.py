"""Adds nodes to a collection: all of a call are checked first, then they are sent in batches."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_client import models

from llama_retrieval_ext.stores.encoding.node_json import node_from_text
from llama_retrieval_ext.stores.encoding.values import document_key
from llama_retrieval_ext.stores.qdrant.client import Request, Talk, Work
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.errors import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.params import BM25, DENSE
from llama_retrieval_ext.stores.qdrant_common.filters import Clause
from llama_retrieval_ext.stores.qdrant_common.points import (
    DOC_KEY,
    NODE,
    USUAL_LENGTH,
    Batch,
    Weighed,
    checked,
    mean_length,
)

# A server takes 32 MB a request; a node with a vector of 1,500 numbers is some 40 kB.
BATCH: Final = 128


def added(collection: Collection, nodes: Sequence[BaseNode]) -> Talk[None]:
    """Add nodes, or replace those with the same id; of several with one id the last counts.

    Args:
        collection: Where to.
        nodes: Each with its embedding.

    Raises:
        ConfigurationError: A node has no embedding or a broken one, or cannot be stored; nothing
            was sent.
        DimensionMismatchError: A node has an embedding of another dimension; nothing was sent.
        StoreUnavailableError: The server cannot be reached; the batches before it stay.
    """
    unique = list({node.node_id: node for node in nodes}.values())
    if not unique:
        return
    known = (yield from collection.looked_at()) or collection.manifest
    batches: list[Batch] = yield Work(
        lambda: checked(unique, size=BATCH, manifest=known, where=collection.where)
    )
    dimension, average = len(batches[0].vectors[0]), mean_length(batches)
    for batch in batches:
        try:
            yield from _sent(collection, batch, dimension, average)
        except CollectionMissingError:  # somebody has cleared it
            collection.forget()
            yield from _sent(collection, batch, dimension, average)


def deleted(collection: Collection, clause: Clause) -> Talk[None]:
    """Delete the points that match."""
    selector = models.FilterSelector(filter=as_filter(clause))
    yield Request(
        "delete", {"collection_name": collection.name, "points_selector": selector, "wait": True}
    )


def _sent(collection: Collection, batch: Batch, dimension: int, average: float) -> Talk[None]:
    manifest = yield from collection.established(dimension=dimension, average_length=average)
    yield from collection.indexed(batch.payloads)
    points = yield Work(lambda: _points(batch, manifest.average_length or USUAL_LENGTH))
    yield Request("upsert", {"collection_name": collection.name, "points": points, "wait": True})


def _points(batch: Batch, average_length: float) -> list[models.PointStruct]:
    return [
        models.PointStruct(
            id=str(ready.id),
            vector={DENSE: ready.vector, BM25: _sparse_vector(ready.weighed)},
            payload={DOC_KEY: document_key(node), **ready.payload},
        )
        for node, ready in zip(batch.nodes, batch.ready(average_length=average_length), strict=True)
    ]


def _sparse_vector(weighed: Weighed) -> models.SparseVector:
    ids, weights = weighed
    return models.SparseVector(indices=ids, values=weights)


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
