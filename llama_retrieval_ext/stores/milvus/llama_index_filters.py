"""Compilation of conditions for LlamaIndex's `MilvusVectorStore`, which stores raw metadata.

On such values Milvus and Milvus Lite differ from `matches`: true may equal 1, and strings are
escaped in different ways. So a condition becomes an expression that every matching node satisfies,
and a flag for whether other nodes may satisfy it; those are then removed in Python.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.stores.milvus.filters import Expression, all_of, any_of, compare, exists

# Keys whose values LlamaIndex overwrites.
_RESERVED: Final = {"id", "doc_id", "document_id", "ref_doc_id", "_node_content", "_node_type"}
_KEY: Final = re.compile(r"[\w .:/@+-]+")
# No quotes, back-slashes, wildcards, control characters or surrogates: the same in every dialect.
_PLAIN: Final = re.compile(r"[^\"'\\%_{}`\x00-\x1f\x7f\ud800-\udfff]*")
# Below this, equal integers and floats compare equal in JSON and in Python.
_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class Prefilter:
    """An expression that is true for every node that satisfies a condition.

    Attributes:
        expression: The Milvus expression.
        exact: Whether the expression is false for all other nodes.
    """

    expression: Expression
    exact: bool = True


_PASS_ALL: Final = Prefilter(expression=True, exact=False)


def prefilter(condition: Condition, *, columns: frozenset[str] = frozenset()) -> Prefilter:
    """Return the strictest prefilter for a condition.

    Examples:
        >>> from llama_retrieval_ext.filters import Compare
        >>> prefilter(Compare("lang", FilterOperator.EQ, "en")).expression
        '((exists $meta["lang"]) and $meta["lang"] == "en")'

    """
    match condition:
        case Compare(key, operator, value):
            if key in _RESERVED | columns or not _KEY.fullmatch(key):
                return _PASS_ALL
            return _OPERATORS[operator](f'$meta["{key}"]', value)
        case AllOf(parts):
            return _combined([prefilter(part, columns=columns) for part in parts], all_of)
        case AnyOf(parts):
            return _combined([prefilter(part, columns=columns) for part in parts], any_of)
        case Not(part):
            return _negated(prefilter(part, columns=columns))


def _combined(
    parts: Sequence[Prefilter], combine: Callable[[Sequence[Expression]], Expression]
) -> Prefilter:
    expression = combine([part.expression for part in parts])
    return Prefilter(expression, exact=all(part.exact for part in parts))


def _negated(part: Prefilter) -> Prefilter:
    if not part.exact:
        return _PASS_ALL
    expression = part.expression
    return Prefilter(f"(not {expression})" if isinstance(expression, str) else not expression)


def _equal(field: str, value: Scalar) -> Prefilter:
    if isinstance(value, str):
        if not _PLAIN.fullmatch(value):
            return _PASS_ALL
        return Prefilter(compare(field, f'== "{value}"'))
    if abs(value) >= _EXACT:
        return _PASS_ALL
    return Prefilter(compare(field, f"== {value}"), exact=False)


def _among(field: str, values: Sequence[Scalar]) -> Prefilter:
    return _combined([_equal(field, value) for value in values], any_of)


def _ordered(sign: str) -> Callable[[str, float], Prefilter]:
    def ordered(field: str, value: float) -> Prefilter:
        if abs(value) >= _EXACT:
            return _PASS_ALL
        return Prefilter(compare(field, f"{sign} {value}"), exact=False)

    return ordered


def _contains_text(field: str, text: str) -> Prefilter:
    if not text or not _PLAIN.fullmatch(text):
        return _PASS_ALL
    return Prefilter(compare(field, f'like "%{text}%"'), exact=False)


def _exists(field: str, _: object) -> Prefilter:
    return Prefilter(exists(field), exact=False)


def _pass_all(_: str, __: object) -> Prefilter:
    return _PASS_ALL


# Any: parse_filters has checked the type of each operator's value.
_OPERATORS: Final[Mapping[FilterOperator, Callable[[str, Any], Prefilter]]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda field, value: _negated(_equal(field, value)),
    FilterOperator.IN: _among,
    FilterOperator.NIN: lambda field, values: _negated(_among(field, values)),
    FilterOperator.GT: _ordered(">"),
    FilterOperator.GTE: _ordered(">="),
    FilterOperator.LT: _ordered("<"),
    FilterOperator.LTE: _ordered("<="),
    FilterOperator.ANY: _exists,
    FilterOperator.ALL: _pass_all,
    FilterOperator.CONTAINS: _exists,
    FilterOperator.TEXT_MATCH: _contains_text,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _exists,
    FilterOperator.IS_EMPTY: _pass_all,
}
