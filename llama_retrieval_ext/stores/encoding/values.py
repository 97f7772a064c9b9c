"""Conversion of metadata values and texts to the form that engines index."""

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeGuard, TypeVar

from llama_index.core.schema import BaseNode, MetadataMode
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.scope import START_FIELD
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text
from llama_retrieval_ext.text.normalization import valid_text

# The unit of stored dates, in nanoseconds.
MICROSECOND: Final = 1000
# The length of a date without a fraction of a second and a zone.
_WHOLE_SECONDS: Final = 19
_NO_FLOAT: Final = (
    "a whole number from 2**53 on that is no float, which engines round; store it as a string, or "
    "divided by a power of ten"
)
_SIGN: Final = 2**63
_ALL_BITS: Final = 2**64 - 1
_FEWEST_BITS: Final = 53


def storable(node: BaseNode) -> BaseNode:
    r"""Return a node whose values every engine keeps exactly; lone surrogates become U+FFFD.

    Raises:
        ConfigurationError: An id has lone surrogates, a number is no float, or a date is not in
            whole microseconds.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> storable(TextNode(text="caf\udce9")).get_content() == "caf\ufffd"
        True

    """
    for name, id_ in (("id", node.node_id), ("document id", node.ref_doc_id or "")):
        if valid_text(id_) != id_:
            raise ConfigurationError(
                f"node {node.node_id!r} has a lone surrogate in its {name}, as from a file name "
                "that is not UTF-8; give it another"
            )
    _check_values(node)
    text = node.get_content(MetadataMode.NONE)
    try:
        if not (text.isascii() and _is_ascii(node.metadata)):
            to_json((text, node.metadata))
    except PydanticSerializationError:
        clean = node_from_text(node_to_text(node))
        clean.embedding = node.embedding
        return clean
    return node


def _is_ascii(metadata: Mapping[str, object]) -> bool:
    """Return whether metadata is flat, and its keys and strings are ASCII."""
    for key, value in metadata.items():
        is_ascii = value.isascii() if isinstance(value, str) else isinstance(value, int | float)
        if not (is_ascii and key.isascii()):
            return False
    return True


def _check_values(node: BaseNode) -> None:
    """Raise if engines would round a number or a date in the metadata."""
    for key, value in node.metadata.items():
        for item in value if isinstance(value, list | tuple) else (value,):
            reason = ""
            if isinstance(item, str) and len(item) > _WHOLE_SECONDS and item[4] == "-":
                moment = instant(item) or 0
                if moment % MICROSECOND or not is_float(moment // MICROSECOND):
                    reason = "dates have at most six digits after the second"
            elif isinstance(item, int) and not is_float(item):
                reason = _NO_FLOAT
            if reason:
                raise ConfigurationError(f"node {node.node_id!r} has {item!r} in {key!r}: {reason}")


def is_float(number: int) -> bool:
    """Return whether a float equals a whole number."""
    if number.bit_length() <= _FEWEST_BITS:
        return True
    try:
        return float(number) == number
    except OverflowError:
        return False


def date_bound(value: str, bound: str) -> int:
    """Return a date in microseconds since 1970, as a bound ``gt``, ``gte``, ``lt`` or ``lte``."""
    moment = instant(value) or 0
    return moment // MICROSECOND if bound in {"gt", "lte"} else -(-moment // MICROSECOND)


def number_term(number: float) -> str:
    """Return a string that sorts like the number, which is a float or equals one; not NaN.

    Examples:
        >>> number_term(3) == number_term(3.0) != number_term(3.5)
        True
        >>> numbers = [-math.inf, -(2**70), -3, -2.5, -1e-300, 0, 5e-324, 0.1, 2, 2**53, 1e300]
        >>> sorted(numbers[::-1], key=number_term) == numbers
        True

    """
    # Adding 0.0 makes -0.0 equal 0.0. The bits of positive floats sort as they do.
    (bits,) = struct.unpack(">Q", struct.pack(">d", float(number) + 0.0))
    return f"{bits ^ (_ALL_BITS if bits & _SIGN else _SIGN):016x}"


def boolean_term(value: bool) -> str:  # noqa: FBT001 - a value
    """Return the stored form of a boolean."""
    return "true" if value else "false"


def plain_value(value: object) -> object:
    """Return the JSON form of dates, sets and similar metadata, as in the stored node."""
    if value is None or isinstance(value, str | bool | int | float | list | tuple | dict):
        return value
    plain: object = to_jsonable_python(value)
    return plain


def is_comparable(value: object) -> TypeGuard[str | float]:
    """Return whether filters compare a value: strings and numbers, but not booleans and NaN."""
    if isinstance(value, float):
        return not math.isnan(value)
    return isinstance(value, str | int) and not isinstance(value, bool)


def filterable(node: BaseNode) -> dict[str, object]:
    """Return the metadata of a node, and its position in its document if that is known."""
    return {**node.metadata, START_FIELD: getattr(node, "start_char_idx", None)}


T = TypeVar("T")


def batches(
    items: Iterable[T], size_bytes: Callable[[T], int], *, max_items: int, max_bytes: int
) -> Iterator[list[T]]:
    """Yield items in batches within both limits; a larger item gets its own batch."""
    batch: list[T] = []
    total_bytes = 0
    for item in items:
        size = size_bytes(item)
        if batch and (len(batch) == max_items or total_bytes + size > max_bytes):
            yield batch
            batch, total_bytes = [], 0
        batch.append(item)
        total_bytes += size
    if batch:
        yield batch
