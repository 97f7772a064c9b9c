"""Terms of Chinese, Japanese and Korean text, which has no spaces to tell its words apart.

Each function gives the same terms for a traditional Chinese character and the simplified one.
"""

import re
from collections.abc import Callable
from operator import add
from typing import Final

from llama_retrieval_ext.text.scripts import CJK, HAN, HANGUL, HIRAGANA, KATAKANA
from llama_retrieval_ext.text.simplified import simplified

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
