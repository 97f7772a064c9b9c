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
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from pydantic_core import to_jsonable_python

from llama_retrieval_ext.stores.milvus.safe_text import SEPARATOR, safe_key, safe_text
from llama_retrieval_ext.stores.nodes.number_terms import number_term

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
