"""Postings: the count of each term in each document, from which BM25 is computed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.formulas.bm25 import bm25_idf, bm25_term_weight

Ints: TypeAlias = npt.NDArray[np.int32]

# A key holds a term id in its high bits and a document number in its low bits.
_SHIFT = np.uint64(32)
_LOW_BITS = np.uint64(2**32 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Entries for every term of every document, sorted by term, then by document.

    A sparse matrix of terms by documents, 8 bytes per entry. Immutable: `changed` returns a new
    one.

    Attributes:
        terms: Ids of the terms that occur, ascending; ``(n_terms,)``.
        starts: Start of the entries of each term, and the end of the last; ``(n_terms + 1,)``.
        documents: The document of each entry, counted from 0; ``(n_entries,)``.
        counts: Count of the term in that document; ``(n_entries,)``.
        lengths: Number of tokens of each document; ``(n_documents,)``.

    Examples:
        >>> postings = Postings.of([{7: 1}, {9: 1, 7: 2}])
        >>> print(postings.terms, postings.starts, postings.documents, postings.counts)
        [7 9] [0 2 3] [0 1 1] [1 2 1]

    """

    terms: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]
    documents: Ints
    counts: Ints
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, documents: Iterable[Mapping[int, int]]) -> Self:
        """Return the postings of documents, each given as the count of each term."""
        none = np.empty(0, np.int32)
        empty = cls(
            none.astype(np.uint32), np.zeros(1, np.int64), none, none, np.empty(0, np.int64)
        )
        return empty.changed(none, dict(enumerate(documents)))

    def changed(self, places: Ints, added: Mapping[int, Mapping[int, int]]) -> Self:
        """Return the postings after documents were moved, removed and added.

        Time is linear in the number of entries, without a Python loop over unchanged entries.
        """
        rows = places[self.documents]
        stays = rows >= 0
        keys = _keys(np.repeat(self.terms, np.diff(self.starts))[stays], rows[stays])
        added_keys, added_counts = _entries(added)
        keys = np.concatenate([keys, added_keys])
        # Both parts are sorted; a stable sort merges them in linear time.
        order = np.argsort(keys, kind="stable")
        counts = np.concatenate([self.counts[stays], added_counts])[order]
        return self._sorted(keys[order], counts, self._lengths(places, added))

    def fit(self, n_documents: int) -> bool:
        """Return whether these are consistent postings of this number of documents."""
        entries = {len(self.documents), len(self.counts), int(self.starts[-1])}
        return (
            len(self.lengths) == n_documents
            and len(self.starts) == len(self.terms) + 1
            and len(entries) == 1
            and int(self.documents.max(initial=-1)) < n_documents
        )

    def columns(self, terms: Mapping[int, int]) -> npt.NDArray[np.int64]:
        """Return the positions in `terms` of the query's terms, repeated as in the query.

        Terms that occur in no document are left out.
        """
        if not len(self.terms):
            return np.empty(0, np.int64)
        term_ids = np.fromiter(terms, np.uint32, len(terms))
        at = np.searchsorted(self.terms, term_ids)
        at[at == len(self.terms)] = 0  # out of range: any position works, its term differs
        times = np.fromiter(terms.values(), np.int64, len(terms))
        return np.repeat(at, np.where(self.terms[at] == term_ids, times, 0))

    def weights(self, *, k1: float, b: float) -> npt.NDArray[np.float32]:
        """Return the share of each entry in the BM25 score; ``(n_entries,)``, above 0."""
        if not len(self.documents):
            return np.empty(0, np.float32)
        frequencies = np.diff(self.starts)
        rarity = bm25_idf(len(self.lengths), frequencies)
        weight = bm25_term_weight(
            self.counts,
            length=self.lengths[self.documents],
            average_length=float(self.lengths.mean()),
            k1=k1,
            b=b,
        )
        return (np.repeat(rarity, frequencies) * weight).astype(np.float32)

    def _lengths(
        self, places: Ints, added: Mapping[int, Mapping[int, int]]
    ) -> npt.NDArray[np.int64]:
        stays = places >= 0
        lengths = np.zeros(int(stays.sum()) + len(added), np.int64)
        lengths[places[stays]] = self.lengths[stays]
        for number, counts in added.items():
            lengths[number] = sum(counts.values())
        return lengths

    @classmethod
    def _sorted(
        cls, keys: npt.NDArray[np.uint64], counts: Ints, lengths: npt.NDArray[np.int64]
    ) -> Self:
        terms = (keys >> _SHIFT).astype(np.uint32)
        is_first = np.ones(len(terms), np.bool_)
        is_first[1:] = terms[1:] != terms[:-1]
        firsts = np.flatnonzero(is_first)
        documents = (keys & _LOW_BITS).astype(np.int32)
        starts = np.append(firsts, len(terms)).astype(np.int64)
        return cls(terms[firsts], starts, documents, counts, lengths)


def _keys(terms: npt.NDArray[np.uint32], documents: Ints) -> npt.NDArray[np.uint64]:
    return (terms.astype(np.uint64) << _SHIFT) | documents.astype(np.uint64)


def _entries(added: Mapping[int, Mapping[int, int]]) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Return the sorted keys of documents and their counts."""
    sizes = np.fromiter(map(len, added.values()), np.int64, len(added))
    documents = np.repeat(np.fromiter(added, np.int32, len(added)), sizes)
    terms = np.fromiter(chain.from_iterable(added.values()), np.uint32, len(documents))
    per_document = (counts.values() for counts in added.values())
    counts = np.fromiter(chain.from_iterable(per_document), np.int32, len(documents))
    keys = _keys(terms, documents)
    order = np.argsort(keys)
    return keys[order], counts[order]


_LEAST_BLOCKS = 512


def best(scores: npt.NDArray[np.float32], top_k: int) -> npt.NDArray[np.int64]:
    """Return the positions of the highest scores above 0, best first; ties by position.

    Examples:
        >>> print(best(np.array([0, 2, 3, 2, 0], np.float32), 2))
        [2 1]

    """
    floor = _reached_by(scores, top_k)
    candidates = np.flatnonzero(scores >= floor if floor > 0.0 else scores)
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order[:top_k]]


def _reached_by(scores: npt.NDArray[np.float32], top_k: int) -> float:
    """Return a score that at least ``top_k`` scores reach, and few more; 0 if not worth it."""
    # If ``top_k`` block maxima reach a value, at least ``top_k`` scores reach it. Reading the
    # scores once takes a tenth of the time of partitioning them.
    blocks = max(_LEAST_BLOCKS, 8 * top_k)
    rows = len(scores) // blocks
    if rows < 2:  # noqa: PLR2004 - blocks of one score are the scores
        return 0.0
    maxima = scores[: rows * blocks].reshape(rows, blocks).max(axis=0)
    return float(np.partition(maxima, blocks - top_k)[blocks - top_k])
