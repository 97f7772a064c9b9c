"""Phrases of texts: words, titles, capitalised phrases, recurring Chinese, and their search.

A text is compared as its casefolded words without accents, with a space around each,
``" the gold rush "``; each character of a script without spaces is a word. So a text contains a
name if its string contains the name's string. An acronym stays in capitals, ``" WHO "``, and is
found by `acronyms`.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.errors import optional_module
from llama_retrieval_ext.text.gazetteer import is_acronym
from llama_retrieval_ext.text.normalization import HAN, RANGES, UNSPACED, fold, normal, simplified
from llama_retrieval_ext.text.segmentation import UNIT, has_unspaced
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS

# Maximum words and characters, and minimum characters of a name.
_LONGEST_NAME: Final = 24
_MOST_CHARACTERS: Final = 400
_SHORTEST_NAME: Final = 3
_GRAM: Final = 3

# A word, or one character of a script without spaces.
_WORD: Final = re.compile(rf"{UNIT}|[{UNSPACED}]|[^\W_{UNSPACED}]+")
_UPPER: Final = "".join(
    character
    for low, high in re.findall(
        r"(.)-(.)", "".join(RANGES[script] for script in ("latin", "cyrillic", "greek", "armenian"))
    )
    for character in map(chr, range(ord(low), ord(high) + 1))
    if character.isupper()
)
_CAPITALISED: Final = rf"(?:[{_UPPER}][\w'’\-]*|\d+)"  # noqa: RUF001 - both apostrophes
_JOINING: Final = "of|the|and|de|la|von|van|du|di|al|for|in|der|des|del"
_SEQUENCE: Final = re.compile(
    rf"{_CAPITALISED}(?:[^\S\n]+(?:(?:{_JOINING})[^\S\n]+)*{_CAPITALISED})*"
)
_PART: Final = re.compile(r"\S+")
_QUOTED: Final = re.compile(r"《([^《》\n]{2,40})》|「([^「」\n]{2,40})」")
_RUN: Final = re.compile(rf"[{HAN}]{{{_GRAM},}}")
_BRACKETS: Final = re.compile(r"[(（][^()（）]*[)）]")  # noqa: RUF001 - Chinese brackets
# Words that begin many sentences and are not names.
# fmt: off
_OPENERS: Final = ENGLISH_STOP_WORDS | {
    "after", "before", "during", "while", "until", "since", "under", "over", "between", "out", "up",
    "down", "however", "although", "though", "because", "due", "according", "also", "both", "each",
    "all", "any", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "first", "second", "third", "new", "most", "more", "many", "some", "other", "another", "if",
    "only", "despite", "later", "soon", "today", "see", "note",
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
}
# fmt: on


def words(text: str) -> str:
    """Return the words of a text, casefolded, with a space around each.

    Examples:
        >>> words("The Gold-Rush of Zürich, 臺灣")
        ' the gold rush of zurich 台 湾 '

    """
    return f" {' '.join(_compared(_WORD.findall(normal(text))))} "


def _compared(tokens: Sequence[str]) -> list[str]:
    joined = fold("\n".join(tokens).casefold())
    return (simplified(joined) if has_unspaced(joined) else joined).split("\n")


def acronyms(text: str) -> "list[Occurrence]":
    """Return the acronyms in a text, at their places in its `words`.

    Examples:
        >>> acronyms("who knows the WHO?")
        [Occurrence(name=' WHO ', start=14, end=19)]

    """
    tokens = _WORD.findall(normal(text))
    lengths = [len(word) + 2 for word in _compared(tokens)]  # neighbours share a space
    starts = accumulate((length - 1 for length in lengths), initial=0)
    return [
        Occurrence(f" {word} ", start, start + length)
        for word, start, length in zip(tokens, starts, lengths, strict=False)
        if is_acronym(word)
    ]


def name_words(name: str) -> str:
    """Return the form of a name in texts: an acronym in capitals, another as its `words`.

    Examples:
        >>> name_words("WHO"), name_words("Who")
        (' WHO ', ' who ')

    """
    return f" {normal(name).strip()} " if is_acronym(name) else words(name)


def title_words(title: str) -> list[str]:
    """Return the forms of a title in texts: its words, also without the disambiguation.

    Examples:
        >>> title_words("Alien (film)"), title_words("WHO (organisation)")
        ([' alien film ', ' alien '], [' who organisation ', ' WHO '])

    """
    closed = title.rstrip()
    opened = max(closed.rfind(sign) for sign in "(（")  # noqa: RUF001 - Chinese brackets
    ends_with_one_pair = _BRACKETS.fullmatch(closed, max(opened, 0)) is not None
    shorter = closed[:opened].rstrip() if ends_with_one_pair else title
    forms = dict.fromkeys((name_words(title), name_words(shorter)))
    return [form for form in forms if _can_be_name(form)]


def spelled(name: str) -> str:
    """Return a name in its usual spelling, without spaces in Chinese or Thai.

    Examples:
        >>> spelled(" gold rush "), spelled(" 台 湾 ")
        ('gold rush', '台湾')

    """
    return name.replace(" ", "") if has_unspaced(name[1:2]) else name.strip()


def _can_be_name(name: str) -> bool:
    has_length = _SHORTEST_NAME <= len(name) - 2 <= _MOST_CHARACTERS
    return (
        has_length and name.count(" ") - 1 <= _LONGEST_NAME and not name.replace(" ", "").isdigit()
    )


def phrases(text: str) -> set[str]:
    """Return phrases that may be names: capitalised or in Chinese quotation marks.

    Examples:
        >>> sorted(phrases("In Rome, Boso the Elder read 《安全生产法》."))
        [' boso the elder ', ' rome ', ' 安 全 生 产 法 ']

    """
    return {phrase for phrase, _, _ in phrase_spans(normal(text))}


def phrase_spans(text: str) -> "Iterator[Occurrence]":
    """Yield each occurrence of a phrase in a text that is in the form of `normal`."""
    for match in _QUOTED.finditer(text):
        yield from _phrase(text, *match.span(match.lastindex or 0))
    for match in _SEQUENCE.finditer(text):
        parts = [part.span() for part in _PART.finditer(text, *match.span())]
        if len(parts) > 2 * _LONGEST_NAME:  # a heading or table in capitals is not a name
            continue
        while parts and text[slice(*parts[0])].casefold() in _OPENERS:
            del parts[0]
        while parts and text[slice(*parts[-1])].casefold() in _OPENERS:
            del parts[-1]
        if parts:
            yield from _phrase(text, parts[0][0], parts[-1][1])


def _phrase(text: str, start: int, end: int) -> "Iterator[Occurrence]":
    phrase = words(text[start:end])
    if _can_be_name(phrase):
        yield Occurrence(phrase, start, end)


def chinese_runs(text: str) -> str:
    """Return the runs of at least three Chinese characters, separated by spaces."""
    return " ".join(_RUN.findall(simplified(normal(text)))) if has_unspaced(text) else ""


def recurring(texts: Sequence[str], most: int) -> list[set[str]]:
    """Return the sequences of Chinese characters that each text shares with others.

    Adjacent groups of three characters that occur in the same number of texts, at most ``most``,
    are one sequence. The time is that of sorting the characters.

    Examples:
        >>> recurring(["深基坑支护", "支护深基坑", "吊装"], most=2)
        [{' 深 基 坑 '}, {' 深 基 坑 '}, set()]

    """
    phrases_of: list[set[str]] = [set() for _ in texts]
    joined = " ".join(texts) + " "
    codes = np.frombuffer(joined.encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    if len(codes) <= _GRAM:
        return phrases_of
    owners = np.repeat(np.arange(len(texts)), [len(text) + 1 for text in texts])
    first, second, third = codes[:-2], codes[1:-1], codes[2:]
    is_gram = (first != ord(" ")) & (second != ord(" ")) & (third != ord(" "))
    grams = np.where(is_gram, first << np.uint64(42) | second << np.uint64(21) | third, 0)
    counts = _texts_with(grams, owners[: len(grams)])
    # A segment of grams with equal counts is one sequence.
    starts = np.flatnonzero(np.diff(counts, prepend=-1) | ~is_gram)
    lengths = np.diff(starts, append=len(counts)) + _GRAM - 1
    kept = (counts[starts] > 1) & (counts[starts] <= most) & (lengths <= _LONGEST_NAME)
    for start, length in zip(starts[kept].tolist(), lengths[kept].tolist(), strict=True):
        phrases_of[owners[start]].add(f" {' '.join(joined[start : start + length])} ")
    return phrases_of


def _texts_with(grams: npt.NDArray[Any], owners: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the number of texts with each gram, by position; 0 if there is no gram."""
    order = np.lexsort((owners, grams))
    gram, owner = grams[order], owners[order]
    is_new = np.diff(gram, prepend=gram[:1]) != 0
    group = np.cumsum(is_new)
    is_text = is_new | (np.diff(owner, prepend=-1) != 0)
    sizes = np.bincount(group, weights=is_text).astype(np.int64)
    counts = np.empty(len(grams), dtype=np.int64)
    counts[order] = sizes[group]
    counts[grams == 0] = 0
    return counts


