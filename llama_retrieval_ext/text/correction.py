"""Correction of typing errors in a question, by the words of the texts that it searches."""

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from string import ascii_lowercase
from threading import RLock
from typing import Final, NamedTuple

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import OSA

from llama_retrieval_ext.text.analyzer import spellings
from llama_retrieval_ext.text.normalization import UNSPACED, fold, normal
from llama_retrieval_ext.text.segmentation import has_unspaced, term_id
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
_LETTERS: Final = rf"[^\W\d_{UNSPACED}]+"
# Between spaces: words with their punctuation. Whatever else stands there, as in "f(x)", "a.b",
# "--all" or "v2", is code, a number or a name.
_WORDS: Final = re.compile(
    rf"(?<!\S)[(\[{{\"'“‘„«¿¡]*(?P<words>{_LETTERS}(?:-{_LETTERS})*)(?:['’]s)?"  # noqa: RUF001
    r"[)\]}\"'”’“».,;:!?…]*(?!\S)"  # noqa: RUF001
)
_TYPED: Final = re.compile(_LETTERS)
# Text in quotation marks, or in the signs of code.
_QUOTED: Final = re.compile(
    r"\"[^\"]*\"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|`[^`]*`|「[^「」]*」|『[^『』]*』"
    r"|(?<!\w)'[^']*'(?!\w)|(?<!\w)‘[^‘’]*’(?!\w)"  # noqa: RUF001
)
# Beginnings of English words that make another word, often the opposite: "acyclic" is not "cyclic"
# misspelt, nor "hypotension" "hypertension"; so do -ee and -er.
_PREFIX: Final = re.compile(
    "^(?:a(?=[^aeiou][aeiouyh])|an(?=[aeiou])|un|up|re|pre|macro|micro|max|min|hyper|hypo|inter|intra"
    r")(?=\w{4})"
)
# A question with more words is a pasted document.
_MOST_WORDS: Final = 32


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
        # The group, and the ids of its distinct terms and spellings.
        self._texts: dict[str, tuple[Hashable, bytes]] = {}
        self._counts: dict[Hashable, Counter[int]] = {}
        self._forms: dict[str, tuple[int, ...]] = {}  # ids of the spellings of each word
        # Spellings by the same without accents, and these by first letter and length.
        self._spellings: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, set[str]] = {}  # with capitals, as in code, by the same in one word
        self._alike: dict[tuple[str, int], tuple[list[str], array[int]]] = {}
        self._other_letters: set[str] = set()  # with which words begin, beside a to z
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, key: str) -> bool:
        return key in self._texts

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
        ids = {*memoryview(self.tokenizer.term_ids(text)).cast("I")}
        words = {*_WORD.findall(normal(text))}
        with self._lock:
            self.remove(key)
            for word in words:
                ids.update(self._forms.get(word) or self._add(word))
            counted = array("I", ids)
            self._texts[key] = group, counted.tobytes()
            self._counts.setdefault(group, Counter()).update(counted)

    def remove(self, key: str) -> None:
        """Remove a text; a missing one is ignored."""
        with self._lock:
            group, ids = self._texts.pop(key, (None, b""))
            if ids:
                self._counts[group].subtract(memoryview(ids).cast("I"))

    def frequency(self, word: str, groups: Collection[Hashable]) -> int:
        """Return the number of texts in the groups that have a word."""
        counts = self._counts_of(groups)
        terms = memoryview(self.tokenizer.term_ids(word)).cast("I")
        return min((sum(count[term] for count in counts) for term in terms), default=0)

    def unknown(self, words: Sequence[str], groups: Collection[Hashable]) -> list[bool]:
        """Return whether no text in the groups has each word and, of a name in code, one part.

        So ``setParams`` is a name, although texts have ``getParams`` alone; ``getPramas`` is not.
        """
        counts = self._counts_of(groups)
        unknown: list[bool] = []
        for word, ids in zip(words, self.tokenizer.chunk_ids(map(normal, words)), strict=True):
            missing = 0
            for term in memoryview(ids).cast("I"):
                missing += not any(map(itemgetter(term), counts))
            unknown.append(missing > _is_name(word))
        return unknown

    def absent(self, tokens: Iterable[str], groups: Collection[Hashable]) -> set[int]:
        """Return the terms of tokens that no text in the groups has.

        Terms of scripts without spaces are not counted, so they are not among them.
        """
        counts = self._counts_of(groups)
        terms = {term_id(token) for token in tokens if not has_unspaced(token)}
        return {term for term in terms if not any(map(itemgetter(term), counts))}

    def nearest(self, word: str, groups: Collection[Hashable]) -> str | None:
        """Return the nearest word, as a text in the groups spells it; None if there is none.

        An edit inserts, deletes or replaces a letter, or swaps neighbours. Words differ by one, and
        from eight letters on by two if they begin alike; a name in code by one from another. The
        best has the fewest edits, then the same first letter, then the most texts. A word that
        differs from one by a prefix alone is another word.
        """
        typed, is_name, counts = fold(word.casefold()), _is_name(word), self._counts_of(groups)
        if not LEAST_LETTERS <= len(typed) <= _LONGEST:
            return None
        for edits in (1, 2) if len(typed) >= _TWO_EDITS and not is_name else (1,):
            similar = {*self._near(typed, edits, counts)}
            if any(_is_derived(typed, near) for near in similar):
                return None
            ranked: list[tuple[bool, int, str]] = [
                (near[0] != typed[0], -count, spelling)
                for near in similar
                if len(near) >= _LEAST_NEAR
                for spelling in (*self._names.get(near, ()), *self._spellings.get(near, ()))
                if not (is_name and spelling.islower())
                and (count := sum(map(itemgetter(_form_id(spelling)), counts)))
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

    def _counts_of(self, groups: Collection[Hashable]) -> list[Counter[int]]:
        return [*filter(None, map(self._counts.get, groups))]

    def _near(self, typed: str, edits: int, counts: Sequence[Counter[int]]) -> Iterator[str]:
        def occurs(plain: str) -> bool:
            forms = map(_form_id, self._spellings.get(plain, (plain,)))
            return any(any(map(itemgetter(form), counts)) for form in forms)

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
        alike = [typed]  # whether or not it is among them, so that times do not tell
        for at in np.flatnonzero(differences == 0).tolist():
            number = bisect_right(starts, at) - 1
            word = buckets[number][0][at - starts[number]]
            if word != typed:
                alike.append(word)
        seen = [*filter(occurs, alike)]  # first, as times would tell of the words of other groups
        similar = process.extract(typed, seen, scorer=OSA.distance, score_cutoff=edits, limit=None)
        yield from (near for near, _, _ in similar)
        if edits == 1:  # with another first letter, the edit is there
            ends = (typed, typed[1:])
            letters = ascii_lowercase if typed[0].isascii() else self._other_letters
            others = {first + end for end in ends for first in letters}
            others |= {typed[1:], typed[1] + typed[0] + typed[2:]}
            others.discard(typed)
            yield from filter(occurs, filter(self._spellings.__contains__, others))

    def _add(self, word: str) -> tuple[int, ...]:
        """Note the spellings of a new word, and return their ids."""
        parts = spellings(word)  # a name in code, and its parts
        for spelling in parts:
            plain = fold(spelling)
            alike = self._spellings.get(plain, ())
            if not plain or spelling in alike or len(spelling) > _LONGEST:
                continue
            self._spellings[plain] = (*alike, spelling)
            if alike:
                continue
            words, signatures = self._alike.setdefault((plain[0], len(plain)), ([], array("Q")))
            words.append(plain)
            signatures.append(_signature(plain))
            if not plain[0].isascii():
                self._other_letters.add(plain[0])
        if len(parts) > 1:
            self._names.setdefault(fold(parts[0]), set()).add(word)
            parts = [word, *parts]
        self._forms[word] = forms = tuple(map(_form_id, parts))
        return forms


def _form_id(spelling: str) -> int:
    return term_id(f" {spelling}")  # no term has a space


def _is_name(word: str) -> bool:
    return not word[1:].islower()


def _is_derived(word: str, other: str) -> bool:
    """Return whether two words differ by what makes another word of the same stem."""
    if {word[-2:], other[-2:]} in ({"er", "ee"}, {"or", "ee"}):
        return word[:-2] == other[:-2]
    return word != other and _PREFIX.sub("", word) == _PREFIX.sub("", other)


def _signature(word: str) -> int:
    """Return 64 bits that say which letters occur in a word, once and more often."""
    bits = 0
    for letter in word:
        bit = 1 << ord(letter) % 32
        bits |= bit << 32 if bits & bit else bit
    return bits


class Replacement(NamedTuple):
    """A part of a question, and the words of the texts that replace it."""

    start: int
    end: int
    typed: str
    meant: str


def replacements(
    text: str, vocabulary: Vocabulary, groups: Collection[Hashable]
) -> list[Replacement]:
    """Return the words of a question that no text of the groups has, with the nearest that one has.

    Words in quotation marks, in code, in capitals or with digits stay, and so do words of scripts
    without spaces, and stop words.

    Examples:
        >>> from llama_retrieval_ext.text.tokenizer import Tokenizer
        >>> words = Vocabulary(Tokenizer())
        >>> words.put("n1", "The database has the annual leave of each employee.", "")
        >>> [found[2:] for found in replacements('emploee "anual" anual data base', words, [""])]
        [('emploee', 'employee'), ('anual', 'annual'), ('data base', 'database')]

    """
    spans = [*_spans(text)]
    words = [text[start:end] for start, end in spans]
    if len(max(words, key=len, default="")) < LEAST_LETTERS or len(words) > _MOST_WORDS:
        return []
    unknown = vocabulary.unknown(words, groups)
    if not any(unknown):
        return []
    tokenizer = vocabulary.tokenizer
    searched = frozenset(tokenizer.query_tokens(text))  # what no search looks for is no error
    unknown = [
        is_unknown and not searched.isdisjoint(tokenizer.tokens(word))
        for is_unknown, word in zip(unknown, words, strict=True)
    ]
    corrections: list[Replacement] = []
    for at, (start, end) in enumerate(spans if any(unknown) else ()):
        after = spans[at + 1][1] if any(unknown[at : at + 2]) and at + 1 < len(spans) else start
        pair, is_done = text[start:after], bool(corrections) and corrections[-1].end > start
        joined = pair.replace(" ", "", 1)
        if not is_done and joined.isalpha() and vocabulary.frequency(joined, groups):
            corrections.append(Replacement(start, after, pair, joined))
        elif not is_done and unknown[at]:
            typed = text[start:end]
            meant = vocabulary.nearest(typed, groups)
            if meant is None:
                meant = " ".join(vocabulary.parts(typed, groups) or ())
            if meant:
                as_typed = meant[0].upper() + meant[1:] if typed[0].isupper() else meant
                corrections.append(Replacement(start, end, typed, as_typed))
    return corrections


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of the words that may be typing errors, or parts of them."""
    quoted = [*map(re.Match.span, _QUOTED.finditer(text))]
    number = 0
    for match in _WORDS.finditer(text):
        for word in _TYPED.finditer(text, *match.span("words")):
            start, end = word.span()
            while number < len(quoted) and quoted[number][1] <= start:
                number += 1
            is_quoted = number < len(quoted) and quoted[number][0] < end
            if not is_quoted and (end - start == 1 or not word[0].isupper()):
                yield start, end
