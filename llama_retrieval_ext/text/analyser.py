"""The working part of a tokenizer: its caches and its stemmer, made when first used."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Final

from llama_retrieval_ext.text.cache import BoundedCache
from llama_retrieval_ext.text.cjk import (
    document_grams,
    has_cjk,
    query_grams,
    runs,
    starts_cjk,
    word_grams,
)
from llama_retrieval_ext.text.gram_ids import NO_TERM, GramIds
from llama_retrieval_ext.text.identifiers import (
    plain_spellings,
    spellings,
    without_possessive,
)
from llama_retrieval_ext.text.normal import normal
from llama_retrieval_ext.text.pieces import pieces, words
from llama_retrieval_ext.text.stemming import word_stemmer
from llama_retrieval_ext.text.terms import term_id

_ENTRIES: Final = 2**15


class Analyser:
    """Text to tokens and to counted term ids, for documents and for queries.

    Args:
        language: Name of a Snowball algorithm, or "none".
        stop_words: Casefolded words that queries drop.
        segment: From Chinese text to its words; None for pairs of characters.
        split_identifiers: Whether a name is also found by its parts.
    """

    def __init__(
        self,
        *,
        language: str,
        stop_words: frozenset[str],
        segment: Callable[[str], list[str]] | None,
        split_identifiers: bool,
    ) -> None:
        self._stem = word_stemmer(language)
        self._spellings = spellings if split_identifiers else plain_spellings
        self._stop_words = stop_words
        grams = partial(word_grams, segment=segment) if segment else None
        self._document_grams = grams or document_grams
        self._query_grams = grams or query_grams
        self._tokens = BoundedCache[str, tuple[str, ...]](self._word, entries=_ENTRIES)
        self._ids = BoundedCache[str, int](term_id, entries=_ENTRIES)
        self._gram_ids = GramIds()
        self._chunk_ids = BoundedCache[str, tuple[int, ...]](self._chunk, entries=_ENTRIES)

    def document(self, text: str) -> list[str]:
        """The tokens of a document."""
        return self._all(pieces(normal(text)), self._document_grams)

    def query(self, text: str) -> list[str]:
        """The tokens of a query, without stop words unless it has nothing else."""
        found = pieces(normal(text))
        telling = [piece for piece in found if not self._stops(piece)]
        return self._all(telling, self._query_grams) or self._all(found, self._query_grams)

    def document_counts(self, text: str) -> dict[int, int]:
        """How often each term id is among the tokens of a document."""
        text = normal(text)
        # What stands between spaces comes again, punctuation and all, often enough to be looked up
        # as it is: four times as fast as to find the words first.
        chunks = map(self._chunk_ids.__getitem__, text.split())
        counts = Counter(chain.from_iterable(chunks))
        if not text.isascii() and has_cjk(text):
            self._count_grams(text, into=counts)
        return dict(counts)

    def query_counts(self, text: str) -> dict[int, int]:
        """How often each term id is among the tokens of a query."""
        return self._counts(self.query(text))

    def _all(self, found: list[str], grams: Callable[[str], list[str]]) -> list[str]:
        tokens: list[str] = []
        for piece in found:
            tokens += grams(piece) if starts_cjk(piece) else self._tokens[piece]
        return tokens

    def _stops(self, piece: str) -> bool:
        # In capitals it is a name: IT, US, WHO. But "I" is always written so.
        word = without_possessive(piece)
        return word.casefold() in self._stop_words and not (len(word) > 1 and word.isupper())

    def _word(self, piece: str) -> tuple[str, ...]:
        # A mark on a digit is a part that folds to nothing.
        return tuple(filter(None, map(self._stem, self._spellings(piece))))

    def _chunk(self, chunk: str) -> tuple[int, ...]:
        """The term ids of the words, not of the CJK runs, in what stands between two spaces."""
        found = map(self._tokens.__getitem__, words(chunk))
        return tuple(map(self._ids.__getitem__, chain.from_iterable(found)))

    def _count_grams(self, text: str, *, into: Counter[int]) -> None:
        if self._document_grams is document_grams:
            self._gram_ids.count(text, into=into)
            into.pop(NO_TERM, None)
        else:
            grams = chain.from_iterable(map(self._document_grams, runs(text)))
            into.update(map(self._ids.__getitem__, grams))

    def _counts(self, tokens: list[str]) -> dict[int, int]:
        return dict(Counter(map(self._ids.__getitem__, tokens)))
