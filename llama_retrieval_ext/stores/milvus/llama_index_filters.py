"""Conditions on what LlamaIndex's `MilvusVectorStore` keeps of metadata: the values as they are.

There Milvus and Milvus Lite do not always mean what `matches` says: true equals 1 here or there,
strings are escaped in different ways. So a condition becomes an expression that no matching node
fails, and it is said whether others may pass, too; those are then taken out in Python.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.milvus.filters import Expression, all_of, any_of, there, where

# LlamaIndex writes these over a node's own.
_TAKEN: Final = {"id", "doc_id", "document_id", "ref_doc_id", "_node_content", "_node_type"}
_KEY: Final = re.compile(r"[\w .:/@+-]+")
# No quotes, back-slashes, wildcards, control characters or surrogates: the same in every dialect.
_PLAIN: Final = re.compile(r"[^\"'\\%_{}`\x00-\x1f\x7f\ud800-\udfff]*")
# Below it, whole numbers and floats are the same to JSON and to Python.
_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class Narrowing:
    """An expression that every node passes that satisfies a condition.

    Attributes:
        expression: As Milvus has it.
        exact: Whether no other node passes.
    """

    expression: Expression
    exact: bool = True


_NO_HELP: Final = Narrowing(expression=True, exact=False)


def narrowing(condition: Condition, *, columns: frozenset[str] = frozenset()) -> Narrowing:
    """What Milvus can do about a condition.

    Args:
        condition: The condition.
        columns: Of the collection: a key of that name is no dynamic field.

    Examples:
        >>> from llama_retrieval_ext.filters import Compare
        >>> narrowing(Compare("lang", FilterOperator.EQ, "en")).expression
        '((exists $meta["lang"]) and $meta["lang"] == "en")'

    """
    match condition:
        case Compare(key, operator, value):
            if key in _TAKEN | columns or not _KEY.fullmatch(key):
                return _NO_HELP
            return _OPERATORS[operator](f'$meta["{key}"]', value)
        case AllOf(parts):
            return _combined([narrowing(part, columns=columns) for part in parts], all_of)
        case AnyOf(parts):
            return _combined([narrowing(part, columns=columns) for part in parts], any_of)
        case Not(part):
            return _negated(narrowing(part, columns=columns))


def _combined(
    parts: Sequence[Narrowing], combine: Callable[[Sequence[Expression]], Expression]
) -> Narrowing:
    expression = combine([part.expression for part in parts])
    return Narrowing(expression, exact=all(part.exact for part in parts))


def _negated(part: Narrowing) -> Narrowing:
    if not part.exact:
        return _NO_HELP
    expression = part.expression
    return Narrowing(f"(not {expression})" if isinstance(expression, str) else not expression)


def _equal(field: str, value: Scalar) -> Narrowing:
    if isinstance(value, str):
        if not _PLAIN.fullmatch(value):
            return _NO_HELP
        return Narrowing(where(field, f'== "{value}"'))
    if abs(value) >= _EXACT:
        return _NO_HELP
    return Narrowing(where(field, f"== {value}"), exact=False)


def _among(field: str, values: Sequence[Scalar]) -> Narrowing:
    return _combined([_equal(field, value) for value in values], any_of)


def _sized(sign: str) -> Callable[[str, float], Narrowing]:
    def compare(field: str, value: float) -> Narrowing:
        if abs(value) >= _EXACT:
            return _NO_HELP
        return Narrowing(where(field, f"{sign} {value}"), exact=False)

    return compare


def _contains_text(field: str, text: str) -> Narrowing:
    if not text or not _PLAIN.fullmatch(text):
        return _NO_HELP
    return Narrowing(where(field, f'like "%{text}%"'), exact=False)


def _there(field: str, _: object) -> Narrowing:
    return Narrowing(there(field), exact=False)


def _no_help(_: str, __: object) -> Narrowing:
    return _NO_HELP


# Any: parse_filters has made sure that each operator has a value of its kind.
_OPERATORS: Final[Mapping[FilterOperator, Callable[[str, Any], Narrowing]]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda field, value: _negated(_equal(field, value)),
    FilterOperator.IN: _among,
    FilterOperator.NIN: lambda field, values: _negated(_among(field, values)),
    FilterOperator.GT: _sized(">"),
    FilterOperator.GTE: _sized(">="),
    FilterOperator.LT: _sized("<"),
    FilterOperator.LTE: _sized("<="),
    FilterOperator.ANY: _there,
    FilterOperator.ALL: _no_help,
    FilterOperator.CONTAINS: _there,
    FilterOperator.TEXT_MATCH: _contains_text,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _there,
    FilterOperator.IS_EMPTY: _no_help,
}
