"""Numbers of lists and headings that a text program shows but does not store as text."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

_PLACE: Final = re.compile(r"%([1-9])")
_LAST_ROMAN: Final = 3999
_SIZES: Final = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
_ROMAN: Final = ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i")


class ListLevel(NamedTuple):
    """How one level of a list is numbered.

    Attributes:
        start: First number.
        kind: ``bullet``, ``none``, or a kind of numbers as Word names them, such as ``lowerRoman``.
        pattern: What is written before an item; ``%2`` stands for the number of the second level.

    """

    start: int
    kind: str
    pattern: str


class ListNumbers:
    """The lists of a file by name, and how far each of their levels, from 0, has been counted."""

    def __init__(self, levels: Mapping[str, Mapping[int, ListLevel]]) -> None:
        self._levels = levels
        self._counts: dict[str, dict[int, int]] = defaultdict(dict)

    def restart(self, name: str) -> None:
        """Count a list from its start again."""
        self._counts.pop(name, None)

    def next(self, name: str, place: int, number: int | None = None) -> str:
        """Return what is written before the next item of a list; empty for none.

        ``place`` is its level, from 0, and ``number`` its number if the file states it.
        """
        levels, counts = self._levels.get(name, {}), self._counts[name]
        if place not in levels:
            return ""
        following = counts[place] + 1 if place in counts else levels[place].start
        counts[place] = following if number is None else number
        for deeper in [count for count in counts if count > place]:
            del counts[deeper]
        if levels[place].kind in ("bullet", "none"):
            return "-" if levels[place].kind == "bullet" else ""

        def written(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            level = levels.get(at, levels[place])
            return _written(counts.get(at, level.start), level.kind)

        return _PLACE.sub(written, levels[place].pattern)


def _written(number: int, kind: str) -> str:
    """Return a number as Word writes it; kinds besides letters and Roman numbers as decimals."""
    text = str(number)
    if kind.endswith("Letter") and number > 0:
        turns, place = divmod(number - 1, 26)
        text = chr(ord("a") + place) * (turns + 1)
    elif kind.endswith("Roman") and 0 < number <= _LAST_ROMAN:
        text = ""
        for size, letters in zip(_SIZES, _ROMAN, strict=True):
            text += letters * (number // size)
            number %= size
    return text.upper() if kind.startswith("upper") else text
