"""Adds nodes to a collection: all of a call are checked first, then they are sent in batches."""

from collections.abc import Sequence
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_client import models

from llama_retrieval_ext.stores.nodes.document_key import document_key
from llama_retrieval_ext.stores.points.batch import USUAL_LENGTH, Batch, checked, mean_length
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.payload import DOC_KEY
from llama_retrieval_ext.stores.points.terms import Weighed
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.failures import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.manifest import BM25, DENSE
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk, Work
from llama_retrieval_ext.stores.qdrant.written import as_filter

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
