"""The term ids of the characters and pairs of text without spaces; for CJK by tables."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from llama_retrieval_ext.text.normalization import (
    HAN,
    HANGUL,
    HIRAGANA,
    KATAKANA,
    SOUTH_EAST_ASIAN,
    simplified,
)
from llama_retrieval_ext.text.segmentation import document_grams, packed_id, runs, syllabic_runs

_Ids: TypeAlias = npt.NDArray[np.uint32]

# The mark in the tables of the scripts whose units have several characters.
_SYLLABIC: Final = 5


def packed_grams(text: str) -> bytes:
    """Return the `packed_id` of each of a text's `document_grams`, in no order.

    Examples:
        >>> packed_grams("火灾, ok") == b"".join(map(packed_id, ["火", "灾", "火灾"]))
        True

    """
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) != 2 * len(text):  # a character of two units, which the tables do not have
        return _packed(runs(text))
    codes = np.frombuffer(units, dtype="<u2")
    scripts, alone, left, right = _gram_tables()
    script = scripts[codes]
    others = b""
    if bytes([_SYLLABIC]) in script.tobytes():  # faster than numpy on short texts
        script[script == _SYLLABIC] = 0
        others = _packed(syllabic_runs(text))
    first = np.flatnonzero((script[:-1] == script[1:]) & (script[1:] > 0))
    pairs = left[codes[first]] ^ right[codes[first + 1]]
    packed: bytes = alone[codes[script > 0]].tobytes() + pairs.tobytes()
    return packed + others


def _packed(parts: Iterable[str]) -> bytes:
    return b"".join(packed_id(gram) for run in parts for gram in document_grams(run))


@cache  # lazy: takes ten milliseconds
def _gram_tables() -> tuple[npt.NDArray[np.uint8], _Ids, _Ids, _Ids]:
    """Return the script of each character of 16 bits, its id, and its two parts in ids of pairs.

    CRC-32 is linear: the id of a text is the exclusive or of a number for each of its bytes. The
    characters of these scripts have three bytes in UTF-8.
    """
    scripts = np.zeros(2**16, dtype=np.uint8)
    every = "".join(map(chr, range(2**16)))
    syllabic = "".join(SOUTH_EAST_ASIAN.values())
    for number, script in enumerate((HAN, HIRAGANA, KATAKANA, HANGUL, syllabic), 1):
        scripts[[*map(ord, re.findall(f"[{script}]", every))]] = number
    codes = np.frombuffer(simplified(every).encode("utf-16-le", "surrogatepass"), dtype="<u2")
    utf_8 = (codes >> 12 | 0xE0, codes >> 6 & 0x3F | 0x80, codes & 0x3F | 0x80)
    left, right = (
        np.bitwise_xor.reduce([_crc_part(start + i)[byte] for i, byte in enumerate(utf_8)])
        for start in (0, 3)
    )
    alone, first = right ^ np.uint32(crc32(bytes(3))), left ^ np.uint32(crc32(bytes(6)))
    return scripts, alone, first, right


def _crc_part(position: int) -> _Ids:
    """Return what each value of one of six bytes changes in their CRC-32."""
    every = [crc32(bytes([*bytes(position), value, *bytes(5 - position)])) for value in range(256)]
    return np.array(every, dtype=np.uint32) ^ np.uint32(crc32(bytes(6)))
