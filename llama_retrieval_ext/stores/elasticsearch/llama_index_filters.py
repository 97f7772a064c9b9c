"""Compilation of conditions for indices of LlamaIndex's ``ElasticsearchStore``.

Their fields do not distinguish a string from a list that contains it, nor 0.1 from its neighbours,
and do not index substrings. So a query may match nodes that do not satisfy the condition; those
are then removed in Python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.elasticsearch.encoding import Json
from llama_retrieval_ext.stores.elasticsearch.filters import (
    EVERYTHING,
    NOTHING,
    all_of,
    any_of,
)

# Types of fields for strings and numbers, as the engine chooses or users declare them.
_STRINGS: Final = {"keyword"}
_NUMBERS: Final = {"long", "integer", "short", "byte", "double", "float", "half_float"}
_UNLIMITED: Final = 2**31 - 1
_EQUALITY: Final = {
    FilterOperator.EQ,
    FilterOperator.IN,
    FilterOperator.CONTAINS,
    FilterOperator.ANY,
}
_BOUNDS: Final = {
    FilterOperator.GT: "gte",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lte",
    FilterOperator.LTE: "lte",
}
_TEXT_MATCHES: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}


@dataclass(frozen=True, slots=True)
class KeywordField:
    """A field of whole strings."""

    path: str
    max_length: int


@dataclass(frozen=True, slots=True)
class IndexFields:
    """The fields of an index."""

    similarity: str | None = None
    dimension: int | None = None
    keywords: Mapping[str, KeywordField] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_index(cls, description: Json, *, vector_field: str) -> "IndexFields":
        """Return the fields from the engine's description of an index."""
        for index in description.values():
            properties: Json = index.get("mappings", {}).get("properties", {})
            vector = properties.get(vector_field, {})
            keywords: dict[str, KeywordField] = {}
            numbers: dict[str, str] = {}
            _collect(properties.get("metadata", {}), "", keywords, numbers)
            return cls(vector.get("similarity"), vector.get("dims"), keywords, numbers)
        return cls()


def _collect(
    parent: Json, key: str, keywords: dict[str, KeywordField], numbers: dict[str, str]
) -> None:
    """Collect the fields of a metadata mapping, nested ones included."""
    for name, mapping in parent.get("properties", {}).items():
        own = f"{key}.{name}" if key else name
        path, kind = f"metadata.{own}", mapping.get("type")
        below = mapping.get("fields", {}).get("keyword", {})
        if kind in _STRINGS:
            keywords[own] = KeywordField(path, mapping.get("ignore_above", _UNLIMITED))
        elif below.get("type") in _STRINGS:
            max_length = below.get("ignore_above", _UNLIMITED)
            keywords[own] = KeywordField(f"{path}.keyword", max_length)
        elif kind in _NUMBERS:
            numbers[own] = path
        _collect(mapping, own, keywords, numbers)


def prefilter(condition: Condition, known: IndexFields) -> Json:  # noqa: PLR0911 - one per kind
    """Return a query for every node that satisfies the condition; it may match others."""
    match condition:
        case Compare(key, FilterOperator.IS_EMPTY, _):
            return {"bool": {"must_not": [_exists(key)]}}
        case Compare():
            return _comparison(condition, known)
        case AllOf(parts):
            return all_of([prefilter(part, known) for part in parts])
        case AnyOf(parts):
            return any_of([prefilter(part, known) for part in parts])
        case Not(Compare(key, FilterOperator.IS_EMPTY, _)):
            return _exists(key)
        case Not():  # the part's prefilter may match too many nodes, so it cannot be negated
            return EVERYTHING


def _comparison(compare: Compare, known: IndexFields) -> Json:
    key, operator, value = compare.key, compare.operator, compare.value
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    if operator in _EQUALITY:
        return _equal(key, values, known)
    if operator is FilterOperator.ALL:  # without values, ALL matches empty lists, too
        return all_of([_equal(key, [value], known) for value in values])
    if operator in _BOUNDS:
        path = known.numbers.get(key)
        return _exists(key) if path is None else {"range": {path: {_BOUNDS[operator]: value}}}
    return _exists(key) if operator in _TEXT_MATCHES else EVERYTHING  # NE and NIN


def _equal(key: str, values: Sequence[Scalar], known: IndexFields) -> Json:
    if not values:
        return NOTHING
    words, numbers = known.keywords.get(key), known.numbers.get(key)
    if words is not None and all(isinstance(v, str) and len(v) <= words.max_length for v in values):
        return {"terms": {words.path: list(values)}}
    if numbers is not None and all(not isinstance(v, str) for v in values):
        return any_of([{"range": {numbers: {"gte": v, "lte": v}}} for v in values])
    return _exists(key)


def _exists(key: str) -> Json:
    return {"exists": {"field": f"metadata.{key}"}}
