"""The sparse vectors of nodes and queries, whose product is the score of keyword search.

One vector has the terms of all fields: a field's term is its id, XORed with a mask of the field. So
one search answers for all fields, the engine computes IDF by field, and the weights of the fields
are those of the query.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from llama_retrieval_ext.schema import EVERYTHING, TEXT, Schema
from llama_retrieval_ext.text.segmentation import term_id
from llama_retrieval_ext.text.tokenizer import Tokenizer

# Term ids and their weights.
Weighed: TypeAlias = tuple[list[int], list[float]]
_Numbers: TypeAlias = npt.NDArray[np.integer[Any]]

# Term of texts without terms: without a sparse vector, the engine would not include such texts in
# the document count of IDF.
NO_TERM: Final = 2**32 - 1
_ID_BITS: Final = np.uint64(32)
_ID_BYTES: Final = 4
_NO_NUMBER: Final = np.uint64(2**64 - 1)
# Texts in our test collections have 50 to 110 terms on average, titles 3. Too large a value does
# less harm than too small a value.
_USUAL_LENGTHS: Final = {EVERYTHING: 100.0, TEXT: 100.0}
_USUAL_LENGTH: Final = 5.0
_USUAL_NODES: Final = 10


@cache
def mask_of(name: str) -> int:
    """Return the mask of the terms of a field."""
    return 0 if name == EVERYTHING else term_id(name)


@dataclass(frozen=True, slots=True)
class Terms:
    """Term counts of several nodes in concatenated arrays, to save memory.

    Attributes:
        fields: The fields of each node, in their order.
        ids: Distinct term ids of the first field of the first node, then of its next, and so on.
        counts: Number of occurrences of each id.
        sizes: Number of ids per node and field.
        lengths: Number of terms per node and field, repetitions included.
    """

    fields: tuple[str, ...]
    ids: _Numbers
    counts: _Numbers
    sizes: _Numbers
    lengths: _Numbers

    def weighed(self, average_lengths: Mapping[str, float]) -> Iterator[Weighed]:
        """Yield the BM25 weights of each node without IDF, which the engine computes."""
        averages = [average_lengths.get(name) or _usual_length(name) for name in self.fields]
        sizes = self.sizes.reshape(-1, len(self.fields))
        lengths = self.lengths.reshape(-1, len(self.fields)) / averages
        masks = np.array([*map(mask_of, self.fields)], dtype=np.uint32)
        ids = (self.ids ^ np.repeat(np.tile(masks, len(sizes)), self.sizes)).tolist()
        weights: list[float] = bm25_term_weight(
            self.counts.astype(np.float64),
            length=np.repeat(lengths.ravel(), self.sizes),
            average_length=1.0,
        ).tolist()
        for start, end in pairwise(accumulate(sizes.sum(axis=1).tolist(), initial=0)):
            terms = ids[start:end], weights[start:end]
            if len(set(terms[0])) < end - start:  # two fields' terms have one id: 1 of 300,000
                unique = dict(zip(*terms, strict=True))
                terms = list(unique), list(unique.values())
            yield terms if end > start else ([NO_TERM], [0.0])


def terms_of(nodes: Sequence[BaseNode], tokenizer: Tokenizer, schema: Schema) -> Terms:
    """Return the term counts of nodes by field."""
    texts: list[bytes] = []
    for node in nodes:
        by_field = {name: tokenizer.term_ids(text) for name, text in schema.texts(node).items()}
        by_field[EVERYTHING] = b"".join(by_field.values())
        texts += map(by_field.__getitem__, schema.searched)
    lengths = np.array([len(text) for text in texts]) // _ID_BYTES
    # One sort counts all texts: text number in the upper half, term id in the lower half.
    numbers = np.repeat(np.arange(len(texts), dtype=np.uint64) << _ID_BITS, lengths)
    numbers |= np.frombuffer(b"".join(texts), dtype=np.uint32)
    numbers.sort()
    first = np.flatnonzero(np.diff(numbers, prepend=_NO_NUMBER))
    keys, counts = numbers[first], np.diff(first, append=len(numbers))
    sizes = np.bincount((keys >> _ID_BITS).astype(np.intp), minlength=len(texts))
    ids = keys.astype(np.uint32)
    return Terms(schema.searched, ids, counts.astype(np.uint32), sizes, lengths)


def mean_lengths(terms: Sequence[Terms], *, is_exact: bool = False) -> dict[str, float]:
    """Return the mean number of terms by field, among the nodes that have some.

    The means are recorded with the first nodes, and smoothed with ten pseudo-documents of the usual
    length, unless they are exact. Without smoothing, a first document of two words would make all
    later documents count as too long, which costs an eighth to a fifth of the nDCG@10 of keyword
    search.
    """
    means: dict[str, float] = {}
    for place, name in enumerate(terms[0].fields if terms else ()):
        lengths = np.concatenate([part.lengths[place :: len(part.fields)] for part in terms])
        count, pseudo = int(np.count_nonzero(lengths)), 0 if is_exact else _USUAL_NODES
        if count + pseudo:
            total = float(lengths.sum()) + pseudo * _usual_length(name)
            means[name] = total / (count + pseudo)
    return means


def _usual_length(name: str) -> float:
    return _USUAL_LENGTHS.get(name, _USUAL_LENGTH)
