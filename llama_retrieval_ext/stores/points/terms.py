"""What keyword search stores of texts: their terms, counted and weighed."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from llama_retrieval_ext.stores.nodes.keyword_text import keyword_text
from llama_retrieval_ext.text.tokenizer import Tokenizer

# A text without terms still counts as a document: without a sparse vector, the engine would leave
# it out of the number of documents in IDF.
NO_TERM: Final = 2**32 - 1
# Term ids, and a weight each.
Weighed: TypeAlias = tuple[list[int], list[float]]


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

    def weighed(self, *, average_length: float) -> Iterator[Weighed]:
        """What the terms of each text say about it, but for their rarity, which the engine knows.

        Args:
            average_length: How many terms a text has on average.
        """
        ids, weights = self.ids.tolist(), self._weights(average_length)
        for start, end in pairwise(accumulate(self.sizes, initial=0)):
            yield (ids[start:end], weights[start:end]) if end > start else ([NO_TERM], [0.0])

    def _weights(self, average_length: float) -> list[float]:
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
