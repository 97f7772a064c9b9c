"""`Vocabulary`: the words of many texts, and the one nearest to a misspelt word."""

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from itertools import accumulate
from string import ascii_lowercase
from threading import RLock
from typing import Final

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import OSA

from llama_retrieval_ext.text.analyzer import spellings
from llama_retrieval_ext.text.normalization import UNSPACED, fold, normal
from llama_retrieval_ext.text.segmentation import has_unspaced
from llama_retrieval_ext.text.tokenizer import Tokenizer

# Words of letters alone. Nobody types longer ones by hand.
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_LONGEST: Final = 32
_CHINESE: Final = re.compile(f"[{UNSPACED}]+")
# A word of four letters has too many neighbours: of 200 clean questions of cosqa, "weak" became
# "week". It may lack a letter of one of five.
LEAST_LETTERS: Final = 4
_LEAST_NEAR: Final = 5
_TWO_EDITS: Final = 8
_ONE: Final = np.uint64(1)
_NONE: Final = np.empty(0, dtype=np.uint64)


class Vocabulary:
    """Words of texts, with the number of texts of each group that have them.

    Words are counted as terms of keyword search, so that a word whose stem a text has is known.
    It is thread-safe. Adding a text takes linear time; a lookup of the nearest word compares those
    with its first letter and about its length, some thousands of 100,000.

    Args:
        tokenizer: The tokenizer of keyword search.

    Examples:
        >>> words = Vocabulary(Tokenizer())
        >>> words.put("n1", "An employee has 25 days of leave.", "acme")
        >>> words.nearest("emploee", ["acme"]), words.nearest("emploee", ["zen"])
        ('employee', None)

    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._texts: dict[str, tuple[Hashable, bytes]] = {}  # group and distinct terms
        self._counts: dict[Hashable, Counter[int]] = {}
        self._words: set[str] = set()
        # Spellings, and a term of each, by the same without accents; these by letter and length.
        self._spellings: dict[str, tuple[str, int]] = {}
        self._names: dict[str, set[str]] = {}  # with capitals, as in code, by the same in one word
        self._alike: dict[tuple[str, int], tuple[list[str], array[int]]] = {}
        self._other_letters: set[str] = set()  # with which words begin, beside a to z
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def keys(self) -> set[str]:
        """The keys of the texts."""
        with self._lock:
            return {*self._texts}

    @property
    def groups(self) -> list[Hashable]:
        """The groups of the texts."""
        with self._lock:
            return [*self._counts]

    def put(self, key: str, text: str, group: Hashable) -> None:
        """Add a text, or replace the one with this key."""
        if has_unspaced(text):
            text = _CHINESE.sub(" ", text)
        terms = array("I", {*memoryview(self.tokenizer.term_ids(text)).cast("I")})
        words = {*_WORD.findall(normal(text))}
        with self._lock:
            self.remove(key)
            self._texts[key] = group, terms.tobytes()
            self._counts.setdefault(group, Counter()).update(terms)
            for word in words - self._words:
                self._words.add(word)
                parts = spellings(word)  # a name in code, and its parts
                for spelling in parts:
                    if len(spelling) <= _LONGEST:
                        self._add(spelling)
                if len(parts) > 1:
                    self._names.setdefault(fold(parts[0]), set()).add(word)

    def remove(self, key: str) -> None:
        """Remove a text; a missing one is ignored."""
        with self._lock:
            group, terms = self._texts.pop(key, (None, b""))
            if terms:
                self._counts[group].subtract(memoryview(terms).cast("I"))

    def frequency(self, word: str, groups: Collection[Hashable]) -> int:
        """Return the number of texts in the groups that have a word."""
        return min(self._frequencies(word, groups), default=0)

    def is_unknown(self, word: str, groups: Collection[Hashable]) -> bool:
        """Return whether no text in the groups has a word and, of a name in code, one of its parts.

        So ``setParams`` is a name, although texts have ``getParams`` alone; ``getPramas`` is not.
        """
        return self._frequencies(word, groups).count(0) > _is_name(word)

    def _frequencies(self, word: str, groups: Collection[Hashable]) -> list[int]:
        terms = memoryview(self.tokenizer.term_ids(word)).cast("I")
        counts = [self._counts[group] for group in groups if group in self._counts]
        return [sum(count[term] for count in counts) for term in terms]

    def nearest(self, word: str, groups: Collection[Hashable]) -> str | None:
        """Return the nearest word that a text in the groups has; None if there is none.

        An edit inserts, deletes or replaces a letter, or swaps neighbours. Words differ by one, and
        from eight letters on by two if they begin alike; a name in code by one from another. The
        best has the fewest edits, then the same first letter, then the most texts.
        """
        typed, is_name = fold(word.casefold()), _is_name(word)
        if not LEAST_LETTERS <= len(typed) <= _LONGEST:
            return None
        for edits in (1, 2) if len(typed) >= _TWO_EDITS and not is_name else (1,):
            ranked: list[tuple[bool, int, str]] = [
                (near[0] != typed[0], -count, spelling)
                for near in {*self._near(typed, edits, groups)}
                if len(near) >= _LEAST_NEAR
                for spelling in (*self._names.get(near, ()), self._spellings[near][0])
                if not (is_name and spelling.islower())
                and (count := self.frequency(spelling, groups))
            ]
            if ranked:
                return min(ranked)[-1]
        return None

    def parts(self, word: str, groups: Collection[Hashable]) -> tuple[str, str] | None:
        """Return the two known words that were written as one; None if there are none."""
        if len(word) > _LONGEST:
            return None
        cuts = (
            (word[:at], word[at:]) for at in range(LEAST_LETTERS, len(word) - LEAST_LETTERS + 1)
        )
        counted = [(min(self.frequency(part, groups) for part in cut), cut) for cut in cuts]
        count, parts = max(counted, default=(0, None))
        return parts if count else None

    def _near(self, typed: str, edits: int, groups: Collection[Hashable]) -> Iterator[str]:
        def occurs(plain: str) -> bool:
            term = self._spellings[plain][1]
            return any(term in self._counts.get(group, ()) for group in groups)

        lengths = range(len(typed) - edits, len(typed) + edits + 1)
        with self._lock:
            buckets = [b for n in lengths if (b := self._alike.get((typed[0], n)))]
            starts = [0, *accumulate(len(words) for words, _ in buckets)]
            signatures = [np.frombuffer(numbers, "Q") for _, numbers in buckets]
            differences = np.concatenate([_NONE, *signatures])
            del signatures  # an array that is looked at cannot grow
        differences ^= np.uint64(_signature(typed))
        for _ in range(2 * edits):  # an edit changes at most two bits; this clears one
            differences &= differences - _ONE
        alike: list[str] = []
        for at in np.flatnonzero(differences == 0).tolist():
            number = bisect_right(starts, at) - 1
            alike.append(buckets[number][0][at - starts[number]])
        seen = [*filter(occurs, alike)]  # first, as times would tell of the words of other groups
        similar = process.extract(typed, seen, scorer=OSA.distance, score_cutoff=edits, limit=None)
        yield from (near for near, _, _ in similar)
        if edits == 1:  # with another first letter, the edit is there
            ends = (typed, typed[1:])
            letters = ascii_lowercase if typed[0].isascii() else self._other_letters
            others = [first + end for end in ends for first in letters]
            others += [typed[1:], typed[1] + typed[0] + typed[2:]]
            yield from filter(occurs, filter(self._spellings.__contains__, others))

    def _add(self, word: str) -> None:
        plain = fold(word)
        if not plain or plain in self._spellings:
            return
        terms = memoryview(self.tokenizer.term_ids(word)).cast("I")
        self._spellings[plain] = word, terms[0] if terms else -1
        words, signatures = self._alike.setdefault((plain[0], len(plain)), ([], array("Q")))
        words.append(plain)
        signatures.append(_signature(plain))
        if not plain[0].isascii():
            self._other_letters.add(plain[0])


def _is_name(word: str) -> bool:
    return not word[1:].islower()


def _signature(word: str) -> int:
    """Return 64 bits that say which letters occur in a word, once and more often."""
    bits = 0
    for letter in word:
        bit = 1 << ord(letter) % 32
        bits |= bit << 32 if bits & bit else bit
    return bits
