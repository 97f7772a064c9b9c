"""Metadata filters: parsing, evaluation, and rejection of invalid filters.

LlamaIndex's ``MetadataFilters`` are parsed once, on entry, into a small tree of conditions.
Every backend compiles that tree. `matches` is the reference implementation in Python: backends are
tested against it, and every hit is checked with it.

Meaning of each operator for a field ``f`` and a filter value ``v``:

========================== ======================================================================
``EQ`` / ``NE``            ``f`` equals ``v`` or not. 3 equals 3.0, never "3"; a list equals
                           nothing; true equals 1 and "true", false equals 0 and "false"; an
                           accent that is a character of its own equals a composed letter
``GT GTE LT LTE``          ``f`` and ``v`` are both numbers or both dates, and compare so
``IN`` / ``NIN``           ``f`` equals one of the values / none
``ANY`` / ``ALL``          ``f`` is a list that contains at least one / all of the values
``CONTAINS``               ``f`` is a list that contains ``v``
``TEXT_MATCH``             ``f`` is a string containing ``v``; ``_INSENSITIVE`` compares lower case;
                           in names of files (``file_name``, ``file_path``) accents as in EQ
``IS_EMPTY``               ``f`` is missing, ``None`` or ``[]``
========================== ======================================================================

Dates are those of `dates.instant`; ``EQ`` and ``IN`` compare them as strings.

A missing field satisfies only ``NE``, ``NIN`` and ``IS_EMPTY``. LlamaIndex's filters cannot contain
booleans, so that 1, 0, "true" and "false" stand for them, but not for those in a list.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.arguments import value_expression
from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import InvalidFilterError, UnsupportedFilterError
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.text.normalization import spellings, valid_text

# Stored with each node; they say whose it is (see `query`), and are no part of its text.
SCOPE_KEYS = ("tenant_id", "kb_id", "allowed")
_FILE_KEYS: Final = ("file_name", "file_path")

Scalar: TypeAlias = str | int | float
Value: TypeAlias = Scalar | tuple[Scalar, ...] | None
# Whether a field satisfies a comparison with a value. Any: `parse_filters` has checked its type.
Test: TypeAlias = Callable[[object, Any], bool]


@dataclass(frozen=True, slots=True)
class Compare:
    """Comparison of a field with a value (a tuple for list operators, None for IS_EMPTY)."""

    key: str
    operator: FilterOperator
    value: Value


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conjunction of conditions; without parts always true."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction of conditions; without parts always false."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of a condition."""

    part: "Condition"


Condition: TypeAlias = Compare | AllOf | AnyOf | Not

# Letters of any script, digits and a few separators; without quotes, brackets, backslashes and
# control characters, so that compilers need not escape a key.
_KEY = re.compile(r"\w(?:[\w .:/@+-]{0,126}\w)?")
# The smallest limit of the engines, of Elasticsearch: filters mean the same on each.
_MOST_VALUES: Final = 65_536
# Each condition is tested for each node in Python, and each level is one call deeper.
_MOST_CONDITIONS: Final = 1_000
_DEEPEST: Final = 100
_LIST_OPERATORS = {FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL}
ORDER_OPERATORS = (FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE)
MEMBERSHIP_OPERATORS = frozenset({FilterOperator.EQ, FilterOperator.IN})
EQUALITY_OPERATORS = MEMBERSHIP_OPERATORS | {FilterOperator.NE, FilterOperator.NIN}
_TEXT_OPERATORS = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}


# The operators that each field beside the metadata has, by its name.
Fields: TypeAlias = Mapping[str, Container[FilterOperator]]


def parse_filters(filters: MetadataFilters, *, fields: Fields = MappingProxyType({})) -> Condition:
    """Return LlamaIndex filters as a condition, or raise `InvalidFilterError` with a correction.

    Args:
        filters: The filters.
        fields: Fields beside the metadata, which are keys as well; `UnsupportedFilterError` for
            an operator that one does not have.

    Examples:
        >>> from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
        >>> parse_filters(MetadataFilters(filters=[MetadataFilter(key="year", value=2024)]))
        Compare(key='year', operator=<FilterOperator.EQ: '=='>, value=2024)

    """
    if not isinstance(filters, MetadataFilters):
        raise InvalidFilterError(
            f"filters are LlamaIndex's MetadataFilters, got {filters!r}; write "
            "MetadataFilters(filters=[MetadataFilter(key=..., value=...)])"
        )
    _check_size(filters)
    return _parse_group(filters, fields)


