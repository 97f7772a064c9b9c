"""Words without the accents that people leave out when they search."""

import unicodedata
from typing import Final

# Canonical combining classes of the marks to drop: overlays, Hebrew points, Arabic and Syriac
# vowel signs, and everything written above, below or beside a letter. Kept, because they make
# another letter: nukta (7), kana voicing (8), virama (9), Thai and Lao tones (103 to 122).
_DROPPED: Final = frozenset({1, *range(10, 37), *range(202, 241)})
# On a Cyrillic letter these two make another letter (й, ї, ў), as no other mark does.
_CYRILLIC_LETTER_MARKS: Final = "\u0306\u0308"
# Letters that look like one with a mark but have no decomposition, and the Cyrillic one that is
# mostly typed without its dots.
_LETTERS: Final = str.maketrans(
    {
        "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ł": "l", "ŧ": "t", "æ": "ae", "œ": "oe",
        "þ": "th", "\N{LATIN SMALL LETTER DOTLESS I}": "i", "ё": "\N{CYRILLIC SMALL LETTER IE}",
    }
)  # fmt: skip


def fold(word: str) -> str:
    """The word without accents: French, Spanish or Vietnamese is often typed without them.

    Latin, Greek, Hebrew and Arabic lose their marks; Cyrillic only stress marks and the dots of ё;
    other scripts nothing that makes a letter.

    Args:
        word: One casefolded word in NFKC.

    Returns:
        The word in NFC. ``fold(fold(word)) == fold(word)``.

    Examples:
        >>> [fold(word) for word in ("école", "smørrebrød", "đường", "мой", "ёлка")]
        ['ecole', 'smorrebrod', 'duong', 'мой', 'елка']

    """
    if word.isascii():
        return word
    kept: list[str] = []
    for char in unicodedata.normalize("NFD", word):
        if unicodedata.combining(char) not in _DROPPED or _makes_a_letter(char, kept):
            kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).translate(_LETTERS)


def _makes_a_letter(mark: str, before: list[str]) -> bool:
    return bool(before) and "\u0400" <= before[-1] <= "\u052f" and mark in _CYRILLIC_LETTER_MARKS
