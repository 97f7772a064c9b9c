"""Conditions on metadata, written as the engine's queries; they mean what `matches` says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.elasticsearch.encoding import LONGEST_NEEDLE, prefix, scalar
from llama_retrieval_ext.stores.elasticsearch.requests import Json
from llama_retrieval_ext.stores.encoding.values import utf8_safe

TERMS: Final = "terms"
PIECES: Final = "pieces"

EVERYTHING: Final[Json] = {"match_all": {}}
NOTHING: Final[Json] = {"match_none": {}}
# What servers take unless they are set up otherwise, less what searches put around it.
_MOST_VALUES: Final = 65_536
_MOST_CLAUSES: Final = 1000
_DEEPEST: Final = 26


def compiled(condition: Condition) -> Json:
    """The engine's query for a condition.

    Raises:
        UnsupportedFilterError: It is nested more deeply, or has more parts or values, than servers
            take; or it looks for a text of more than 128 characters within strings.
    """
    query = _query(condition)
    clauses, depth = _size(query)
    if clauses > _MOST_CLAUSES or depth > _DEEPEST:
        raise UnsupportedFilterError(
            f"Elasticsearch takes filters of at most {_MOST_CLAUSES} comparisons, nested at most "
            f"{_DEEPEST} deep, got {clauses} and {depth}; use IN and NIN for many values",
            "",
        )
    return query


def all_of(parts: Sequence[Json]) -> Json:
    """The query that all parts match."""
    return (
        parts[0] if len(parts) == 1 else {"bool": {"filter": list(parts)}} if parts else EVERYTHING
    )


def _query(condition: Condition) -> Json:
    match condition:
        case Compare(key, operator, value):
            return _OPERATORS[operator](key, value)
        case AllOf(parts):
            return all_of([_query(part) for part in parts])
        case AnyOf(parts):
            return any_of([_query(part) for part in parts])
        case Not(Not(part)):
            return _query(part)
        case Not(part):
            return _none_of(_query(part))


def any_of(parts: Sequence[Json]) -> Json:
    """The query that at least one part matches."""
    if not parts:
        return NOTHING
    return (
        parts[0]
        if len(parts) == 1
        else {"bool": {"should": list(parts), "minimum_should_match": 1}}
    )


def _none_of(part: Json) -> Json:
    return {"bool": {"must_not": [part]}}


def _term(key: str, end: str) -> Json:
    return {"term": {TERMS: prefix(key) + end}}


def _one_of(key: str, values: Sequence[Scalar], mark: str = "") -> Json:
    if not values:
        return NOTHING
    if len(values) > _MOST_VALUES:
        raise UnsupportedFilterError(
            f"Elasticsearch takes at most {_MOST_VALUES} values, got {len(values)} for {key!r}",
            FilterOperator.IN.name,
        )
    return {"terms": {TERMS: [f"{prefix(key)}{mark}{scalar(value)}" for value in values]}}


def _sized(operator: str) -> Callable[[str, float], Json]:
    other_end = "lt" if operator.startswith("g") else "gt"

    def compare(key: str, value: float) -> Json:
        # Between the number and the end of this key's numbers: "o" follows "n".
        bound = prefix(key) + ("o" if other_end == "lt" else "n")
        return {"range": {TERMS: {operator: prefix(key) + scalar(value), other_end: bound}}}

    return compare


def _has_all(key: str, values: Sequence[Scalar]) -> Json:
    return all_of([_term(key, "l"), *(_term(key, f"i{scalar(value)}") for value in values)])


def _contains_text(key: str, text: str, marks: str = "s") -> Json:
    if len(text) > LONGEST_NEEDLE:
        raise UnsupportedFilterError(
            f"Elasticsearch looks for at most {LONGEST_NEEDLE} characters within strings, got "
            f"{len(text)} for {key!r}; use EQ, or a part of the text",
            FilterOperator.TEXT_MATCH.name,
        )
    safe = utf8_safe(text)
    inner = f"*{_escaped(safe)}*" if safe else "*"
    return any_of(
        [{"wildcard": {PIECES: {"value": _escaped(prefix(key) + mark) + inner}}} for mark in marks]
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")


def _size(query: Json) -> tuple[int, int]:
    """How many comparisons there are, and how deep they are nested."""
    if "bool" not in query:
        return 1, 0
    parts = [part for group in query["bool"].values() if isinstance(group, list) for part in group]
    sizes = [_size(part) for part in parts]
    return sum(size for size, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


# Any: parse_filters has made sure that each operator has a value of its kind.
_OPERATORS: Final[Mapping[FilterOperator, Callable[[str, Any], Json]]] = {
    FilterOperator.EQ: lambda key, value: _term(key, scalar(value)),
    FilterOperator.NE: lambda key, value: _none_of(_term(key, scalar(value))),
    FilterOperator.IN: _one_of,
    FilterOperator.NIN: lambda key, values: _none_of(_one_of(key, values)),
    FilterOperator.GT: _sized("gt"),
    FilterOperator.GTE: _sized("gte"),
    FilterOperator.LT: _sized("lt"),
    FilterOperator.LTE: _sized("lte"),
    FilterOperator.ANY: lambda key, values: _one_of(key, values, "i"),
    FilterOperator.ALL: _has_all,
    FilterOperator.CONTAINS: lambda key, value: _term(key, f"i{scalar(value)}"),
    FilterOperator.TEXT_MATCH: _contains_text,
    # In lower case, as it is or as it was made so.
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, text: _contains_text(
        key, text.lower(), "sl"
    ),
    FilterOperator.IS_EMPTY: lambda key, _: _none_of(_term(key, "+")),
}
