"""The texts in a model's JSON, also where it is broken. Pure text."""

import json
import re
from collections.abc import Iterator
from typing import Final

_START: Final = re.compile(r"^\s*(?=[\[{])", re.MULTILINE)
_NEXT: Final = re.compile(r"[\s,]*(?=[\[{])")
# A string in double or single quotes that is closed, and the colon that makes it a key.
_STRINGS: Final = re.compile(
    r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.|(?<=\w)'(?=\w))*)')(\s*:)?""", re.DOTALL
)
# What models call a query when they also tell its kind or reason.
_NAMES: Final = frozenset({"query", "queries", "question", "questions", "text"})
_DEEPEST: Final = 10


def texts_in_json(text: str) -> list[str]:
    r"""The texts in the JSON of an answer, in their order.

    Args:
        text: An answer; the JSON may stand between other lines, may be several values, and may be
            cut off or written with single quotes.

    Returns:
        The texts, not the keys; of an object that has a ``query`` only that. Of broken JSON the
        texts that are whole. Nothing where no line begins with JSON, or it holds no text.

    Examples:
        >>> texts_in_json('Sure:\n{"queries": ["annual leave", {"query": "days off", "id": "b"}]}')
        ['annual leave', 'days off']
        >>> texts_in_json('["annual leave", "days o')
        ['annual leave']

    """
    start = _START.search(text)
    if start is None:
        return []
    try:
        found = [each for value in _values(text, start.end()) for each in _texts(value, _DEEPEST)]
    except (ValueError, RecursionError):
        strings = _STRINGS.findall(text, start.end())
        found = [double or single for double, single, colon in strings if not colon]
    return [each.strip() for each in found if each.strip()]


def _values(text: str, start: int) -> Iterator[object]:
    place: int | None = start
    decoder = json.JSONDecoder()
    while place is not None:
        value, end = decoder.raw_decode(text, place)
        yield value
        following = _NEXT.match(text, end)
        place = None if following is None else following.end()


def _texts(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, dict):
        named = [part for name, part in value.items() if name.lower() in _NAMES]
        for part in named or value.values():
            yield from _texts(part, depth - 1)
    elif depth and isinstance(value, list):
        for part in value:
            yield from _texts(part, depth - 1)
