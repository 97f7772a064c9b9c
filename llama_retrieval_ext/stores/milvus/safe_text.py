"""Text as it is stored for filters: without a single character that means something to Milvus.

Quotes, back-slashes, wildcards, control characters and lone surrogates are written as three
characters of Unicode's private area. So nothing in an expression ever has to be escaped, which
Milvus and Milvus Lite do differently, and nothing can break out of it. Parts of a text stay parts,
equal texts stay equal, and different ones different.
"""

from typing import Final

_UNIT: Final = "\ue000"
_DIGITS: Final = [chr(0xE001 + digit) for digit in range(64)]
# Between the values of a list; in no text that is stored.
SEPARATOR: Final = "\ue041"

_SPECIAL: Final = [
    *range(0x20),
    *map(ord, "\"'\\%_{}`\x7f"),
    *range(0xD800, 0xE000),
    *range(0xE000, 0xE042),
]
_TABLE: Final = {
    code: f"{_UNIT}{_DIGITS[place // 64]}{_DIGITS[place % 64]}"
    for place, code in enumerate(_SPECIAL)
}


def safe_text(text: str) -> str:
    r"""The text, with stand-ins for what has a meaning in filters.

    Examples:
        >>> safe_text("年假 2024")
        '年假 2024'
        >>> safe_text('" or 1==1') == "\ue000\ue001\ue021 or 1==1"
        True

    """
    return text.translate(_TABLE)


def safe_key(key: str) -> str:
    """A key of metadata as the end of an identifier: letters and digits, the rest in hexadecimal.

    Examples:
        >>> safe_key("year"), safe_key("tenant_id"), safe_key("a.b")
        ('year', 'tenant_5fid', 'a_2eb')

    """
    if key.isascii() and key.isalnum():
        return key
    octets = key.encode("utf-8", "surrogatepass")
    return "".join(_written(chr(octet)) for octet in octets)


def _written(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"_{ord(char):02x}"
