"""Words that messages and views share."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

# Limits of names and values that come from documents, in messages.
_SHOWN: Final = 5
_LONGEST: Final = 30
# Characters of a name that are compared.
_COMPARED: Final = 100


def counted(number: int, noun: str) -> str:
    """Return a number with a noun in singular or plural.

    Examples:
        >>> counted(1, "document"), counted(1200, "document")
        ('1 document', '1,200 documents')

    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(value: object) -> str:
    """Return a value as in Python, on one line and cut to 30 characters.

    Examples:
        >>> quoted("year"), quoted(2024), quoted("x" * 40)
        ("'year'", '2024', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'")

    """
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the names most like a name, quoted, best first: at most five.

    Alike are names that share letters and pairs of letters, ignoring case (Dice's coefficient).

    Examples:
        >>> nearest("yaer", ["title", "year"])
        "'year', 'title'"
        >>> nearest("挖坑", ["地铁", "深基坑开挖"])
        "'深基坑开挖', '地铁'"

    """
    grams = _grams(name)

    def distance(other: str) -> tuple[float, str]:
        others = _grams(other)
        return -2 * (grams & others).total() / ((grams + others).total() or 1), other

    ranked = sorted({*names}, key=distance)
    more = ", …" if len(ranked) > _SHOWN else ""
    return ", ".join(map(quoted, ranked[:_SHOWN])) + more


def _grams(name: str) -> Counter[str]:
    text = name.casefold()[:_COMPARED]
    return Counter([*text, *map("".join, pairwise(text))])
