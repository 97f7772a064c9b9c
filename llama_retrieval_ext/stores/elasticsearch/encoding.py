"""Metadata as terms in one keyword field, so that every filter is exact and no mapping grows.

Each term begins with its key as JSON has it, which no other key can imitate, and goes on with

====== =============================================================================
``s…`` a string; ``h…`` the digest of a long one
``n…`` a number, as `number_term` writes it: ranges of terms are ranges of numbers
``i…`` an element of a list, written as above
``l``  it is a list
``+``  it is there: not missing, not ``None``, not ``[]``
====== =============================================================================

A second field holds the strings in pieces for substring search: ``s…`` as they are, and ``l…`` in
lower case where that is another one.
"""

import json
import math
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, TypeGuard

from pydantic_core import to_jsonable_python

from llama_retrieval_ext.stores.encoding.values import number_term, utf8_safe

# The engine's limit for a term is 32,766 bytes.
_LONG: Final = 256
_PIECE: Final = 2000
# What can be looked for in a string: pieces overlap by it, and the engine's automaton for "*text*"
# grows with its square.
LONGEST_NEEDLE: Final = 128


def prefix(key: str) -> str:
    r"""What the terms of a key begin with.

    Examples:
        >>> prefix('say "x"')
        '"say \\"x\\""'

    """
    return utf8_safe(json.dumps(key, ensure_ascii=False))


def scalar(value: str | float) -> str:
    """The end of the term for a string or a number."""
    if not isinstance(value, str):
        return f"n{number_term(value)}"
    safe = utf8_safe(value)
    return f"s{safe}" if len(safe) <= _LONG else f"h{sha256(safe.encode()).hexdigest()}"


def terms_of(metadata: Mapping[str, object]) -> list[str]:
    """The terms of metadata.

    Examples:
        >>> terms_of({"lang": "en", "tags": ["a"], "gone": None})
        ['"lang"+', '"lang"sen', '"tags"l', '"tags"+', '"tags"isa']

    """
    return [f"{prefix(key)}{end}" for key, value in metadata.items() for end in _ends(value)]


def pieces_of(metadata: Mapping[str, object]) -> list[str]:
    """The pieces of the strings in metadata.

    Examples:
        >>> pieces_of({"title": "Leave", "lang": "en", "year": 2024})
        ['"title"sLeave', '"title"lleave', '"lang"sen']

    """
    return [
        f"{prefix(key)}{mark}{piece}"
        for key, value in metadata.items()
        for mark, text in _texts(_plain(value))
        for piece in _cut(utf8_safe(text))
    ]


def _ends(value: object) -> Iterator[str]:
    value = _plain(value)
    if isinstance(value, list | tuple):
        yield "l"
        if value:
            yield "+"
        yield from (f"i{scalar(each)}" for each in value if _is_scalar(each))
    elif value is not None:
        yield "+"
        if _is_scalar(value):
            yield scalar(value)


def _plain(value: object) -> object:
    """What JSON makes of dates, sets and the like, as in the stored node."""
    if value is None or isinstance(value, str | bool | int | float | list | tuple | dict):
        return value
    plain: object = to_jsonable_python(value)
    return plain


def _is_scalar(value: object) -> TypeGuard[str | float]:
    if isinstance(value, float):
        return not math.isnan(value)
    return isinstance(value, str | int) and not isinstance(value, bool)


def _texts(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield "s", value
        if value.lower() != value:
            yield "l", value.lower()


def _cut(text: str) -> Iterator[str]:
    step = _PIECE - LONGEST_NEEDLE
    for start in range(0, max(1, len(text) - LONGEST_NEEDLE), step):
        yield text[start : start + _PIECE]
