"""Nodes made into the engine's points, in batches."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha1
from itertools import accumulate, pairwise
from typing import Final
from uuid import NAMESPACE_OID, UUID

import numpy as np
from llama_index.core.schema import BaseNode
from qdrant_edge import Point, SparseVector

from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from llama_retrieval_ext.stores.embedded.keyword_text import keyword_text
from llama_retrieval_ext.stores.embedded.payload import Payload
from llama_retrieval_ext.stores.embedded.shard import BM25, DENSE
from llama_retrieval_ext.stores.embedded.vectors import Vectors
from llama_retrieval_ext.text.tokenizer import Tokenizer

# A text without terms still counts as a document: without a sparse vector, the engine would leave
# it out of the number of documents in IDF.
NO_TERM: Final = 2**32 - 1
_NO_TERMS: Final = SparseVector([NO_TERM], [0.0])


@dataclass(frozen=True, slots=True)
class Terms:
    """The counted terms of some texts, end to end: a few bytes a term, so that many fit.

    Attributes:
        ids: Term ids of the first text, then of the second, and so on.
        counts: How often each is there.
        sizes: How many of the ids each text has.
        lengths: How many terms each text has, repetitions included.
    """

    ids: "array[int]"
    counts: "array[int]"
    sizes: "array[int]"
    lengths: "array[int]"

    def weights(self, *, average_length: float) -> list[float]:
        """What each term says about its text, but for its rarity, which the engine knows."""
        weights: list[float] = bm25_term_weight(
            np.array(self.counts, dtype=np.float64),
            length=np.repeat(self.lengths, self.sizes),
            average_length=average_length,
        ).tolist()
        return weights


def terms_of(nodes: Sequence[BaseNode], tokenizer: Tokenizer) -> Terms:
    """The counted terms of what keyword search sees of nodes."""
    terms = Terms(array("I"), array("I"), array("I"), array("I"))
    for node in nodes:
        counted = tokenizer.term_counts(keyword_text(node))
        terms.ids.extend(counted)
        terms.counts.extend(counted.values())
        terms.sizes.append(len(counted))
        terms.lengths.append(sum(counted.values()))
    return terms


def point_id(node_id: str) -> UUID:
    """The engine's id for a node id: any string, one id each, the same for ever."""
    # uuid5, but for lone surrogates, which it refuses.
    name = NAMESPACE_OID.bytes + node_id.encode("utf-8", "surrogatepass")
    return UUID(bytes=sha1(name, usedforsecurity=False).digest()[:16], version=5)


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
