"""Filters on two payloads, with the semantics of `matches`, for both clients of Qdrant.

The embedded engine and the server's client have different classes for the same filters. Each
supplies a table of six constructors, with which `PayloadFilters` compiles conditions on our
payload, and `FlatFilters` those on that of LlamaIndex's store.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import ORDER_OPERATORS, Scalar
from llama_retrieval_ext.scope import DOCUMENT_FIELD, START_FIELD
from llama_retrieval_ext.stores.encoding.values import boolean_term, date_bound
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage
from llama_retrieval_ext.stores.qdrant_common.points import (
    ALLOWED,
    BOOLEAN,
    DOC,
    EXACT,
    FILLED,
    LIST,
    LONG,
    LOWER,
    META,
    START,
    TIME,
    is_rounded,
    marked,
    path,
    point_id,
    principal_number,
)

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Constructors(Generic[E]):
    """The filters of a client.

    Attributes:
        equals: The field, or an item of a list in it, equals one of the values, of one type.
        within: A number of the field, or of a list in it, is within the bounds ``gt``, ``gte``,
            ``lt`` and ``lte``.
        contains: A string of the field, or of a list in it, contains the text, case-sensitive.
        empty: The field is missing, null or an empty list.
        ids: The point has one of the ids; never true for none.
        filter: The client's class of filters with ``must``, ``should`` and ``must_not``.
    """

    equals: Callable[[str, Sequence[str | int]], E]
    within: Callable[..., E]
    contains: Callable[[str, str], E]
    empty: Callable[[str], E]
    ids: Callable[[Collection[UUID]], E]
    filter: Callable[..., E]

    def language(
        self,
        comparisons: dict[FilterOperator, Comparison[E]],
        **parts: Callable[[Sequence[str]], E],
    ) -> FilterLanguage[E]:
        """Return the language of these filters for a payload layout."""
        return FilterLanguage(
            comparisons,
            lambda parts: self.group(must=parts),
            self.any_of,
            lambda part: self.group(must_not=[part]),
            whole=self.as_filter,
            **parts,  # type: ignore[arg-type]  # by the names of its fields
        )

    def as_filter(self, condition: E) -> E:
        """Return a condition as a filter."""
        is_one = isinstance(condition, self.filter)  # type: ignore[arg-type]  # a class
        return condition if is_one else self.filter(must=[condition])

    def group(self, **clauses: Sequence[E]) -> E:
        """Return the filter of clauses by name; an empty one is no clause."""
        return self.filter(**{name: list(parts) or None for name, parts in clauses.items()})

    def any_of(self, parts: Sequence[E]) -> E:
        """Return the disjunction; never true for no parts, which the engines ignore."""
        if len(parts) == 1:
            return parts[0]
        return self.group(should=parts) if parts else self.nothing

    @property
    def nothing(self) -> E:
        """The filter that no point matches."""
        return self.group(must=[self.ids(())])


# Fields of a node beside its metadata, by the keys of filters.
_BESIDE: Final = {DOCUMENT_FIELD: DOC, START_FIELD: START}


def _path(key: str) -> str:
    return _BESIDE.get(key) or path(META, key)


class PayloadFilters(Generic[E]):
    """Filters on the payload of `payload_of`, by those of a client."""

    def __init__(self, make: Constructors[E]) -> None:
        self.make = make
        self.language = make.language(
            {
                FilterOperator.EQ: self._equal,
                FilterOperator.IN: self._among,
                **{operator: self._ordered(operator.name.lower()) for operator in ORDER_OPERATORS},
                FilterOperator.ANY: self._has_any,
                FilterOperator.ALL: self._has_all,
                FilterOperator.CONTAINS: lambda key, value: self._has_any(key, [value]),
                FilterOperator.TEXT_MATCH: lambda key, text: make.contains(_path(key), text),
                FilterOperator.TEXT_MATCH_INSENSITIVE: self._contains_in_any_case,
                FilterOperator.IS_EMPTY: self._is_empty,
            },
            visible=self._visible,
            ids=lambda ids: make.ids(frozenset(map(point_id, ids))),
            documents=lambda ids: make.equals(DOC, ids) if ids else make.nothing,
        )

    def _equal(self, key: str, value: Scalar) -> E:
        if isinstance(value, str):
            return self.make.equals(_path(key), [value])
        # A range, because the engine's value match distinguishes 3 from 3.0.
        near = self.make.within(_path(key), gte=value, lte=value)
        return self.make.any_of([near, self._exactly(key, value)]) if is_rounded(value) else near

    def _exactly(self, key: str, number: float) -> E:
        return self.make.equals(path(LONG, key), [marked(number)])

    def _among(self, key: str, values: Sequence[Scalar]) -> E:
        texts = [value for value in values if isinstance(value, str)]
        parts = [self._equal(key, value) for value in values if not isinstance(value, str | bool)]
        parts += [
            self.make.equals(path(BOOLEAN, key), [boolean_term(value)])
            for value in values
            if isinstance(value, bool)
        ]
        return self.make.any_of([*parts, self.make.equals(_path(key), texts)] if texts else parts)

    def _ordered(self, bound: str) -> Comparison[E]:
        def write(key: str, value: Scalar) -> E:
            if isinstance(value, str):
                return self.make.within(path(TIME, key), **{bound: date_bound(value, bound)})
            near = self.make.within(_path(key), **{bound: value})
            if not is_rounded(value):
                return near
            exact = self._exactly(key, value)
            if bound in ("gte", "lte"):
                return self.make.any_of([near, exact])
            return self.make.group(must=[near], must_not=[exact])

        return write

    def _has_any(self, key: str, values: Sequence[Scalar]) -> E:
        if not values:
            return self.make.nothing
        return self.make.equals(path(LIST, key), [marked(value) for value in values])

    def _has_all(self, key: str, values: Sequence[Scalar]) -> E:
        # Every stored list starts with a marker, so an empty list is not missing.
        return self.make.group(
            must=[self._has_any(key, [value]) for value in values],
            must_not=[self.make.empty(path(LIST, key))],
        )

    def _contains_in_any_case(self, key: str, text: str) -> E:
        # A value in lower case has no lower-case entry. Otherwise the entry contains every
        # lower-case text that the value contains.
        lower = text.lower()
        return self.make.any_of(
            [self.make.contains(path(group, key), lower) for group in (META, LOWER)]
        )

    def _is_empty(self, key: str, _: None) -> E:
        filled = self.make.equals(path(LIST, key), [FILLED])
        return self.make.group(must=[self.make.empty(_path(key))], must_not=[filled])

    def _visible(self, principals: Sequence[str]) -> E:
        numbers = [principal_number(name) for name in principals]
        named = [self.make.equals(ALLOWED, numbers)] if numbers else []
        return self.make.any_of([self.make.empty(ALLOWED), *named])


# Fields of LlamaIndex's `QdrantVectorStore`, which overwrite metadata with the same key.
_RESERVED: Final = {"_node_content", "_node_type", "document_id", "doc_id", "ref_doc_id"}


class FlatFilters(Generic[E]):
    """Filters on the payload of LlamaIndex's store, with metadata beside fields of its own.

    A filter on ``key`` matches the value or an element of a list; a filter on ``key[]`` matches
    only elements. So a field that matches by ``key`` but not by ``key[]`` is not a list. A field
    that matches by both is a list with such an element, at any depth of nested lists.
    """

    def __init__(self, make: Constructors[E]) -> None:
        self._make = make
        self.language = make.language(
            {
                FilterOperator.EQ: lambda key, value: self._scalar(key, self._equal(key, [value])),
                FilterOperator.IN: lambda key, values: self._scalar(key, self._equal(key, values)),
                **{operator: self._ordered(operator.name.lower()) for operator in ORDER_OPERATORS},
                FilterOperator.ANY: lambda key, values: self._listed(key, self._equal(key, values)),
                FilterOperator.ALL: self._has_all,
                FilterOperator.CONTAINS: lambda key, value: self._listed(
                    key, self._equal(key, [value])
                ),
                FilterOperator.TEXT_MATCH: lambda key, text: self._scalar(
                    key, lambda path: make.contains(path, text)
                ),
                FilterOperator.TEXT_MATCH_INSENSITIVE: self._in_any_case,
                FilterOperator.IS_EMPTY: lambda key, _: make.empty(_flat_path(key)),
            }
        )

    def _scalar(self, key: str, at: Callable[[str], E]) -> E:
        path = _flat_path(key)
        return self._make.group(must=[at(path)], must_not=[at(f"{path}[]")])

    def _listed(self, key: str, at: Callable[[str], E]) -> E:
        path = _flat_path(key)
        return self._make.group(must=[at(path), at(f"{path}[]")])

    def _equal(self, key: str, values: Sequence[Scalar]) -> Callable[[str], E]:
        """Return the filter of a path for one of the values."""
        texts = [value for value in values if isinstance(value, str)]
        booleans = [value for value in values if isinstance(value, bool)]
        numbers = [_exact(key, value) for value in values if not isinstance(value, str | bool)]

        def at(path: str) -> E:
            # A range, because the engine's value match distinguishes 3 from 3.0.
            parts = [self._make.within(path, gte=number, lte=number) for number in numbers]
            parts += [self._make.equals(path, [value]) for value in booleans]
            return self._make.any_of([*parts, self._make.equals(path, texts)] if texts else parts)

        return at

    def _ordered(self, bound: str) -> Comparison[E]:
        def write(key: str, value: Scalar) -> E:
            exact = _exact(key, value)
            return self._scalar(key, lambda path: self._make.within(path, **{bound: exact}))

        return write

    def _in_any_case(self, key: str, _: str) -> E:
        raise _refused(key, "has no text in lower case; use TEXT_MATCH, or open the store by URL")

    def _has_all(self, key: str, values: Sequence[Scalar]) -> E:
        if not values:
            raise _refused(key, "cannot tell lists from other fields; leave ALL of no values out")
        return self._make.group(
            must=[self._listed(key, self._equal(key, [value])) for value in values]
        )


def _flat_path(key: str) -> str:
    if key in _RESERVED:
        raise _refused(key, "keeps a field of its own there; store the metadata under another key")
    return f'"{key}"'


def _exact(key: str, value: Scalar) -> float:
    if isinstance(value, str):
        raise _refused(
            key, "has dates as text only; store dates as numbers, or open a store by URL"
        )
    if abs(value) >= EXACT:
        raise _refused(key, f"rounds numbers such as {value}; store them as strings")
    return value


def _refused(key: str, reason: str) -> UnsupportedFilterError:
    return UnsupportedFilterError(
        f"the filter on {key!r} is not exact, because LlamaIndex's QdrantVectorStore {reason}", ""
    )
