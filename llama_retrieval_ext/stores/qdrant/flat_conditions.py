"""Conditions on metadata as clauses on the payload that LlamaIndex's `QdrantVectorStore` writes.

There, metadata lies flat beside fields of LlamaIndex's own, and a filter on a field also looks into
the elements of a list. ``key[]`` looks into nothing but elements. So a field that matches by
``key`` and not by ``key[]`` is no list, and one that matches by both is a list with such an
element, however deep other lists lie in it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import Condition, Scalar
from llama_retrieval_ext.stores.points.clauses import (
    Clause,
    Contains,
    Equals,
    Group,
    IsEmpty,
    Within,
    any_of,
    negated,
)
from llama_retrieval_ext.stores.points.conditions import Written, combined, exact_bounds

# What LlamaIndex writes beside the metadata, over a key of that name.
_ITS_OWN: Final = {"_node_content", "_node_type", "document_id", "doc_id", "ref_doc_id"}
_At = Callable[[str], Clause]


def flat_clause_of(condition: Condition) -> Clause:
    """The clause for a condition.

    Raises:
        UnsupportedFilterError: The payload does not hold what it would take to be exact: text in
            lower case, whole numbers of 2**53 or more, keys that LlamaIndex writes over, and
            whether a field is an empty list.
    """
    return combined(condition, _OPERATORS)


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


def _equal_at(key: str, operator: str, *values: Scalar) -> _At:
    texts = tuple(_writable(key, value) for value in values if isinstance(value, str))
    bounds = [
        {**exact_bounds(key, value, "gte"), "lte": value}
        for value in values
        if not isinstance(value, str) and _is_exact(key, value, operator)
    ]

    def at(path: str) -> Clause:
        clauses: list[Clause] = [Within(path, **bound) for bound in bounds]
        if texts:
            clauses.append(Equals(path, texts))
        return any_of(clauses)

    return at
