"""Conversion of metadata values and texts to the form that engines index."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeGuard, TypeVar

from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.query import START_FIELD

# Below the smallest exponent of a float, -1074.
_OFFSET: Final = 2000
_DIGITS: Final = 4
_MOST: Final = 1024  # filters contain no number of 2**1024 or more: one term for all of them
_COMPLEMENT: Final = str.maketrans("0123456789abcdef", "fedcba9876543210")
_ZERO: Final = "b"
_ENDLESS: Final = {1: "cg", -1: "a "}


def number_term(number: float) -> str:
    """Return a string that sorts like the number; NaN is not allowed.

    It contains the sign, the exponent and the mantissa in base 16, without loss. Equal integers and
    floats have the same string. For negative numbers, each digit is replaced by its complement.

    Examples:
        >>> number_term(3) == number_term(3.0) != number_term(2**53 + 1) != number_term(2**53)
        True
        >>> numbers = [-math.inf, -(2**70), -3, -2.5, -1e-300, 0, 5e-324, 0.1, 2, 2**53 + 1, 1e300]
        >>> sorted(numbers[::-1], key=number_term) == numbers
        True

    """
    if number == 0:
        return _ZERO
    sign = 1 if number > 0 else -1
    if isinstance(number, float) and math.isinf(number):
        return _ENDLESS[sign]
    numerator, denominator = abs(number).as_integer_ratio()
    # The denominator of a float is a power of two.
    exponent = numerator.bit_length() - denominator.bit_length()
    if exponent >= _MOST:
        return _ENDLESS[sign]
    digits = f"{exponent + _OFFSET:0{_DIGITS}x}{_mantissa(numerator)}"
    # "~" sorts after every digit: with equal leading digits, the longer negative is smaller.
    return f"c{digits}" if sign > 0 else f"a{digits.translate(_COMPLEMENT)}~"


def _mantissa(numerator: int) -> str:
    """Return the binary digits after the first, in base 16, without trailing zeros."""
    bits = numerator.bit_length() - 1
    fraction = numerator - (1 << bits)
    pad = -bits % 4
    digits = (bits + pad) // 4
    return f"{fraction << pad:0{digits}x}".rstrip("0") if digits else ""


# One private character at the end of Unicode per surrogate preserves equality and substrings.
_STAND_INS: Final = {0xD800 + i: 0x10D800 + i for i in range(0x800)}


def utf8_safe(text: str) -> str:
    r"""Return the text with lone surrogates replaced.

    Examples:
        >>> utf8_safe("a\ud800") == "a\U0010d800"
        True

    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_STAND_INS)
    return text


def all_utf8_safe(values: Mapping[str, object]) -> dict[str, object]:
    """Return nested dicts and lists with `utf8_safe` applied to all strings and keys."""
    return {utf8_safe(key): _safe(value) for key, value in values.items()}


def _safe(value: object) -> object:
    match value:
        case str():
            return utf8_safe(value)
        case dict():
            return all_utf8_safe(value)
        case list():
            return [_safe(part) for part in value]
        case _:
            return value


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


def keyword_text(node: BaseNode) -> str:
    r"""Return a node's text for embedding models, without tenant, kb id and principals.

    Keyword search therefore covers metadata such as a title, except the keys in
    ``excluded_embed_metadata_keys``.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> keyword_text(TextNode(text="25 days", metadata={"title": "Leave", "tenant_id": "acme"}))
        'title: Leave\n\n25 days'

    """
    hidden = [*node.excluded_embed_metadata_keys, *SCOPE_KEYS]
    if type(node) is not TextNode:
        bare = node.model_copy(update={"excluded_embed_metadata_keys": hidden})
        return bare.get_content(MetadataMode.EMBED)
    # What LlamaIndex does for such a node, in a third of the time.
    shown = (item for item in node.metadata.items() if item[0] not in hidden)
    lines = [node.metadata_template.format(key=key, value=str(value)) for key, value in shown]
    metadata = node.metadata_separator.join(lines).strip()
    if not metadata:
        return node.text
    return node.text_template.format(content=node.text, metadata_str=metadata).strip()


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