def _check_size(filters: MetadataFilters) -> None:
    """Raise for more conditions or levels than are tested in bounded time, without recursion."""
    level, count, depth = [filters], 0, 0
    while level and depth < _DEEPEST:
        count += sum(len(group.filters) for group in level)
        if count > _MOST_CONDITIONS:
            raise InvalidFilterError(
                f"filters have at most {_MOST_CONDITIONS:,} conditions and groups, got more; "
                "for many values of a field use IN"
            )
        parts = (part for group in level for part in group.filters)
        level = [part for part in parts if isinstance(part, MetadataFilters)]
        depth += 1
    if level:
        raise InvalidFilterError(
            f"filters are nested at most {_DEEPEST} levels deep, got more; write them flatter"
        )


def _parse_group(filters: MetadataFilters, fields: Fields) -> Condition:
    if not filters.filters:
        raise InvalidFilterError(
            "got an empty group of filters; to filter nothing, pass filters=None"
        )
    parts = tuple(
        _parse_group(part, fields)
        if isinstance(part, MetadataFilters)
        else _parse_one(part, fields)
        for part in filters.filters
    )
    if filters.condition is FilterCondition.NOT:
        return Not(parts[0] if len(parts) == 1 else AnyOf(parts))
    if filters.condition is FilterCondition.OR:
        return parts[0] if len(parts) == 1 else AnyOf(parts)
    if filters.condition is FilterCondition.AND:
        return parts[0] if len(parts) == 1 else AllOf(parts)
    raise InvalidFilterError(
        f"a group of filters has condition={filters.condition!r}; "
        "write FilterCondition.AND, OR or NOT (AND is what leaving it out means)"
    )


def _parse_one(given: MetadataFilter, fields: Fields) -> Condition:
    key, operator, value = given.key, given.operator, given.value
    if key in fields:
        _check_operator(key, operator, fields)
    elif not _KEY.fullmatch(key):
        raise InvalidFilterError(
            f"got the filter key {key!r}; a key has 1 to 128 letters, digits or any of ' _.:/@+-', "
            "and begins and ends with a letter or digit"
        )
    if operator is FilterOperator.IS_EMPTY:
        if value is not None:
            raise InvalidFilterError(
                f"IS_EMPTY on {key!r} takes no value, got {value!r}; write None"
            )
        return Compare(key, operator, None)
    if value is None:
        raise InvalidFilterError(
            f"the filter on {key!r} has the value None; to find nodes without it, use "
            "FilterOperator.IS_EMPTY, and to filter nothing, leave the filter out"
        )
    expected, fits = _expectation(operator)
    # Stored texts have no lone surrogates, either.
    parsed: Value = (
        tuple(valid_text(item) if isinstance(item, str) else item for item in value)
        if isinstance(value, list)
        else valid_text(value)
        if isinstance(value, str)
        else value
    )
    if not fits(parsed):
        raise InvalidFilterError(f"{operator.name} on {key!r} takes {expected}, got {value!r}")
    compare = Compare(key, operator, parsed)
    values = in_all_spellings(compare)[0].value
    if isinstance(values, tuple) and len(values) > _MOST_VALUES:
        raise InvalidFilterError(
            f"{operator.name} on {key!r} takes at most {_MOST_VALUES:,} values, got "
            f"{len(values):,}; store a field that groups them, or search in parts"
        )
    return compare