class Occurrence(NamedTuple):
    """A name in a text: from the space before it to after the space that follows it."""

    name: str
    start: int
    end: int


class Names:
    """Immutable matcher of names in texts, as whole words; `extended` returns a new one.

    Names and texts have the form of `words`; a name of more than 400 characters is not found.

    Examples:
        >>> names = Names([" new york ", " new "])
        >>> names.find(words("From New York to new shores"))
        [Occurrence(name=' new york ', start=5, end=15), Occurrence(name=' new ', start=17, end=22)]

    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        # One large automaton, and a small one for later names, which is quick to build.
        usable = {name for name in names if len(name) <= _MOST_CHARACTERS}
        self._parts: tuple[tuple[list[str], Any], ...] = (_automaton(sorted(usable)),)

    def extended(self, names: Collection[str]) -> "Names":
        """Return a matcher of at least these names; it may also match earlier names."""
        present = {name for part, _ in self._parts for name in part}
        new = set(names) - present
        if not new and len(present) <= 2 * len(names):
            return self
        (first, _), *others = self._parts
        later = sorted(new.union(*(part for part, _ in others)))
        if 8 * len(later) > len(first) or len(present) > 2 * len(names):
            return Names(names)
        extended = Names()
        extended._parts = (self._parts[0], _automaton(later))
        return extended

    def find(self, text: str, among: Container[str] | None = None) -> list[Occurrence]:
        """Return the names in a text, in order, longest first at each start, without overlaps."""
        return longest(self.find_all(text, among))

    def find_all(self, text: str, among: Container[str] | None = None) -> Iterator[Occurrence]:
        """Yield the names in a text, including names inside other names, in any order."""
        for names, automaton in self._parts:
            if names:
                for at, start, end in automaton.find_matches_as_indexes(text, overlapping=True):
                    if among is None or names[at] in among:
                        yield Occurrence(names[at], start, end)


def longest(matches: Iterable[Occurrence]) -> list[Occurrence]:
    """Return the matches in order, the longest at each start, without overlaps."""
    kept: list[Occurrence] = []
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if not kept or match.start >= kept[-1].end - 1:  # neighbours may share a space
            kept.append(match)
    return kept


def _automaton(names: list[str]) -> tuple[list[str], Any]:
    engine = optional_module("ahocorasick_rs", "links between passages", "graph")
    # Another implementation takes time quadratic in the length of a name.
    linear = engine.Implementation.ContiguousNFA
    return names, engine.AhoCorasick(names, implementation=linear) if names else None
