"""Encoding of metadata as string fields: every filter is exact on every Milvus.

Milvus compares JSON types, and Milvus Lite Python types: some of 3, 3.0, "3" and true are equal in
one or in the other. So each value becomes a string, in a dynamic field named by its type and
key:

====== ================================================================================
``s_`` a string, as `safe_text` writes it
``i_`` the same string in lower case, if that differs
``n_`` a number, as `number_term` writes it: the strings sort as the numbers do
``l_`` a list: its values between separators, each with the letter of its type before it
``o_`` anything else that is not None
====== ================================================================================

Text is stored without any character that has a meaning in an expression: quotes, back-slashes,
wildcards, control characters and lone surrogates become three characters of Unicode's private
area. So no escaping is needed, which differs between Milvus and Milvus Lite, and no value can
break out of an expression. The mapping preserves substrings, equality and inequality.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from llama_retrieval_ext.stores.encoding.values import is_comparable, number_term, plain_value

_UNIT: Final = "\ue000"
_DIGITS: Final = [chr(0xE001 + digit) for digit in range(64)]
# Separates the values of a list; no stored text contains it.
SEPARATOR: Final = "\ue041"

_SPECIAL: Final = [
    *range(0x20),
    *map(ord, "\"'\\%_{}`\x7f"),
    *range(0xD800, 0xE000),
    *range(0xE000, 0xE042),
]
_TABLE: Final = {
    code: f"{_UNIT}{_DIGITS[index // 64]}{_DIGITS[index % 64]}"
    for index, code in enumerate(_SPECIAL)
}


def safe_text(text: str) -> str:
    r"""Return the text with replacements for characters that have a meaning in expressions.

    Examples:
        >>> safe_text("年假 2024")
        '年假 2024'
        >>> safe_text('" or 1==1') == "\ue000\ue001\ue021 or 1==1"
        True

    """
    return text.translate(_TABLE)


def safe_key(key: str) -> str:
    """Return a metadata key as part of an identifier; other characters become hexadecimal.

    Examples:
        >>> safe_key("year"), safe_key("tenant_id"), safe_key("a.b")
        ('year', 'tenant_5fid', 'a_2eb')

    """
    if key.isascii() and key.isalnum():
        return key
    octets = key.encode("utf-8", "surrogatepass")
    return "".join(_identifier_part(chr(octet)) for octet in octets)


def _identifier_part(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"_{ord(char):02x}"


Fields: TypeAlias = dict[str, str]

STRING: Final = "s_"
LOWER: Final = "i_"
NUMBER: Final = "n_"
LIST: Final = "l_"
OTHER: Final = "o_"
EMPTY_LIST: Final = SEPARATOR
_PRESENT: Final = "1"


def field(mark: str, key: str) -> str:
    """Return the name of a dynamic field.

    Examples:
        >>> field(STRING, "kb_id")
        's_kb_5fid'

    """
    return f"{mark}{safe_key(key)}"


def fields_of(metadata: Mapping[str, object]) -> Fields:
    """Return the dynamic fields for metadata.

    Examples:
        >>> fields_of({"lang": "en", "title": "Leave", "gone": None})
        {'s_lang': 'en', 's_title': 'Leave', 'i_title': 'leave'}

    """
    fields: Fields = {}
    for key, value in metadata.items():
        _put(fields, key, plain_value(value))
    return fields


def marked(value: str | float) -> str:
    """Return the stored form of a value in a list.

    Examples:
        >>> marked("3"), marked(3) == marked(3.0) != marked("3")
        ('s3', True)

    """
    return f"s{safe_text(value)}" if isinstance(value, str) else f"n{number_term(value)}"


def _put(fields: Fields, key: str, value: object) -> None:
    if isinstance(value, list | tuple):
        items = [marked(each) if is_comparable(each) else "o" for each in value]
        fields[field(LIST, key)] = SEPARATOR.join(["", *items, ""]) if items else EMPTY_LIST
    elif not is_comparable(value):
        if value is not None:
            fields[field(OTHER, key)] = _PRESENT
    elif isinstance(value, str):
        fields[field(STRING, key)] = safe_text(value)
        lower = value.lower()
        if lower != value:
            fields[field(LOWER, key)] = safe_text(lower)
    else:
        fields[field(NUMBER, key)] = number_term(value)
