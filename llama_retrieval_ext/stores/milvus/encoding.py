"""Metadata as fields of strings, so that every filter is exact and means the same everywhere.

Milvus compares what metadata holds by the types of JSON, and Milvus Lite by those of Python: 3,
3.0, "3" and true equal each other here or there. Therefore each value becomes a string in a dynamic
field that its type and key name:

====== ================================================================================
``s_`` a string, as `safe_text` writes it
``i_`` the same in lower case, where that is another one
``n_`` a number, as `number_term` writes it: it sorts as the numbers do
``l_`` a list: its values between separators, each with its type's letter before it
``o_`` anything else that is not None
====== ================================================================================

Text as it is stored for filters: without a single character that means something to Milvus.

Quotes, back-slashes, wildcards, control characters and lone surrogates are written as three
characters of Unicode's private area. So nothing in an expression ever has to be escaped, which
Milvus and Milvus Lite do differently, and nothing can break out of it. Parts of a text stay parts,
equal texts stay equal, and different ones different.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from pydantic_core import to_jsonable_python

from llama_retrieval_ext.stores.encoding.values import number_term

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


Fields: TypeAlias = dict[str, str]

STRING: Final = "s_"
LOWER: Final = "i_"
NUMBER: Final = "n_"
LIST: Final = "l_"
OTHER: Final = "o_"
EMPTY_LIST: Final = SEPARATOR
_THERE: Final = "1"


def field(mark: str, key: str) -> str:
    """The name of a dynamic field.

    Examples:
        >>> field(STRING, "kb_id")
        's_kb_5fid'

    """
    return f"{mark}{safe_key(key)}"


def fields_of(metadata: Mapping[str, object]) -> Fields:
    """The dynamic fields for metadata.

    Examples:
        >>> fields_of({"lang": "en", "title": "Leave", "gone": None})
        {'s_lang': 'en', 's_title': 'Leave', 'i_title': 'leave'}

    """
    fields: Fields = {}
    for key, value in metadata.items():
        if value is not None:
            _put(fields, key, value)
    return fields


def marked(value: str | float) -> str:
    """A value of a list as it is stored.

    Examples:
        >>> marked("3"), marked(3) == marked(3.0) != marked("3")
        ('s3', True)

    """
    return f"s{safe_text(value)}" if isinstance(value, str) else f"n{number_term(value)}"


def _put(fields: Fields, key: str, value: object) -> None:
    if isinstance(value, str):
        fields[field(STRING, key)] = safe_text(value)
        lower = value.lower()
        if lower != value:
            fields[field(LOWER, key)] = safe_text(lower)
    elif isinstance(value, bool | dict):
        fields[field(OTHER, key)] = _THERE
    elif isinstance(value, int | float):
        if isinstance(value, float) and math.isnan(value):
            fields[field(OTHER, key)] = _THERE
        else:
            fields[field(NUMBER, key)] = number_term(value)
    elif isinstance(value, list | tuple):
        fields[field(LIST, key)] = _listed(value)
    else:  # a date, a set: what JSON makes of it, as in the stored node
        _put(fields, key, to_jsonable_python(value))


def _listed(values: Iterable[object]) -> str:
    return SEPARATOR + "".join(f"{_item(each)}{SEPARATOR}" for each in values)


def _item(value: object) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "o"
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return marked(value)
    return "o"