@lru_cache(maxsize=64)
def in_all_spellings(compare: Compare) -> tuple[Compare, ...]:
    """Return the comparisons, one of which holds, with the spellings of its texts in Unicode.

    Examples:
        >>> in_all_spellings(Compare("year", FilterOperator.EQ, 2024))
        (Compare(key='year', operator=<FilterOperator.EQ: '=='>, value=2024),)

    """
    key, operator, value = compare.key, compare.operator, compare.value
    values: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    is_part = operator in _TEXT_OPERATORS and key in _FILE_KEYS
    has_spellings = is_part or (operator in EQUALITY_OPERATORS and key not in SCOPE_KEYS)
    if not has_spellings or all(not isinstance(text, str) or text.isascii() for text in values):
        return (compare,)
    spelled = dict.fromkeys(
        spelling
        for text in values
        for spelling in (spellings(text) if isinstance(text, str) else [text])
    )
    if is_part:
        return tuple(replace(compare, value=text) for text in spelled)
    several = {FilterOperator.EQ: FilterOperator.IN, FilterOperator.NE: FilterOperator.NIN}
    return (Compare(key, several.get(operator, operator), tuple(spelled)),)


def _check_operator(key: str, operator: FilterOperator, fields: Fields) -> None:
    if operator not in fields[key]:
        operators = ", ".join(
            operator.name for operator in FilterOperator if operator in fields[key]
        )
        raise UnsupportedFilterError(
            f"the field {key!r} has the operators {operators}, got {operator.name}", operator.name
        )


def _expectation(operator: FilterOperator) -> tuple[str, Callable[[Value], bool]]:
    if operator in _LIST_OPERATORS:
        return (
            "a list of strings or finite numbers",
            lambda value: isinstance(value, tuple) and all(map(_is_scalar, value)),
        )
    if operator in ORDER_OPERATORS:
        return (
            "a finite number, or a date as '2024-01-31' or '2024-01-31T09:30:00Z'",
            lambda value: is_number(value) or instant(value) is not None,
        )
    if operator in _TEXT_OPERATORS:
        return "a string", lambda value: isinstance(value, str)
    return "a string or a finite number (for several values use IN, for lists CONTAINS)", _is_scalar


def _is_scalar(value: object) -> bool:
    return isinstance(value, str) or is_number(value)


def both(first: Condition | None, second: Condition | None) -> Condition | None:
    """Return the conjunction of two conditions; None stands for no condition."""
    if first is None or second is None:
        return first or second
    return AllOf((first, second))


def matches(condition: Condition | None, metadata: Mapping[str, object]) -> bool:
    """Return whether metadata satisfies a condition, by the table at the top of this module.

    Examples:
        >>> matches(Compare("year", FilterOperator.GTE, 2020), {"year": 2024})
        True
        >>> matches(Not(Compare("lang", FilterOperator.EQ, "en")), {})
        True

    """
    match condition:
        case None:
            return True
        case Compare():
            return _holds(condition, metadata.get(condition.key))
        case AllOf(parts):
            return all(matches(part, metadata) for part in parts)
        case AnyOf(parts):
            return any(matches(part, metadata) for part in parts)
        case Not(part):
            return not matches(part, metadata)


def _holds(compare: Compare, field: object) -> bool:
    if isinstance(field, bool) and compare.key in SCOPE_KEYS:
        field = {}  # a scope names strings: true is no tenant "true"
    if isinstance(field, str) and not field.isascii():
        spelled = in_all_spellings(compare)
        return any(_OPERATORS[part.operator](field, part.value) for part in spelled)
    return _OPERATORS[compare.operator](field, compare.value)


def comparisons(condition: Condition) -> Iterator[Compare]:
    """Yield all comparisons in a condition."""
    match condition:
        case Compare():
            yield condition
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from comparisons(part)
        case Not(part):
            yield from comparisons(part)


def compares_dates(compare: Compare) -> bool:
    """Return whether a comparison is one of dates by time."""
    return compare.operator in ORDER_OPERATORS and isinstance(compare.value, str)


def refuse_dates(condition: Condition, where: str) -> None:
    """Raise `UnsupportedFilterError` if a condition compares dates by time."""
    for comparison in comparisons(condition):
        if compares_dates(comparison):
            raise UnsupportedFilterError(
                f"{where} may compare the date {comparison.value!r} for {comparison.key!r} as "
                "text; store dates as numbers, such as 20240131",
                comparison.operator.name,
            )


