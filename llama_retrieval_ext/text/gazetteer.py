"""`Gazetteer`: finds known names in a text, exactly or approximately."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.normalization import UNSPACED, aligned, fold, normal, simplified
from llama_retrieval_ext.text.segmentation import starts_unspaced

# A name is compared with the text if the text has this share of its pairs of characters.
_SHARED: Final = 0.4
_CANDIDATES: Final = 50
# Pairs of characters that more names have are uninformative, and slow.
_COMMON: Final = 3_000
# Longer names are ids or texts, and a name costs time at each position of a text.
_LONGEST: Final = 200
# Longer words in capitals are headings, or the spelling of a whole list.
_LONGEST_ACRONYM: Final = 6
# Shorter names are too similar to other words.
_SHORTEST: Final = 4
_SHORTEST_CJK: Final = 3
_CHINESE: Final = "〇零一二三四五六七八九两"
_DIGITS: Final = str.maketrans(_CHINESE, "001234567892")
_NUMERALS: Final = f"{_CHINESE}十0123456789"
# Lone surrogates, and the separator of names in `_PairIndex`.
_NO_LETTERS: Final = re.compile("[\0\ud800-\udfff]")
# Names begin and end with one of these: a word, a character of a script without spaces, a sign.
_ATOM: Final = re.compile(rf"(?:(?![{UNSPACED}])[^\W_])+|.", re.DOTALL)


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

    Text and names are compared in NFKC, casefolded, without accents, in simplified Chinese. A name
    in a script with spaces matches at word boundaries only; a Chinese name matches anywhere. Of
    overlapping names the first is kept, of those that start together the longest. An acronym, a
    word of at most 6 capitals such as IT or WHO, matches only in capitals and exactly. A name of
    more than 200 characters never matches.

    Examples:
        >>> gazetteer = Gazetteer([("Tower crane", "crane"), ("塔式起重機", "crane"), ("IT", "it")])
        >>> [(m.start, m.end, m.ids) for m in gazetteer.find("Is the TOWER CRANE safe?")]
        [(7, 18, ('crane',))]
        >>> gazetteer.find("towers cranes, and how it stands")
        []
        >>> [m.ids for m in gazetteer.find("塔式起重机 at IT")]
        [('crane',), ('it',)]

    """

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        words: dict[str, set[str]] = defaultdict(set)
        acronyms: dict[str, set[str]] = defaultdict(set)
        for name, id_ in names:
            key = normalised(name[: _LONGEST + 1])[0].strip()
            if key and len(name) <= _LONGEST:
                (acronyms if is_acronym(name) else words)[key].add(id_)
        self._names = sorted(words)
        self._ids = {name: tuple(sorted(ids)) for name, ids in words.items()}
        self._acronyms = {name: tuple(sorted(ids)) for name, ids in acronyms.items()}
        self._lengths = _lengths(words.keys() | acronyms.keys())

    @cached_property
    def _pairs(self) -> "_PairIndex":
        return _PairIndex(self._names)  # only of names that are compared

    def __len__(self) -> int:
        return len(self._ids.keys() | self._acronyms.keys())

    def find(self, text: str) -> list[Mention]:
        """Return the names in a text, in order, without overlaps."""
        return list(self._exact(text, *normalised(text)))

    def _exact(self, text: str, plain: str, offsets: Sequence[int]) -> Iterator[Mention]:
        covered = 0
        for atom in _ATOM.finditer(plain):
            start = atom.start()
            if start < covered:
                continue
            lengths = self._lengths.get(atom[0], ())  # of the names that may start here
            if len(atom[0]) == 1:
                pair = self._lengths.get(plain[start : start + 2], ())
                lengths = [*pair, 1] if lengths else pair
            for length in lengths:
                name = plain[start : start + length]
                end = start + len(name)
                ids = self._ids.get(name, ())
                acronyms = self._acronyms.get(name, ())
                if (ids or acronyms) and _is_bounded(plain, start, end):
                    first, last = offsets[start], offsets[end - 1] + 1
                    if acronyms and text[first:last].isupper():
                        ids = tuple(sorted({*ids, *acronyms}))
                    if ids:
                        covered = end
                        yield Mention(first, last, name, ids)
                        break

    def find_similar(self, text: str, *, threshold: float = 0.85) -> list[Mention]:
        """Return the exact and the approximate matches of names in a text, in order.

        An exact match is kept, unless it is part of a longer approximate match. The similarity is
        1 minus the share of edits. A name with numbers matches the same numbers only; 01 is 1.

        Raises:
            ConfigurationError: The threshold is out of range.
            MissingDependencyError: The extra ``graph`` is not installed.

        Examples:
            >>> gazetteer = Gazetteer([("foundation pit", "pit"), ("pit", "hole")])
            >>> [(m.ids, round(m.score, 2)) for m in gazetteer.find_similar("a foundaton pit")]
            [(('pit',), 0.96)]

        """
        if not 0 < threshold <= 1:
            raise ConfigurationError(f"threshold must be in (0, 1], got {threshold!r}")
        plain, offsets = normalised(text)
        exact = list(self._exact(text, plain, offsets))
        similar = []
        for at in self._pairs.candidates(plain):
            window = _similar_window(self._names[at], plain, threshold)
            if window is not None:
                score, start, end = window
                name, last = self._names[at], offsets[end - 1] + 1
                similar.append(Mention(offsets[start], last, name, self._ids[name], score))
        kept: list[Mention] = []
        for mention in sorted(similar, key=lambda m: (-m.score * len(m.name), m.name)):
            inside = [m for m in exact if m.start < mention.end and mention.start < m.end]
            is_longer = all(
                mention.start <= m.start and m.end <= mention.end and m.length < mention.length
                for m in inside
            )
            if is_longer and all(mention.end <= m.start or m.end <= mention.start for m in kept):
                kept.append(mention)
                exact = [m for m in exact if m not in inside]
        return sorted([*exact, *kept], key=attrgetter("start"))


