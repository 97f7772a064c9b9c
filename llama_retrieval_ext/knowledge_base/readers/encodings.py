"""The encodings of texts."""

import codecs
import re
from typing import Final

from llama_retrieval_ext.errors import ConfigurationError

# Longer marks first: UTF-32's begins with UTF-16's.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
# Chinese text is mostly in GB 2312, except rare names and symbols; Latin-1 text hardly ever is.
_LEAST_COMMON: Final = 0.5


def check_encoding(encoding: str) -> str:
    """Return the name of a text encoding, or raise."""
    try:
        b"a".decode(encoding or "utf-8")  # nothing is looked up for no bytes
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"encoding must be one of Python's, such as 'latin-1' or 'cp1252', got {encoding!r}"
        ) from error
    return encoding


def decode_text(data: bytes, encoding: str = "") -> str | None:
    """Return bytes as text; None if they are not text in UTF-8, UTF-16 or GB18030.

    Without a byte order mark, UTF-8 is tried first, then only ``encoding`` if given. GB18030 or
    UTF-16 is accepted if the text has no control characters and half of its non-ASCII characters
    are common Chinese characters.
    """
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return _decoded(data, marked)
    if b"\0" not in data:
        text = _decoded(data, "utf-8")
        if text is None and encoding:
            text = _decoded(data, encoding)
            return None if text is None or CONTROL.search(text) else text
        return _plausible(_decoded(data, "gb18030")) if text is None else text
    return _plausible(_decoded(data, "utf-16-le")) or _plausible(_decoded(data, "utf-16-be"))


def may_be_text(head: bytes) -> bool:
    """Return whether a file with this beginning may be text."""
    if b"\0" not in head or head.startswith(tuple(mark for mark, _ in _MARKS)):
        return True
    # The cut may split a character of four bytes.
    return decode_text(head) is not None or decode_text(head[:-2]) is not None


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _plausible(text: str | None) -> str | None:
    """Return the text; None if it looks like another encoding."""
    if text is None or CONTROL.search(text):
        return None
    rare = _NOT_ASCII.findall(text)
    common = sum(1 for each in rare if each.encode("gb2312", "ignore"))
    return text if common >= _LEAST_COMMON * len(rare) else None
