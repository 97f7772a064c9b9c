"""Nodes made into the engine's points, in batches."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from llama_index.core.schema import BaseNode
from qdrant_edge import Point, SparseVector

from llama_retrieval_ext.stores.embedded.shard import BM25, DENSE
from llama_retrieval_ext.stores.nodes.vectors import Vectors
from llama_retrieval_ext.stores.points.payload import Payload
from llama_retrieval_ext.stores.points.point_id import point_id
from llama_retrieval_ext.stores.points.terms import NO_TERM, Terms

_NO_TERMS: Final = SparseVector([NO_TERM], [0.0])


def points_of(
    nodes: Sequence[BaseNode],
    *,
    vectors: Vectors,
    terms: Terms,
    payloads: Sequence[Payload],
    average_length: float,
) -> list[Point]:
    """One point a node, with its embedding, its keyword weights and its payload."""
    sparse = _sparse_vectors(terms, average_length)
    return [
        Point(point_id(node.node_id), {DENSE: vector, BM25: weighed}, payload)
        for node, vector, weighed, payload in zip(nodes, vectors, sparse, payloads, strict=True)
    ]


def _sparse_vectors(terms: Terms, average_length: float) -> Iterator[SparseVector]:
    ids = terms.ids.tolist()
    weights = terms.weights(average_length=average_length)
    for start, end in pairwise(accumulate(terms.sizes, initial=0)):
        yield SparseVector(ids[start:end], weights[start:end]) if end > start else _NO_TERMS