def is_acronym(name: str) -> bool:
    """Return whether a name is one short word in capitals, which may be another word in lower case.

    Examples:
        >>> [is_acronym(name) for name in ("IT", "США", "It", "R&D", "CRANES7")]
        [True, True, False, False, False]

    """
    word = normal(name).strip()
    return 0 < len(word) <= _LONGEST_ACRONYM and word.isalpha() and word.isupper()


def _lengths(names: Iterable[str]) -> dict[str, list[int]]:
    """Return the lengths of the names that begin with a word or two characters, longest first."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for name in names:
        first = next(_ATOM.finditer(name))
        lengths[name[: max(2, first.end())]].add(len(name))
    return {start: sorted(sizes, reverse=True) for start, sizes in lengths.items()}


def normalised(text: str) -> tuple[str, Sequence[int]]:
    """Return the text normalised for comparison, and the original index of each character.

    Examples:
        >>> normalised("ﬁre")
        ('fire', [0, 0, 1, 2])
        >>> normalised("Zürich")[0]
        'zurich'

    """
    if text.isascii() and "\0" not in text:
        return text.lower(), range(len(text))
    plain, offsets = aligned(_NO_LETTERS.sub("\ufffd", text))
    folded = plain.casefold()
    if len(folded) == len(plain) and fold(folded) == folded:
        return simplified(folded), offsets  # the length is unchanged
    characters: list[str] = []
    places: list[int] = []
    start = 0
    for end in range(1, len(plain) + 1):
        # A letter and its marks stay together.
        if end == len(plain) or not unicodedata.combining(plain[end]):
            part = _cluster(plain[start:end])
            characters.append(part)
            places.extend([offsets[start]] * len(part))
            start = end
    return "".join(characters), places


@lru_cache(maxsize=4096)
def _cluster(letter: str) -> str:
    """Return a letter with its marks, normalised for comparison."""
    return simplified(fold(letter.casefold()))


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
        best_names: list[int] = names[best].tolist()
        return best_names


def _similar_window(name: str, text: str, threshold: float) -> tuple[float, int, int] | None:
    """Return the part of a text most similar to a name, and the similarity."""
    if len(name) < (_SHORTEST_CJK if starts_unspaced(name) else _SHORTEST):
        return None
    aligned = fuzz.partial_ratio_alignment(name, text, score_cutoff=100 * threshold - 10)
    if aligned is None or aligned.dest_end <= aligned.dest_start:
        return None
    longest = round(len(name) * (2 / threshold - 1))  # the ratio of a longer part is too small
    start, end = _widened(text, aligned.dest_start, aligned.dest_end, longest)
    before = text[max(0, start - longest) : start]  # the part may begin after a number
    before = before[len(before.rstrip(_NUMERALS)) :]
    expected, numbers = _numbers(name), _numbers(text[start:end]) or _numbers(before)
    if (
        expected and not numbers and (number := re.match(r"\s*\d+", text[end : end + longest]))
    ):  # or end before it
        start, end = _widened(text, start, end + number.end(), longest)
        numbers = _numbers(text[start:end])
    if expected and expected != numbers:  # crane 1 and crane 2
        return None
    score = float(fuzz.ratio(name, text[start:end])) / 100
    return (score, start, end) if score >= threshold else None


def _numbers(text: str) -> list[str]:
    """Return the numbers in a text, 01 as 1; Chinese ones below 100, or digit by digit."""
    tens = "([1-9]?)十([0-9]?)"
    text = re.sub(tens, lambda m: (m[1] or "1") + (m[2] or "0"), text.translate(_DIGITS))
    return re.findall(r"(?:(?<![\d.])0+)?(\d+)", text)  # but 1.05 is not 1.5


def _widened(text: str, start: int, end: int, longest: int) -> tuple[int, int]:
    """Move both ends to word boundaries, without spaces, while the part is not too long."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    while start > 0 and end - start <= longest and _joins(text[start - 1], text[start]):
        start -= 1
    while end < len(text) and end - start <= longest and _joins(text[end - 1], text[end]):
        end += 1
    return start, end


def _is_bounded(text: str, start: int, end: int) -> bool:
    if start > 0 and _joins(text[start - 1], text[start]):
        return False
    return end == len(text) or not _joins(text[end - 1], text[end])


def _joins(left: str, right: str) -> bool:
    """Return whether two neighbours belong to one word; never for Chinese characters."""
    return (
        left.isalnum() and right.isalnum() and not (starts_unspaced(left) or starts_unspaced(right))
    )
