"""`Gazetteer`: finds known names in a text, exactly or approximately."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.errors import ConfigurationError, optional_module
from llama_retrieval_ext.text.normalization import simplified
from llama_retrieval_ext.text.segmentation import starts_unspaced

_FEATURE: Final = ("entity linking", "graph")  # and its extra
# A name is compared with the text if the text has this share of its pairs of characters.
_SHARED: Final = 0.4
_CANDIDATES: Final = 50
# Pairs of characters that more names have are uninformative, and slow.
_COMMON: Final = 3_000
# Shorter names are too similar to other words.
_SHORTEST: Final = 4
_SHORTEST_CJK: Final = 3
_CHINESE: Final = "〇零一二三四五六七八九两"
_DIGITS: Final = str.maketrans(_CHINESE, "001234567892")
_NUMERALS: Final = f"{_CHINESE}十0123456789"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in a text."""

    start: int
    end: int
    name: str
    ids: tuple[str, ...]
    score: float = 1.0

    @property
    def length(self) -> int:
        """Number of characters of the text that it covers."""
        return self.end - self.start


class Gazetteer:
    """Index from names to ids.

    Text and names are compared in NFKC, casefolded, in simplified Chinese. A name in a script with
    spaces matches at word boundaries only; a Chinese name matches anywhere. Of overlapping names
    the first is kept, of those that start together the longest.

    Raises:
        MissingDependencyError: The extra ``graph`` is not installed.

    Examples:
        >>> gazetteer = Gazetteer([("Tower crane", "crane"), ("塔式起重機", "crane")])
        >>> [(m.start, m.end, m.ids) for m in gazetteer.find("Is the TOWER CRANE safe?")]
        [(7, 18, ('crane',))]
        >>> gazetteer.find("towers cranes")
        []
        >>> gazetteer.find("塔式起重机的检查")[0].ids
        ('crane',)

    """

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        ids: dict[str, set[str]] = {}
        for name, id_ in names:
            key = normalised(name)[0].strip()
            if key:
                ids.setdefault(key, set()).add(id_)
        self._names = sorted(ids)
        self._ids = [tuple(sorted(ids[name])) for name in self._names]
        engine = optional_module("ahocorasick_rs", *_FEATURE)
        # Overlapping matches: a match that ends inside a word must not hide a valid one.
        self._automaton = engine.AhoCorasick(self._names) if self._names else None
        self._pairs = _PairIndex(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def find(self, text: str) -> list[Mention]:
        """Return the names in a text, in order, without overlaps."""
        if self._automaton is None:
            return []
        plain, offsets = normalised(text)
        found = self._automaton.find_matches_as_indexes(plain, overlapping=True)
        found.sort(key=_leftmost_longest)
        mentions, covered = [], 0
        for at, start, end in found:
            if start >= covered and _is_bounded(plain, start, end):
                covered = end
                mentions.append(self._mention(at, start, end, offsets, 1.0))
        return mentions

    def find_similar(self, text: str, *, threshold: float = 0.85) -> list[Mention]:
        """Return the exact and the approximate matches of names in a text, in order.

        An exact match is kept, unless it is part of a longer approximate match. The similarity is
        1 minus the share of edits. A name with numbers matches the same numbers only; 01 is 1.

        Examples:
            >>> gazetteer = Gazetteer([("foundation pit", "pit"), ("pit", "hole")])
            >>> [(m.ids, round(m.score, 2)) for m in gazetteer.find_similar("a foundaton pit")]
            [(('pit',), 0.96)]

        """
        if not 0 < threshold <= 1:
            raise ConfigurationError(f"threshold must be in (0, 1], got {threshold!r}")
        exact = self.find(text)
        plain, offsets = normalised(text)
        fuzz = optional_module("rapidfuzz.fuzz", *_FEATURE)
        found = []
        for at in self._pairs.candidates(plain):
            window = _similar_window(fuzz, self._names[at], plain, threshold)
            if window is not None:
                score, start, end = window
                found.append(self._mention(at, start, end, offsets, score))
        kept: list[Mention] = []
        for mention in sorted(found, key=_longest_best):
            inside = [m for m in exact if m.start < mention.end and mention.start < m.end]
            is_longer = all(
                mention.start <= m.start and m.end <= mention.end and m.length < mention.length
                for m in inside
            )
            if is_longer and all(mention.end <= m.start or m.end <= mention.start for m in kept):
                kept.append(mention)
                exact = [m for m in exact if m not in inside]
        return sorted([*exact, *kept], key=lambda mention: mention.start)

    def _mention(
        self, at: int, start: int, end: int, offsets: Sequence[int], score: float
    ) -> Mention:
        return Mention(offsets[start], offsets[end - 1] + 1, self._names[at], self._ids[at], score)


def normalised(text: str) -> tuple[str, Sequence[int]]:
    """Return the text normalised for comparison, and the original index of each character.

    Examples:
        >>> normalised("ﬁre")
        ('fire', [0, 0, 1, 2])

    """
    if text.isascii():
        return text.lower(), range(len(text))
    text = _SURROGATE.sub("\ufffd", text)  # no engine accepts a lone surrogate
    if unicodedata.is_normalized("NFKC", text) and len(folded := text.casefold()) == len(text):
        return simplified(folded), range(len(text))  # the length is unchanged
    characters: list[str] = []
    offsets: list[int] = []
    start = 0
    for at in range(1, len(text) + 1):
        # A letter and its marks stay together.
        if at == len(text) or not unicodedata.combining(text[at]):
            part = simplified(unicodedata.normalize("NFKC", text[start:at]).casefold())
            characters.append(part)
            offsets.extend([start] * len(part))
            start = at
    return "".join(characters), offsets


class _PairIndex:
    """Index of names by their pairs of neighbouring characters."""

    def __init__(self, names: Sequence[str]) -> None:
        joined = "\0".join(names) + "\0"
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        owners = np.cumsum(codes == 0) - (codes == 0)
        first, second = codes[:-1].astype(np.uint64), codes[1:].astype(np.uint64)
        inside = (first != 0) & (second != 0)
        pairs = (first << np.uint64(32) | second)[inside]
        order = np.argsort(pairs, kind="stable")
        self._keys, starts = np.unique(pairs[order], return_index=True)
        self._starts = np.append(starts, len(order))
        self._owners = owners[:-1][inside][order].astype(np.int32)
        self._sizes = np.bincount(self._owners, minlength=len(names)) if names else np.zeros(1)

    def candidates(self, text: str) -> list[int]:
        """Return the names that share most pairs with a text, best first, ties in order."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        codes = codes.astype(np.uint64)
        if len(codes) < 2 or not len(self._keys):  # noqa: PLR2004 - a pair
            return []
        pairs = np.unique(codes[:-1] << np.uint64(32) | codes[1:])
        places = np.searchsorted(self._keys, pairs)
        places = places[places < len(self._keys)]
        places = places[np.isin(self._keys[places], pairs)]
        lengths = self._starts[places + 1] - self._starts[places]
        rare = places[lengths <= _COMMON]
        return self._best(rare if len(rare) else places[np.argsort(lengths)[:2]])

    def _best(self, places: npt.NDArray[Any]) -> list[int]:
        if not len(places):
            return []
        owners = np.concatenate(
            [self._owners[self._starts[place] : self._starts[place + 1]] for place in places]
        )
        counts = np.bincount(owners)
        names = np.flatnonzero(counts)
        shared = counts[names]
        sizes = self._sizes[names]
        kept = shared >= _SHARED * sizes
        # Shared pairs minus missing pairs: short names match every text by chance.
        names, surplus = names[kept], (2 * shared - sizes)[kept]
        best = np.lexsort((names, -surplus))[:_CANDIDATES]
        return [int(name) for name in names[best]]


def _similar_window(
    fuzz: ModuleType, name: str, text: str, threshold: float
) -> tuple[float, int, int] | None:
    """Return the part of a text most similar to a name, and the similarity."""
    if len(name) < (_SHORTEST_CJK if starts_unspaced(name) else _SHORTEST):
        return None
    aligned = fuzz.partial_ratio_alignment(name, text, score_cutoff=100 * threshold - 10)
    if aligned is None or aligned.dest_end <= aligned.dest_start:
        return None
    start, end = _widened(text, aligned.dest_start, aligned.dest_end)
    before = len(text[:start].rstrip(_NUMERALS))  # the part may begin after a number
    own, said = _numbers(name), _numbers(text[start:end]) or _numbers(text[before:start])
    if own and not said and (number := re.match(r"\s*\d+", text[end:])):  # or end before it
        start, end = _widened(text, start, end + number.end())
        said = _numbers(text[start:end])
    if own and own != said:  # crane 1 and crane 2
        return None
    score = float(fuzz.ratio(name, text[start:end])) / 100
    return (score, start, end) if score >= threshold else None


def _numbers(text: str) -> list[str]:
    """Return the numbers in a text, 01 as 1; Chinese ones below 100, or digit by digit."""
    text = re.sub("([1-9]?)十([0-9]?)", _tens, text.translate(_DIGITS))
    return re.findall(r"(?:(?<![\d.])0+)?(\d+)", text)  # but 1.05 is not 1.5


def _tens(found: re.Match[str]) -> str:
    return (found[1] or "1") + (found[2] or "0")


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """Move both ends to word boundaries, without spaces."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    while start > 0 and _joins(text[start - 1], text[start]):
        start -= 1
    while end < len(text) and _joins(text[end - 1], text[end]):
        end += 1
    return start, end


def _longest_best(mention: Mention) -> tuple[float, str]:
    return -mention.score * len(mention.name), mention.name


def _leftmost_longest(match: tuple[int, int, int]) -> tuple[int, int]:
    return match[1], -match[2]


def _is_bounded(text: str, start: int, end: int) -> bool:
    if start > 0 and _joins(text[start - 1], text[start]):
        return False
    return end == len(text) or not _joins(text[end - 1], text[end])


def _joins(left: str, right: str) -> bool:
    """Return whether two neighbours belong to one word; never for Chinese characters."""
    return (
        left.isalnum() and right.isalnum() and not (starts_unspaced(left) or starts_unspaced(right))
    )
