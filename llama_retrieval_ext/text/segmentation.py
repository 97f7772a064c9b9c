"""Terms of Chinese, Japanese and Korean text, which has no spaces to tell its words apart.

Each function gives the same terms for a traditional Chinese character and the simplified one.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from operator import add
from typing import Final

from llama_retrieval_ext.errors import MissingDependencyError
from llama_retrieval_ext.text.normalization import CJK, HAN, HANGUL, HIRAGANA, KATAKANA
from llama_retrieval_ext.text.traditional_chinese import simplified

# One script at a time: 東京タワーへ行く is 東京, タワー, へ, 行, く, and its nouns stand free of
# the endings written in hiragana.
RUN: Final = f"[{HAN}]+|[{HIRAGANA}]+|[{KATAKANA}]+|[{HANGUL}]+"
_RUN: Final = re.compile(RUN)
_CJK: Final = re.compile(f"[{CJK}]")
_HAN: Final = re.compile(f"[{HAN}]")

has_cjk: Final = _CJK.search
"""A match if there is a CJK character anywhere in a text, else None."""

runs: Final = _RUN.findall
"""The runs of CJK characters in a text, cut where the script changes."""

is_run: Final = _RUN.fullmatch
"""A match if a text is CJK characters of one script and nothing else, else None."""

starts_cjk: Final = _CJK.match
"""A match if a text starts with a CJK character, else None."""


def document_grams(run: str) -> list[str]:
    """Every character of a run, then every pair of neighbours.

    The characters are there for queries of one character; the length of a document counts both.

    Args:
        run: Characters of one script.

    Returns:
        2n - 1 terms for n characters.

    Examples:
        >>> document_grams("火災了")
        ['火', '灾', '了', '火灾', '灾了']

    """
    characters = [*simplified(run)]  # made once: twice as fast as pairing the string with itself
    return [*characters, *map(add, characters, characters[1:])]


def query_grams(run: str) -> list[str]:
    """Every pair of neighbours in a run, or the character if it stands alone.

    A pair tells nearly as much as a word and needs no dictionary; single characters beside it add
    nothing but work (measured: the same ranking for a sixteenth of the postings).

    Args:
        run: Characters of one script.

    Returns:
        n - 1 terms for n characters, at least one; all of them are `document_grams` of every run
        that contains this one.

    Examples:
        >>> query_grams("火灾了"), query_grams("火")
        (['火灾', '灾了'], ['火'])

    """
    run = simplified(run)
    return [*map(add, run, run[1:])] or [run]


def word_grams(run: str, *, segment: Callable[[str], list[str]]) -> list[str]:
    """Every character of a run, then its words of two characters or more.

    The characters bridge what the dictionary cuts differently in query and document.

    Args:
        run: Characters of one script.
        segment: From Chinese text to its words.

    Returns:
        Characters, then words; of another script than Han its `document_grams`.

    Examples:
        >>> word_grams("安全法", segment=lambda run: [run[:2], run[2:]])
        ['安', '全', '法', '安全']

    """
    if not _HAN.match(run):
        return document_grams(run)
    run = simplified(run)  # the dictionary's spelling, too
    return [*run, *(word for word in segment(run) if len(word) > 1)]


# One of these between two words makes one name of them: os.path, e-mail, O'Brien, AT&T.
CONNECTORS: Final = r".'’&\-‐"  # noqa: RUF001 - typographic apostrophe and hyphen on purpose


def pieces(text: str) -> list[str]:
    """Cut text into CJK runs of one script and words; the rest is dropped.

    A word keeps what makes a name or number of it: ``C++``, ``C#``, ``.NET``, ``1.2.3``,
    ``1,000``, ``os.path.join``, ``snake_case``, ``state-of-the-art``. An e-mail address or URL is
    cut at its ``@``, ``:`` and ``/``. Thai, Lao, Khmer and Burmese are cut at spaces only.

    Args:
        text: In NFKC. A word ends after 128 letters, a name after 8 words. Linear time.

    Returns:
        The pieces in the order of the text.

    Examples:
        >>> pieces("Use C++17, not .NET: 用タワーで 3.5x")
        ['Use', 'C++', '17', 'not', '.NET', '用', 'タワー', 'で', '3.5x']

    """
    return _pieces().findall(text)


def words(text: str) -> list[str]:
    """The `pieces` that are words.

    Args:
        text: In NFKC.

    Returns:
        The words in the order of the text.

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


@cache  # made at first use: finding Unicode's marks takes some ten milliseconds
def _word() -> str:
    letter = rf"[^\W{CJK}]"
    # \w leaves combining marks out, and without them Hindi would be cut at its vowels.
    word = f"{letter}{{1,128}}+(?:[{_marks()}]{{1,8}}+{letter}{{0,128}}+){{0,64}}+"
    joint = rf"(?:[{CONNECTORS}]|(?<=\d),(?=\d{{3}}(?!\d)))"
    # A # belongs to a single letter only: C#, not issue#7.
    sign = r"(?:\+\+|(?<!\w\w)(?<![\d_])#)"
    name = rf"{word}(?:{joint}{word}){{0,7}}+{sign}?"
    return rf"\.(?i:net)\b|{name}"


def _marks() -> str:
    """Ranges of all combining marks of scripts in use."""
    ranges: list[list[int]] = []
    for code in range(0x0300, 0x20000):
        if unicodedata.category(chr(code)).startswith("M"):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def chinese_segmenter() -> Callable[[str], list[str]]:
    """A function from Chinese text to its words, in rjieba's search mode.

    Search mode gives a long word and the words in it: 中华人民共和国, and also 中华, 人民, 共和国.

    Returns:
        The function; threads may share it.

    Raises:
        MissingDependencyError: rjieba is not installed.

    Examples:
        >>> chinese_segmenter()("安全生产法规定")
        ['安全', '生产', '法', '规定']

    """
    try:
        import rjieba  # noqa: PLC0415 - an extra, loaded when asked for
    except ModuleNotFoundError as error:
        raise MissingDependencyError("segmenting Chinese into words", "zh") from error
    cut: Callable[[str], list[str]] = rjieba.cut_for_search
    return cut
