"""Term ids of CJK characters and pairs, read off a text without making a string of each pair."""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

from llama_retrieval_ext.text.cache import BoundedCache
from llama_retrieval_ext.text.cjk import document_grams, is_run, runs
from llama_retrieval_ext.text.simplified import simplified
from llama_retrieval_ext.text.terms import term_id

NO_TERM: Final = -1
_ENTRIES: Final = 2**16  # of pairs, two generations: some 20 MB when full


class GramIds:
    """Term ids of the `document_grams` of all runs in a text, in four fifths of the time.

    A pair of characters is one 32-bit number in UTF-16, and a number is looked up faster than the
    string that would have to be made of it. Every pair of neighbours is looked up, and that some
    are no terms is kept like the rest: faster than to find the runs first.
    """

    __slots__ = ("_characters", "_pairs")

    def __init__(self) -> None:
        self._characters = BoundedCache[str, int](_id_of_gram, entries=_ENTRIES)
        self._pairs = BoundedCache[int, int](_id_of_pair, entries=_ENTRIES)

    def count(self, text: str, *, into: Counter[int]) -> None:
        """Add every gram of a text to the counts of its term id, and the rest to `NO_TERM`.

        Args:
            text: In NFKC.
            into: The counts to add to.

        Examples:
            >>> counts = Counter()
            >>> GramIds().count("火灾, ok", into=counts)
            >>> counts[term_id("火")], counts[term_id("火灾")], counts[NO_TERM]
            (1, 1, 8)

        """
        units = text.encode("utf-16-le", "surrogatepass")
        if len(units) != 2 * len(text):  # rare characters take two units, and pairs would break
            into.update(term_id(gram) for run in runs(text) for gram in document_grams(run))
        else:
            into.update(map(self._characters.__getitem__, text))
            into.update(map(self._pairs.__getitem__, _numbers(units)))


def _numbers(units: bytes) -> Iterable[int]:
    """One number for each pair of neighbours.

    The low bytes of both come first: a dict looks at the low bits of a number, and if these were
    one character, all pairs with that character would collide.
    """
    low, high = units[::2], units[1::2]
    pairs = bytearray(4 * max(len(low) - 1, 0))
    pairs[::4], pairs[1::4], pairs[2::4], pairs[3::4] = low[:-1], low[1:], high[:-1], high[1:]
    return memoryview(pairs).cast("I")


def _id_of_pair(pair: int) -> int:
    low, next_low, high, next_high = pair.to_bytes(4, sys.byteorder)
    return _id_of_gram(chr(high << 8 | low) + chr(next_high << 8 | next_low))


def _id_of_gram(gram: str) -> int:
    return term_id(simplified(gram)) if is_run(gram) else NO_TERM
