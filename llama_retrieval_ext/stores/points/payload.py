"""What the engine stores beside a node's vectors: the node, and its metadata for exact filters.

::

    {"doc": ref_doc_id, "doc_key": see `document_key`, "node": the node as text,
     "meta": {key: string or number, or {} for anything else that is not None},
     "lower": {key: string in lower case, where that is another one},
     "big": {key: a number beyond what JSON keeps exactly, as a string of digits},
     "list": {key: a list's values, marked by type}}

Lists stand apart, because the engine's comparison with a field also compares with the elements of
a list. Groups without content are left out: every value costs some microseconds to hand over.
"""

import math
import sys
from collections.abc import Mapping
from typing import Final, TypeAlias

from llama_index.core.schema import BaseNode
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.stores.nodes.stored_node import node_to_text
from llama_retrieval_ext.stores.nodes.surrogates import all_utf8_safe

Payload: TypeAlias = dict[str, object]
_Groups: TypeAlias = dict[str, dict[str, object]]

DOC: Final = "doc"
DOC_KEY: Final = "doc_key"  # of servers alone
NODE: Final = "node"
META: Final = "meta"
LOWER: Final = "lower"
BIG: Final = "big"
LIST: Final = "list"
# First in every stored list: whether there is anything in it.
FILLED: Final = "+"
EMPTY: Final = "-"
# Below it, whole numbers and floats are the same to JSON and to Python.
EXACT: Final = 2**53
# How the lone surrogates begin that node_to_text had to escape.
_ESCAPED: Final = "\\ud"


def path(group: str, key: str) -> str:
    """The engine's name of a metadata field; in quotes, a dot or space in the key is just that."""
    return f'"{group}"."{key}"'


def payload_of(node: BaseNode) -> Payload:
    """Everything that is stored of a node beside its vectors.

    Raises:
        ConfigurationError: Something in the node has no JSON form.
    """
    text = node_to_text(node)
    payload: Payload = {NODE: text, **_groups(node.metadata)}
    ref_doc_id = node.ref_doc_id
    if ref_doc_id is not None:
        payload[DOC] = ref_doc_id
    return all_utf8_safe(payload) if _ESCAPED in text else payload


def marked(value: str | float) -> str:
    """A value of a list as it is stored: strings and numbers never equal each other."""
    return f"s{value}" if isinstance(value, str) else f"n{digits(value)}"


def digits(number: float) -> str:
    """A finite number as a string, the same for every number that equals it.

    Examples:
        >>> digits(3) == digits(3.0) != digits(3.5)
        True

    """
    # Hexadecimal, because Python refuses to write very long decimal numbers.
    return f"{int(number):x}" if number == int(number) else repr(number)


def _groups(metadata: Mapping[str, object]) -> Payload:
    groups: _Groups = {META: {}, LOWER: {}, BIG: {}, LIST: {}}
    for key, value in metadata.items():
        if value is not None:
            _put(groups, key, value)
    return {name: group for name, group in groups.items() if group}


def _put(groups: _Groups, key: str, value: object) -> None:
    if isinstance(value, str):
        groups[META][key] = value
        lower = value.lower()
        if lower != value:
            groups[LOWER][key] = lower
    elif isinstance(value, bool | dict):
        groups[META][key] = {}
    elif isinstance(value, int | float):
        groups[META][key] = _orderable(value)
        if EXACT <= abs(value) < math.inf:
            groups[BIG][key] = digits(value)
    elif isinstance(value, list | tuple):
        kept = [marked(each) for each in value if _is_comparable(each)]
        groups[LIST][key] = [FILLED if value else EMPTY, *kept]
    else:  # a date, a set: what JSON makes of it, as in the stored node
        _put(groups, key, to_jsonable_python(value))


def _orderable(number: float) -> object:
    """What the engine compares with the numbers below 2**53 as Python does; NaN is no number."""
    if abs(number) < EXACT:
        return number
    if isinstance(number, float) and math.isnan(number):
        return {}
    size = float(min(abs(number), sys.float_info.max))
    return size if number > 0 else -size


def _is_comparable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int) and not isinstance(value, bool)
