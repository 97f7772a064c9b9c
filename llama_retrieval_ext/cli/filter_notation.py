"""The notation of ``--filter`` on the command line."""

import math
import re
from collections.abc import Sequence

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.filters import parse_filters

_OPERATORS = {
    "=": FilterOperator.EQ,
    "!=": FilterOperator.NE,
    ">=": FilterOperator.GTE,
    ">": FilterOperator.GT,
    "<=": FilterOperator.LTE,
    "<": FilterOperator.LT,
    "~": FilterOperator.TEXT_MATCH_INSENSITIVE,
}
# The first operator ends the key; of two that begin alike, the longer one counts.
_FILTER = re.compile(r"\s*(?P<key>[^=!<>~]*?)\s*(?P<operator>!=|>=|<=|[=<>~])\s*(?P<value>.*?)\s*")
_QUOTES = "\"'"
# What begins so was an operator of another language, == or =>, and would find nothing.
_TWISTED = ("=", "<", ">")
_MEANT = (
    "write KEY=VALUE, or one of != >= > <= < in place of =, or KEY~PART; "
    "in quotes a value is a string"
)


def parse_filter_options(options: Sequence[str]) -> MetadataFilters | None:
    """Return the filters that ``--filter`` options stand for; all of them must hold.

    Args:
        options: Each ``key=value``, ``key!=value``, ``key>=value``, ``key>value``, ``key<=value``,
            ``key<value`` or ``key~part``: the string has that part, whatever the case. A value that
            reads as a number is one, unless it is quoted; one that begins with ``=``, ``<`` or
            ``>`` has to be quoted.

    Returns:
        LlamaIndex filters, or None if there are no options.

    Raises:
        InvalidFilterError: An option is none of these, or its value does not fit its operator.

    Examples:
        >>> for part in parse_filter_options(["year>=2020", 'article="3"', "law~safety"]).filters:
        ...     print(part.key, part.operator.name, repr(part.value))
        year GTE 2020
        article EQ '3'
        law TEXT_MATCH_INSENSITIVE 'safety'

    """
    if not options:
        return None
    filters = MetadataFilters(filters=[_parse(option) for option in options])
    parse_filters(filters)
    return filters


def _parse(option: str) -> MetadataFilter:
    match = _FILTER.fullmatch(option)
    if match is None or not match["key"] or not match["value"]:
        raise InvalidFilterError(f"--filter {option!r} cannot be read; {_MEANT}")
    value, operator = match["value"], _OPERATORS[match["operator"]]
    if value[0] in _QUOTES:
        if len(value) < len(_QUOTES) or value[-1] != value[0]:
            raise InvalidFilterError(f"--filter {option!r} has a quote that does not end; {_MEANT}")
        return MetadataFilter(key=match["key"], operator=operator, value=value[1:-1])
    if value.startswith(_TWISTED):
        raise InvalidFilterError(
            f"--filter {option!r} has a value that begins as an operator; {_MEANT}"
        )
    is_text = operator is FilterOperator.TEXT_MATCH_INSENSITIVE
    return MetadataFilter(
        key=match["key"], operator=operator, value=value if is_text else _number_or_text(value)
    )


def _number_or_text(value: str) -> int | float | str:
    for number in (int, float):
        try:
            read = number(value)
        except ValueError:
            continue
        # Python also reads 1_000, nan and inf, which in metadata are words.
        if "_" not in value and math.isfinite(read):
            return read
    return value
