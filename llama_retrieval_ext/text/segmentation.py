"""Segmentation of text without spaces between words: Chinese, Japanese, Thai and others; Korean.

Each function returns the same terms for a traditional and a simplified Chinese character.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from operator import add
from typing import Final, Generic, TypeVar
from zlib import crc32

from llama_retrieval_ext.errors import optional_module
from llama_retrieval_ext.text.normalization import (
    HAN,
    HANGUL,
    HIRAGANA,
    KATAKANA,
    SOUTH_EAST_ASIAN,
    UNSPACED,
    simplified,
)

# One script per run: 東京タワーへ行く is 東京, タワー, へ, 行, く, which separates nouns from
# endings in hiragana.
_SYLLABIC_RUN: Final = "|".join(f"[{letters}]+" for letters in SOUTH_EAST_ASIAN.values())
RUN: Final = f"[{HAN}]+|[{HIRAGANA}]+|[{KATAKANA}]+|[{HANGUL}]+|{_SYLLABIC_RUN}"
_RUN: Final = re.compile(RUN)
_UNSPACED: Final = re.compile(f"[{UNSPACED}]")
_HAN: Final = re.compile(f"[{HAN}]")
# A consonant with the vowels and marks that no word separates from it: before it (Thai and Lao),
# above, below and after it, and the consonants stacked below (after the Khmer coeng and the Burmese
# virama). The bound keeps an endless vowel from becoming one unit.
_LEADING: Final = "\u0e40-\u0e44\u0ec0-\u0ec4"
_TRAILING: Final = (
    "\u0e30-\u0e3a\u0e45\u0e47-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ecd"
    "\u17b6-\u17d3\u17dd\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d"
    "\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\ua9e5\uaa7b-\uaa7d"
)
_STACKING: Final = "\u17d2\u1039"
_SYLLABIC: Final = "".join(SOUTH_EAST_ASIAN.values())
UNIT: Final = (
    f"(?:[{_LEADING}](?=[{_SYLLABIC}]))?[{_SYLLABIC}]"
    f"(?:[{_TRAILING}]|(?<=[{_STACKING}])[{_SYLLABIC}]){{0,12}}"
)
_UNIT: Final = re.compile(UNIT)

has_unspaced: Final = _UNSPACED.search
"""A match if a character of a script without spaces is anywhere in a text, else None."""

runs: Final = _RUN.findall
"""The runs of characters without spaces in a text, cut where the script changes."""

syllabic_runs: Final = re.compile(_SYLLABIC_RUN).findall
"""The runs of Thai, Lao, Khmer and Burmese in a text."""

is_run: Final = _RUN.fullmatch
"""A match if a text is a run and nothing else, else None."""

starts_unspaced: Final = _UNSPACED.match
"""A match if a text starts with a character of a script without spaces, else None."""


def units(run: str) -> list[str]:
    """Return the characters of a run with their marks, in simplified Chinese.

    Examples:
        >>> units("火災"), units("น้ำเย็น")
        (['火', '灾'], ['น้ำ', 'เย็', 'น'])

    """
    # A list is twice as fast here as the string.
    return _UNIT.findall(run) if _UNIT.match(run) else [*simplified(run)]


def document_grams(run: str) -> list[str]:
    """Return every unit of a run, then every pair of neighbours.

    Single characters serve queries of one character; the length of a document counts both.

    Examples:
        >>> document_grams("火災了")
        ['火', '灾', '了', '火灾', '灾了']

    """
    characters = units(run)
    return [*characters, *map(add, characters, characters[1:])]


def query_grams(run: str) -> list[str]:
    """Return every pair of neighbours in a run, or its single unit.

    A pair is nearly as specific as a word and needs no dictionary. Single characters in addition
    only cost time (measured without them: the same ranking from a sixteenth of the postings).

    Examples:
        >>> query_grams("火灾了"), query_grams("火")
        (['火灾', '灾了'], ['火'])

    """
    characters = units(run)
    return [*map(add, characters, characters[1:])] or characters


def word_grams(run: str, *, segment: Callable[[str], list[str]]) -> list[str]:
    """Return every character of a run, then its words of two characters or more.

    Characters still match where the dictionary segments query and document differently.

    Examples:
        >>> word_grams("安全法", segment=lambda run: [run[:2], run[2:]])
        ['安', '全', '法', '安全']

    """
    if not _HAN.match(run):
        return document_grams(run)
    run = simplified(run)  # the dictionary is in simplified Chinese
    return [*run, *(word for word in segment(run) if len(word) > 1)]


# One of these characters joins two words to one name: os.path, e-mail, O'Brien, AT&T.
CONNECTORS: Final = r".'’&\-‐"  # noqa: RUF001 - typographic apostrophe and hyphen on purpose


def pieces(text: str) -> list[str]:
    """Split text into words and unspaced runs of one script; drop the rest.

    A word keeps the signs of names and numbers: ``C++``, ``C#``, ``.NET``, ``1.2.3``,
    ``1,000``, ``os.path.join``, ``snake_case``, ``state-of-the-art``. An e-mail address or URL is
    split at ``@``, ``:`` and ``/``.

    Examples:
        >>> pieces("Use C++17, not .NET: 用タワーで 3.5x")
        ['Use', 'C++', '17', 'not', '.NET', '用', 'タワー', 'で', '3.5x']

    """
    return _pieces().findall(text)


def piece_matches(text: str) -> Iterator[re.Match[str]]:
    """Return the `pieces` of a text as matches, with their positions."""
    return _pieces().finditer(text)


def words(text: str) -> list[str]:
    """Return the `pieces` that are words.

    Examples:
        >>> words("用 Python 3.12 写")
        ['Python', '3.12']

    """
    return _words().findall(text)


@cache
def _pieces() -> re.Pattern[str]:
    return re.compile(f"{RUN}|{_word()}")


@cache
def _words() -> re.Pattern[str]:
    return re.compile(_word())


@cache  # lazy: finding Unicode's marks takes about ten milliseconds
def _word() -> str:
    letter = rf"[^\W{UNSPACED}]"
    # \w excludes combining marks; without them Hindi is split at its vowels. No group is possessive
    # because Python before 3.11.5 goes back too far in one: python/cpython issue 106052.
    word = f"{letter}{{1,128}}+(?:[{_marks()}]{{1,8}}+{letter}{{0,128}}+){{0,64}}"
    joint = rf"(?:[{CONNECTORS}]|(?<=\d),(?=\d{{3}}(?!\d)))"
    # A # belongs to a word of one letter only: C#, not issue#7.
    sign = r"(?:\+\+|(?<!\w\w)(?<![\d_])#)"
    name = rf"{word}(?:{joint}{word}){{0,7}}{sign}?"
    return rf"\.(?i:net)\b|{name}"


def _marks() -> str:
    """Return the ranges of the combining marks of scripts in use with spaces between words."""
    ranges: list[list[int]] = []
    for code in range(0x0300, 0x20000):
        if unicodedata.category(chr(code)).startswith("M") and not starts_unspaced(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def chinese_segmenter() -> Callable[[str], list[str]]:
    """Return a function from Chinese text to its words, in rjieba's search mode.

    Search mode returns a long word and the words in it: 中华人民共和国, 中华, 人民, 共和国.

    Examples:
        >>> chinese_segmenter()("安全生产法规定")
        ['安全', '生产', '法', '规定']

    """
    rjieba = optional_module("rjieba", "segmenting Chinese into words", "zh")
    cut: Callable[[str], list[str]] = rjieba.cut_for_search
    return cut


# The 100 most frequent surnames of one character, and those of two in use.
_SURNAMES: Final = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏"
    "魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵"
    "万钱严覃武戴莫孔向汤"
)
_DOUBLE_SURNAMES: Final = "欧阳|司马|上官|诸葛|皇甫|尉迟|公孙|慕容|令狐|司徒|夏侯"
# Not the words that rjieba takes for names in the 288 articles of `samples.zh_safety_laws`.
PERSON: Final = re.compile(rf"(?!许可|严格|高危)(?:[{_SURNAMES}]|{_DOUBLE_SURNAMES})[{HAN}]{{1,2}}")


def chinese_persons(text: str) -> list[str]:
    """Return the names of persons in a Chinese text: those that rjieba tags, with a surname.

    Examples:
        >>> chinese_persons("张伟和欧阳修昨天检查了塔吊 施工单位应当取得许可证。")
        ['张伟', '欧阳修']

    """
    rjieba = optional_module("rjieba", "finding Chinese names", "zh")
    tagged: list[tuple[str, str]] = rjieba.tag(text)
    return [word for word, tag in tagged if tag == "nr" and PERSON.fullmatch(word)]


def packed_id(token: str) -> bytes:
    """Return the `term_id` of a token as four bytes in the machine's order."""
    return term_id(token).to_bytes(4, sys.byteorder)


