"""Conditions on metadata, written as the engine's filters; they mean what `matches` says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from llama_index.core.vector_stores.types import FilterOperator
from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    HasVectorCondition,
    IsEmptyCondition,
    IsNullCondition,
    MatchAny,
    MatchSubstring,
    MatchValue,
    NestedCondition,
    RangeFloat,
)

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.embedded.payload import (
    BIG,
    EXACT,
    FILLED,
    LIST,
    LOWER,
    META,
    digits,
    marked,
    path,
)
from llama_retrieval_ext.stores.embedded.surrogates import utf8_safe

Part: TypeAlias = (
    FieldCondition
    | IsEmptyCondition
    | IsNullCondition
    | HasIdCondition
    | HasVectorCondition
    | NestedCondition
    | Filter
)

EVERYTHING: Final = Filter()
# Not `Filter(should=[])`, which matches everything.
NOTHING: Final = Filter(must=[HasIdCondition(set())])


def compiled(condition: Condition) -> Filter:
    """The engine's filter for a condition.

    Raises:
        UnsupportedFilterError: It compares sizes with a number of 2**53 or more, which the engine
            would round.
    """
    part = _part(condition)
    return part if isinstance(part, Filter) else Filter(must=[part])


def _part(condition: Condition) -> Part:
    match condition:
        case Compare(key, operator, value):
            return _OPERATORS[operator](key, value)
        case AllOf(parts):
            return Filter(must=[_part(part) for part in parts])
        case AnyOf(parts):
            return _any_of([_part(part) for part in parts])
        case Not(part):
            return Filter(must_not=[_part(part)])


def _any_of(parts: Sequence[Part]) -> Part:
    return Filter(should=list(parts)) if parts else NOTHING


def _equal(key: str, value: Scalar) -> Part:
    if isinstance(value, str):
        return FieldCondition(path(META, key), match=MatchValue(utf8_safe(value)))
    if abs(value) >= EXACT:
        return FieldCondition(path(BIG, key), match=MatchValue(digits(value)))
    # A range, because as values the engine tells 3 from 3.0.
    return FieldCondition(path(META, key), range=RangeFloat(gte=value, lte=value))


def _among(key: str, values: Sequence[Scalar]) -> Part:
    texts = [utf8_safe(value) for value in values if isinstance(value, str)]
    parts = [_equal(key, value) for value in values if not isinstance(value, str)]
    if texts:
        parts.append(FieldCondition(path(META, key), match=MatchAny(texts)))
    return parts[0] if len(parts) == 1 else _any_of(parts)


def _sized(bound: str) -> Callable[[str, float], Part]:
    def compare(key: str, value: float) -> Part:
        if abs(value) >= EXACT:
            raise UnsupportedFilterError(
                f"the embedded engine compares sizes with numbers below 2**53, got {value!r} for "
                f"{key!r}; store such numbers divided by a power of ten",
                bound.upper(),
            )
        return FieldCondition(path(META, key), range=RangeFloat(**{bound: value}))

    return compare


def _has(key: str, value: Scalar) -> Part:
    return FieldCondition(path(LIST, key), match=MatchValue(utf8_safe(marked(value))))


def _has_any(key: str, values: Sequence[Scalar]) -> Part:
    return _any_of([_has(key, value) for value in values])


def _has_all(key: str, values: Sequence[Scalar]) -> Part:
    # Every stored list begins with a mark: one without values is there, too.
    each: list[Part] = [_has(key, value) for value in values]
    return Filter(
        must=each,
        must_not=[IsEmptyCondition(path(LIST, key))],
    )


def _contains_text(key: str, text: str) -> Part:
    return FieldCondition(path(META, key), match=MatchSubstring(utf8_safe(text)))


def _contains_text_in_any_case(key: str, text: str) -> Part:
    part = MatchSubstring(utf8_safe(text.lower()))
    # Without an entry in lower case, the field is in lower case as it is; with one, what the field
    # itself has in lower case, the entry has, too.
    fields = (path(META, key), path(LOWER, key))
    return _any_of([FieldCondition(field, match=part) for field in fields])


def _is_empty(key: str, _: None) -> Part:
    filled = FieldCondition(path(LIST, key), match=MatchValue(FILLED))
    return Filter(must=[IsEmptyCondition(path(META, key))], must_not=[filled])


# Any: parse_filters has made sure that each operator has a value of its kind.
_OPERATORS: Final[Mapping[FilterOperator, Callable[[str, Any], Part]]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda key, value: Filter(must_not=[_equal(key, value)]),
    FilterOperator.IN: _among,
    FilterOperator.NIN: lambda key, values: Filter(must_not=[_among(key, values)]),
    FilterOperator.GT: _sized("gt"),
    FilterOperator.GTE: _sized("gte"),
    FilterOperator.LT: _sized("lt"),
    FilterOperator.LTE: _sized("lte"),
    FilterOperator.ANY: _has_any,
    FilterOperator.ALL: _has_all,
    FilterOperator.CONTAINS: _has,
    FilterOperator.TEXT_MATCH: _contains_text,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _contains_text_in_any_case,
    FilterOperator.IS_EMPTY: _is_empty,
}