def meanings(values: Sequence[Scalar]) -> Sequence[Scalar]:
    """Return values with the booleans that they stand for.

    Examples:
        >>> meanings([3, 1]), meanings(["true", 0.0]), meanings(["True", "1"])
        ([3, 1, True], ['true', 0.0, True, False], ['True', '1'])

    """
    meant = [meaning for value in values if (meaning := _boolean(value)) is not None]
    return [*values, *dict.fromkeys(meant)]


def _boolean(value: object) -> bool | None:
    """Return the boolean that a value of a filter stands for; None for others."""
    if isinstance(value, str):
        return value == "true" if value in {"true", "false"} else None
    return value == 1 if value in {0, 1} else None


def _equal(field: object, value: object) -> bool:
    if isinstance(field, bool):
        return _boolean(value) is field
    if isinstance(field, str) is not isinstance(value, str):
        return False
    return isinstance(field, str | int | float) and field == value


def _among(field: object, values: Sequence[Scalar]) -> bool:
    return any(_equal(field, value) for value in values)


def _has(field: object, value: Scalar) -> bool:
    return isinstance(field, list | tuple) and any(
        _equal(item, value) for item in field if not isinstance(item, bool)
    )


@lru_cache(maxsize=64)
def _as_set(values: tuple[Scalar, ...]) -> frozenset[Scalar]:
    return frozenset(values)


def _has_any(field: object, values: Sequence[Scalar]) -> bool:
    if not isinstance(field, list | tuple) or not field:
        return False
    among = _as_set(tuple(values))  # a scope may have hundreds
    scalars = (item for item in field if isinstance(item, str | int | float))
    return any(scalar in among and not isinstance(scalar, bool) for scalar in scalars)


def _has_all(field: object, values: Sequence[Scalar]) -> bool:
    return isinstance(field, list | tuple) and all(_has(field, value) for value in values)


def _ordered(compare: Callable[[float, float], bool]) -> Test:
    def test(field: object, value: Scalar) -> bool:
        if isinstance(value, str):
            moment, other = instant(field), instant(value)
            return moment is not None and other is not None and compare(moment, other)
        if isinstance(field, bool) or not isinstance(field, int | float):
            return False
        return compare(field, value)

    return test


def _substring(fold: Callable[[str], str]) -> Test:
    return lambda field, text: isinstance(field, str) and fold(text) in fold(field)


def _is_empty(field: object, _: None) -> bool:
    return field is None or (
        isinstance(field, Sequence) and not isinstance(field, str) and not field
    )


_OPERATORS: Final[Mapping[FilterOperator, Test]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda field, value: not _equal(field, value),
    FilterOperator.IN: _among,
    FilterOperator.NIN: lambda field, values: not _among(field, values),
    FilterOperator.GT: _ordered(gt),
    FilterOperator.GTE: _ordered(ge),
    FilterOperator.LT: _ordered(lt),
    FilterOperator.LTE: _ordered(le),
    FilterOperator.ANY: _has_any,
    FilterOperator.ALL: _has_all,
    FilterOperator.CONTAINS: _has,
    # Not `str`, which changes members of a string enumeration.
    FilterOperator.TEXT_MATCH: _substring(lambda text: text),
    FilterOperator.TEXT_MATCH_INSENSITIVE: _substring(str.lower),
    FilterOperator.IS_EMPTY: _is_empty,
}


@value_expression.register
def _filters_expression(value: MetadataFilters) -> str:
    parts = f"filters={value_expression(value.filters)}"
    is_joined = value.condition not in (None, FilterCondition.AND)
    joined = f", condition={value_expression(value.condition)}" if is_joined else ""
    return f"MetadataFilters({parts}{joined})"


@value_expression.register
def _filter_expression(value: MetadataFilter) -> str:
    compared = f"key={value.key!r}, value={value_expression(value.value)}"
    is_equality = value.operator is FilterOperator.EQ
    by = "" if is_equality else f", operator={value_expression(value.operator)}"
    return f"MetadataFilter({compared}{by})"