def term_id(token: str) -> int:
    """Return the unsigned 32-bit id of a token, the same in every store and on every machine.

    Two tokens share an id with probability ``2**-32``: among a million distinct tokens about a
    hundred pairs do, and a search for one then also finds the other. CRC-32 is six times as fast as
    a cryptographic hash, which is not needed here; on the vocabulary of our test corpora (223,000
    tokens, 5.8 collisions expected by chance) it has 5.

    Examples:
        >>> term_id("retrieval"), term_id("火灾")
        (249460906, 243498011)

    """
    # surrogatepass: a lone surrogate in a document must not break indexing.
    return crc32(token.encode("utf-8", "surrogatepass"))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Longer strings rarely repeat, and a few of them would fill the memory.
LONGEST_KEY: Final = 24


class BoundedCache(dict[K, V], Generic[K, V]):
    """Cache of a function's results: ``cache[key]`` returns the result, computed if missing.

    It is a dict, so ``map(cache.__getitem__, words)`` runs no Python code for cached words.
    It has two generations: when the young one is full, it replaces the old one, and the keys that
    are only in the old one are dropped. A lookup copies a key from the old to the young one. So
    frequent words stay, without bookkeeping on a hit. It is thread-safe: at worst a result is
    computed twice.

    Examples:
        >>> asked = []
        >>> cache = BoundedCache(lambda word: asked.append(word) or len(word), entries=2)
        >>> [cache[word] for word in ("a", "bc", "a", "def", "a")], asked
        ([1, 2, 1, 3, 1], ['a', 'bc', 'def'])

    """

    __slots__ = ("_compute", "_entries", "_old")

    def __init__(self, compute: Callable[[K], V], *, entries: int) -> None:
        super().__init__()
        self._compute = compute
        self._entries = entries
        self._old: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        old = self._old  # another thread may replace it
        value = old[key] if key in old else self._compute(key)
        if not isinstance(key, str) or len(key) <= LONGEST_KEY:
            if len(self) >= self._entries:
                self._old = dict(self)
                self.clear()
            self[key] = value
        return value
