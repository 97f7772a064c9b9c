"""Encoding of metadata as terms of one keyword field: filters are exact, the mapping is fixed.

Each term is its key in JSON, which is never a prefix of another key's JSON, followed by

====== =============================================================================
``s…`` a string; ``h…`` the digest of a long string
``n…`` a number, as `number_term` writes it: ranges of terms are ranges of numbers
``i…`` an element of a list, in one of the forms above
``l``  the value is a list
``+``  the value is not missing, not ``None``, not ``[]``
====== =============================================================================

A second field holds pieces of the strings for substring search: ``s…`` unchanged, and ``l…`` in
lower case if that differs.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

import numpy as np

from llama_retrieval_ext.stores.encoding.values import (
    is_comparable,
    number_term,
    plain_value,
    utf8_safe,
)
from llama_retrieval_ext.stores.encoding.vectors import Distance

Json: TypeAlias = dict[str, Any]  # Any: JSON of the engine

# Longer strings are stored as digests. The engine's limit for a term is 32,766 bytes.
_MAX_TERM: Final = 256
_PIECE: Final = 2000
# Longest substring for a search: pieces overlap by this length, and the size of the engine's
# automaton for "*text*" is quadratic in it.
MAX_SUBSTRING: Final = 128
_DECIMALS: Final = 8


def prefix(key: str) -> str:
    r"""Return the prefix of a key's terms.

    Examples:
        >>> prefix('say "x"')
        '"say \\"x\\""'

    """
    return utf8_safe(json.dumps(key, ensure_ascii=False))


def scalar(value: str | float) -> str:
    """Return the part of the term after the key, for a string or a number."""
    if not isinstance(value, str):
        return f"n{number_term(value)}"
    safe = utf8_safe(value)
    return f"s{safe}" if len(safe) <= _MAX_TERM else f"h{sha256(safe.encode()).hexdigest()}"


def terms_of(metadata: Mapping[str, object]) -> list[str]:
    """Return the terms of metadata.

    Examples:
        >>> terms_of({"lang": "en", "tags": ["a"], "gone": None})
        ['"lang"+', '"lang"sen', '"tags"l', '"tags"+', '"tags"isa']

    """
    return [f"{prefix(key)}{end}" for key, value in metadata.items() for end in _ends(value)]


def pieces_of(metadata: Mapping[str, object]) -> list[str]:
    """Return the pieces of the strings in metadata.

    Examples:
        >>> pieces_of({"title": "Leave", "lang": "en", "year": 2024})
        ['"title"sLeave', '"title"lleave', '"lang"sen']

    """
    return [
        f"{prefix(key)}{mark}{piece}"
        for key, value in metadata.items()
        for mark, text in _texts(plain_value(value))
        for piece in _cut(utf8_safe(text))
    ]


def _ends(value: object) -> Iterator[str]:
    value = plain_value(value)
    if isinstance(value, list | tuple):
        yield "l"
        if value:
            yield "+"
        yield from (f"i{scalar(each)}" for each in value if is_comparable(each))
    elif value is not None:
        yield "+"
        if is_comparable(value):
            yield scalar(value)


def _texts(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield "s", value
        if value.lower() != value:
            yield "l", value.lower()


def _cut(text: str) -> Iterator[str]:
    step = _PIECE - MAX_SUBSTRING
    for start in range(0, max(1, len(text) - MAX_SUBSTRING), step):
        yield text[start : start + _PIECE]


def compact_vector(vector: list[float], distance: Distance) -> list[float] | None:
    """Return a vector in few digits, of length 1 for cosine; None for zeros with cosine.

    Examples:
        >>> compact_vector([3.0, 4.0], "cosine"), compact_vector([0.0, 0.0], "cosine")
        ([0.6, 0.8], None)

    """
    values = np.asarray(vector, dtype=np.float64)
    if distance != "cosine":
        single: list[float] = values.astype(np.float32).tolist()
        return single
    largest = float(np.abs(values).max())
    if largest == 0.0:
        return None
    values = values / largest  # avoids overflow and underflow of the squares
    # At length 1, single precision has no more digits.
    short: list[float] = np.round(values / np.linalg.norm(values), _DECIMALS).tolist()
    return short
