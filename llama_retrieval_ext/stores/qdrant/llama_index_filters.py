"""Conversion of conditions to clauses on the payload of LlamaIndex's `QdrantVectorStore`.

This payload stores metadata next to LlamaIndex's own fields. A filter on ``key`` matches the value
or an element of a list; a filter on ``key[]`` matches only elements. So a field that matches by
``key`` but not by ``key[]`` is not a list. A field that matches by both is a list with such an
element, at any depth of nested lists.
"""

from collections.abc import Callable, Sequence
from typing import Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import Condition, Scalar
from llama_retrieval_ext.stores.engine.filters import Comparison
from llama_retrieval_ext.stores.qdrant_common.filters import (
    Clause,
    Contains,
    Equals,
    Group,
    IsEmpty,
    Within,
    any_of,
    clause_language,
    exact_bounds,
)
from llama_retrieval_ext.stores.qdrant_common.points import EXACT

# Fields of LlamaIndex, which overwrite metadata with the same key.
_ITS_OWN: Final = {"_node_content", "_node_type", "document_id", "doc_id", "ref_doc_id"}
_At = Callable[[str], Clause]


def flat_clause_of(condition: Condition) -> Clause:
    """Return the clause for a condition."""
    return _LANGUAGE.write(condition)


def _no_list(key: str, at: _At) -> Clause:
    path = _path(key)
    return Group(every=(at(path),), no=(at(f"{path}[]"),))


def _list(key: str, at: _At) -> Clause:
    path = _path(key)
    return Group(every=(at(path), at(f"{path}[]")))


def _path(key: str) -> str:
    if key in _ITS_OWN:
        raise UnsupportedFilterError(
            f"LlamaIndex's QdrantVectorStore keeps a field of its own under {key!r}; store the "
            "metadata under another key",
            "",
        )
    return f'"{key}"'


def _equal(key: str, *values: Scalar) -> _At:
    texts = tuple(_utf8(key, value) for value in values if isinstance(value, str))
    numbers = [_exact(key, value) for value in values if not isinstance(value, str)]

    def at(path: str) -> Clause:
        # A range, because the engine's value match distinguishes 3 from 3.0.
        clauses: list[Clause] = [Within(path, gte=number, lte=number) for number in numbers]
        if texts:
            clauses.append(Equals(path, texts))
        return any_of(clauses)

    return at


def _exact(key: str, number: float) -> float:
    if abs(number) >= EXACT:
        raise UnsupportedFilterError(
            f"LlamaIndex's QdrantVectorStore rounds numbers of 2**53 or more, got {number!r} for "
            f"{key!r}; store such numbers as strings, or open the store by URL",
            FilterOperator.EQ.name,
        )
    return number


def _utf8(key: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedFilterError(
            f"the filter on {key!r} has a text that UTF-8 cannot hold: {text!r}; leave out its "
            "lone surrogates",
            FilterOperator.EQ.name,
        ) from error
    return text


def _sized(bound: str) -> Comparison[Clause]:
    def write(key: str, value: float) -> Clause:
        bounds = exact_bounds(key, value, bound)
        return _no_list(key, lambda path: Within(path, **bounds))

    return write


def _has_all(key: str, values: Sequence[Scalar]) -> Clause:
    if not values:
        raise UnsupportedFilterError(
            f"ALL of no values on {key!r} asks whether the field is a list, which Qdrant cannot "
            "tell; leave the filter out",
            FilterOperator.ALL.name,
        )
    return Group(every=tuple(_list(key, _equal(key, value)) for value in values))


def _contains_text(key: str, text: str) -> Clause:
    written = _utf8(key, text)
    return _no_list(key, lambda path: Contains(path, written))


def _in_any_case(key: str, _: str) -> Clause:
    raise UnsupportedFilterError(
        f"the filter on {key!r}: the payload of LlamaIndex's QdrantVectorStore has no text in "
        "lower case, and Qdrant compares as it stands; use TEXT_MATCH, or open the store by URL",
        FilterOperator.TEXT_MATCH_INSENSITIVE.name,
    )


_LANGUAGE: Final = clause_language(
    {
        FilterOperator.EQ: lambda key, value: _no_list(key, _equal(key, value)),
        FilterOperator.IN: lambda key, values: _no_list(key, _equal(key, *values)),
        FilterOperator.GT: _sized("gt"),
        FilterOperator.GTE: _sized("gte"),
        FilterOperator.LT: _sized("lt"),
        FilterOperator.LTE: _sized("lte"),
        FilterOperator.ANY: lambda key, values: _list(key, _equal(key, *values)),
        FilterOperator.ALL: _has_all,
        FilterOperator.CONTAINS: lambda key, value: _list(key, _equal(key, value)),
        FilterOperator.TEXT_MATCH: _contains_text,
        FilterOperator.TEXT_MATCH_INSENSITIVE: _in_any_case,
        FilterOperator.IS_EMPTY: lambda key, _: IsEmpty(_path(key)),
    }
)
