"""Where text is cut: into CJK runs, and into words with what holds a name together."""

import re
import unicodedata
from functools import cache
from typing import Final

from llama_retrieval_ext.text.cjk import RUN
from llama_retrieval_ext.text.scripts import CJK

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
