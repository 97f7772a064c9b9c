"""Conditions on what LlamaIndex's ``ElasticsearchStore`` stores, never narrower than `matches`.

Its fields cannot tell a string from a list with it, nor 0.1 from its neighbours, and text within
strings is not in them, so that a query lets some through that do not belong; `matches` then drops
them.
"""

from collections.abc import Sequence
from typing import Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.elasticsearch.conditions import (
    EVERYTHING,
    NOTHING,
    all_of,
    any_of,
)
from llama_retrieval_ext.stores.elasticsearch.foreign_layout import ForeignLayout
from llama_retrieval_ext.stores.elasticsearch.request import Json

_VALUES: Final = {
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
_TEXTS: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}


def widened(condition: Condition, layout: ForeignLayout) -> Json:  # noqa: PLR0911 - one a kind
    """A query that all match which satisfy the condition, and others perhaps."""
    match condition:
        case Compare(key, FilterOperator.IS_EMPTY, _):
            return {"bool": {"must_not": [_exists(key)]}}
        case Compare():
            return _compare(condition, layout)
        case AllOf(parts):
            return all_of([widened(part, layout) for part in parts])
        case AnyOf(parts):
            return any_of([widened(part, layout) for part in parts])
        case Not(Compare(key, FilterOperator.IS_EMPTY, _)):
            return _exists(key)
        case Not():  # what matches the part too widely must not be taken away
            return EVERYTHING


def _compare(compare: Compare, layout: ForeignLayout) -> Json:
    key, operator, value = compare.key, compare.operator, compare.value
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    if operator in _VALUES:
        return _equal(key, values, layout)
    if operator is FilterOperator.ALL:  # of nothing: an empty list is a list, but no field
        return all_of([_equal(key, [value], layout) for value in values])
    if operator in _BOUNDS:
        path = layout.numbers.get(key)
        return _exists(key) if path is None else {"range": {path: {_BOUNDS[operator]: value}}}
    return _exists(key) if operator in _TEXTS else EVERYTHING  # NE and NIN


def _equal(key: str, values: Sequence[Scalar], layout: ForeignLayout) -> Json:
    if not values:
        return NOTHING
    words, numbers = layout.keywords.get(key), layout.numbers.get(key)
    if words is not None and all(isinstance(v, str) and len(v) <= words.longest for v in values):
        return {"terms": {words.path: list(values)}}
    if numbers is not None and all(not isinstance(v, str) for v in values):
        return any_of([{"range": {numbers: {"gte": v, "lte": v}}} for v in values])
    return _exists(key)


def _exists(key: str) -> Json:
    return {"exists": {"field": f"metadata.{key}"}}
