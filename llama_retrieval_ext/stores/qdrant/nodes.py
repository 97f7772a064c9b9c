"""Steps that add, read, count and delete nodes."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_client import models

from llama_retrieval_ext.execution.plan import Steps
from llama_retrieval_ext.stores.encoding.node_json import node_from_text
from llama_retrieval_ext.stores.qdrant.client import Request
from llama_retrieval_ext.stores.qdrant.collection import QdrantCollection
from llama_retrieval_ext.stores.qdrant.errors import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.filters import as_filter
from llama_retrieval_ext.stores.qdrant.schema import BM25, DENSE
from llama_retrieval_ext.stores.qdrant_common.filters import Clause
from llama_retrieval_ext.stores.qdrant_common.points import (
    NODE,
    USUAL_LENGTH,
    Batch,
    Weighed,
    mean_length,
    prepare_batches,
)

# A server takes 32 MB a request; a node with a vector of 1,500 numbers is some 40 kB.
BATCH: Final = 128


def add_nodes(collection: QdrantCollection, nodes: Sequence[BaseNode]) -> Steps[None]:
    """Add nodes, or replace those with the same id."""
    known = (yield from collection.look_up()) or collection.config
    batches: list[Batch] = yield lambda: prepare_batches(
        nodes, size=BATCH, config=known, where=collection.where
    )
    dimension, average = len(batches[0].vectors[0]), mean_length(batches)
    for batch in batches:
        try:
            yield from _upsert(collection, batch, dimension, average)
        except CollectionMissingError:  # another process has cleared it
            collection.forget()
            yield from _upsert(collection, batch, dimension, average)


def delete_nodes(collection: str, clause: Clause) -> Steps[None]:
    """Delete the points that match."""
    selector = models.FilterSelector(filter=as_filter(clause))
    yield Request(
        "delete", {"collection_name": collection, "points_selector": selector, "wait": True}
    )


def _upsert(
    collection: QdrantCollection, batch: Batch, dimension: int, average: float
) -> Steps[None]:
    config = yield from collection.create(dimension=dimension, average_length=average)
    yield from collection.add_indexes(batch.payloads)
    points = yield lambda: _points(batch, config.average_length or USUAL_LENGTH)
    yield Request("upsert", {"collection_name": collection.name, "points": points, "wait": True})


def _points(batch: Batch, average_length: float) -> list[models.PointStruct]:
    return [
        models.PointStruct(
            id=str(ready.id),
            vector={DENSE: ready.vector, BM25: _sparse_vector(ready.weighed)},
            payload=ready.payload,
        )
        for ready in batch.ready(average_length=average_length)
    ]


def _sparse_vector(weighed: Weighed) -> models.SparseVector:
    ids, weights = weighed
    return models.SparseVector(indices=ids, values=weights)


_PAGE: Final = 256


def matching_nodes(collection: str, clause: Clause | None) -> Steps[list[BaseNode]]:
    """Return the nodes that match, with embeddings."""
    nodes: list[BaseNode] = []
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
        nodes += map(_node, records)
        if offset is None:
            return nodes


def count_matching(collection: str, clause: Clause | None) -> Steps[int]:
    """Count the nodes that match."""
    filter_ = None if clause is None else as_filter(clause)
    answer = yield Request(
        "count", {"collection_name": collection, "count_filter": filter_, "exact": True}
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
