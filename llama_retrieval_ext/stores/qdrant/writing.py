"""Adds nodes to a collection: all of a call are checked first, then they are sent in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_client import models

from llama_retrieval_ext.stores.nodes.vectors import Vectors, document_vectors
from llama_retrieval_ext.stores.points.clauses import Clause
from llama_retrieval_ext.stores.points.manifest import Manifest
from llama_retrieval_ext.stores.points.payload import Payload, payload_of
from llama_retrieval_ext.stores.points.point_id import point_id
from llama_retrieval_ext.stores.points.terms import NO_TERM, Terms, terms_of
from llama_retrieval_ext.stores.qdrant.collection import Collection
from llama_retrieval_ext.stores.qdrant.failures import CollectionMissingError
from llama_retrieval_ext.stores.qdrant.manifest import BM25, DENSE
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk, Work
from llama_retrieval_ext.stores.qdrant.written import as_filter

# A server takes 32 MB a request; a node with a vector of 1,500 numbers is some 40 kB.
BATCH: Final = 128
_NO_TERMS: Final = models.SparseVector(indices=[NO_TERM], values=[0.0])


@dataclass(frozen=True, slots=True)
class _Batch:
    """Nodes that are ready to be sent, but for the weights of their terms."""

    nodes: Sequence[BaseNode]
    vectors: Vectors
    terms: Terms
    payloads: Sequence[Payload]


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
    batches: list[_Batch] = yield Work(lambda: _checked(unique, known, collection.where))
    average = sum(sum(batch.terms.lengths) for batch in batches) / len(unique)
    dimension = len(batches[0].vectors[0])
    for batch in batches:
        # Where no node has a term there is nothing to weigh, and any average will do.
        try:
            yield from _sent(collection, batch, dimension, average or 1.0)
        except CollectionMissingError:  # somebody has cleared it
            collection.forget()
            yield from _sent(collection, batch, dimension, average or 1.0)


def deleted(collection: Collection, clause: Clause) -> Talk[None]:
    """Delete the points that match."""
    selector = models.FilterSelector(filter=as_filter(clause))
    yield Request(
        "delete", {"collection_name": collection.name, "points_selector": selector, "wait": True}
    )


def _sent(collection: Collection, batch: _Batch, dimension: int, average: float) -> Talk[None]:
    manifest = yield from collection.established(dimension=dimension, average_length=average)
    yield from collection.indexed(batch.payloads)
    points = yield Work(lambda: _points(batch, manifest.average_length or 1.0))
    yield Request("upsert", {"collection_name": collection.name, "points": points, "wait": True})


def _checked(nodes: Sequence[BaseNode], manifest: Manifest, where: str) -> list[_Batch]:
    batches = []
    for start in range(0, len(nodes), BATCH):
        some = nodes[start : start + BATCH]
        vectors = document_vectors(
            some,
            dimension=manifest.dimension or len(nodes[0].embedding or ()),
            distance=manifest.distance,
            where=where,
        )
        terms = terms_of(some, manifest.tokenizer)
        batches.append(_Batch(some, vectors, terms, [payload_of(node) for node in some]))
    return batches


def _points(batch: _Batch, average_length: float) -> list[models.PointStruct]:
    sparse = _sparse_vectors(batch.terms, average_length)
    return [
        models.PointStruct(
            id=str(point_id(node.node_id)),
            vector={DENSE: vector, BM25: weighed},
            payload=payload,
        )
        for node, vector, weighed, payload in zip(
            batch.nodes, batch.vectors, sparse, batch.payloads, strict=True
        )
    ]


def _sparse_vectors(terms: Terms, average_length: float) -> Iterator[models.SparseVector]:
    ids = terms.ids.tolist()
    weights = terms.weights(average_length=average_length)
    for start, end in pairwise(accumulate(terms.sizes, initial=0)):
        yield (
            models.SparseVector(indices=ids[start:end], values=weights[start:end])
            if end > start
            else _NO_TERMS
        )
