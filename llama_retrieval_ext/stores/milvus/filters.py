"""Conditions on metadata, written as Milvus expressions; they mean what `matches` says.

Every comparison is bound to the existence of its field, because Milvus, Milvus Lite and their
versions differ in what a comparison with a missing field is, and so in what its negation is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Scalar
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.values import number_term
from llama_retrieval_ext.stores.milvus.encoding import (
    EMPTY_LIST,
    LIST,
    LOWER,
    NUMBER,
    OTHER,
    SEPARATOR,
    STRING,
    field,
    marked,
    safe_text,
)

# An expression, or what it is for every node.
Expression: TypeAlias = str | bool

# Of Milvus Lite's own parser, which is recursive.
_DEEPEST: Final = 30
# A server takes a chain for a tree as deep as the chain is long, in quadratic time.
_WIDEST: Final = 32
# Scopes are filters of nearly every query: these have columns of their own.
COLUMNS: Final[Mapping[str, str]] = {TENANT_KEY: "tenant", KB_KEY: "kb"}


def compiled(condition: Condition) -> Expression:
    """The expression for a condition; True or False where it is that for every node.

    Raises:
        UnsupportedFilterError: It is nested more deeply than the engine can read.
    """
    if _depth(condition) > _DEEPEST:
        raise UnsupportedFilterError(
            f"Milvus takes filters that are nested at most {_DEEPEST} deep, got "
            f"{_depth(condition)}; write the same with fewer groups, or with IN and NIN",
            "",
        )
    return _expression(condition)


def all_of(parts: Sequence[Expression]) -> Expression:
    """The expression that holds where every part does."""
    return _joined(parts, " and ", neutral=True)


def any_of(parts: Sequence[Expression]) -> Expression:
    """The expression that holds where some part does."""
    return _joined(parts, " or ", neutral=False)


def there(name: str) -> str:
    """A dynamic field exists.

    In brackets, because to Milvus before some 2.5 ``exists a and b`` is ``exists (a and b)``:
    https://github.com/milvus-io/milvus/issues/40837.
    """
    return f"(exists {name})"


def where(name: str, comparison: str) -> str:
    """A dynamic field exists, and compares so."""
    return f"({there(name)} and {name} {comparison})"


def one_of(column: str, values: Sequence[str]) -> Expression:
    """A column has one of these values, each safe.

    In brackets, because to every Milvus ``not a == b`` is ``(not a) == b``.
    """
    if not values:
        return False
    if len(values) == 1:
        return f"({column} == {_quoted(values[0])})"
    return f"({column} in [{', '.join(map(_quoted, values))}])"


def column_value(value: object) -> str:
    """What stands in the column of a scope's key: empty where there is no string."""
    return marked(value) if isinstance(value, str) else ""


def _joined(parts: Sequence[Expression], by: str, *, neutral: bool) -> Expression:
    if any(part is (not neutral) for part in parts):
        return not neutral
    written = list(dict.fromkeys(part for part in parts if isinstance(part, str)))
    while len(written) > 1:
        written = [_group(written[at : at + _WIDEST], by) for at in range(0, len(written), _WIDEST)]
    return written[0] if written else neutral


def _group(parts: Sequence[str], by: str) -> str:
    return f"({by.join(parts)})" if len(parts) > 1 else parts[0]


def _expression(condition: Condition, *, in_choice: bool = False) -> Expression:
    match condition:
        case Compare():
            return _comparison(condition, in_choice=in_choice)
        case AllOf(parts):
            return all_of([_expression(part, in_choice=in_choice) for part in parts])
        case AnyOf(parts):
            in_choice = in_choice or len(parts) > 1
            return any_of([_expression(part, in_choice=in_choice) for part in parts])
        case Not(part):
            return _none_of(_expression(part, in_choice=in_choice))


def _comparison(compare: Compare, *, in_choice: bool) -> Expression:
    key, operator, value = compare.key, compare.operator, compare.value
    if operator not in _EQUALITY:
        return _OPERATORS[operator](key, value)
    found = _among(key, value if isinstance(value, tuple) else [value], in_choice=in_choice)
    return _none_of(found) if operator in _UNEQUAL else found


def _none_of(part: Expression) -> Expression:
    return f"(not {part})" if isinstance(part, str) else not part


def _quoted(safe: str) -> str:
    return f'"{safe}"'


def _among(key: str, values: Sequence[Any], *, in_choice: bool) -> Expression:
    texts = [value for value in values if isinstance(value, str)]
    numbers = [number_term(value) for value in values if not isinstance(value, str)]
    column = COLUMNS.get(key)
    # A server searches those partitions alone that it finds named, and finds a's named, and no
    # other, in `tenant == "a" or exists b`. There, the tenant is a field as any other.
    named = key != TENANT_KEY or not (in_choice or numbers)
    if column is not None and named:
        strings = one_of(column, [column_value(text) for text in texts])
    else:
        strings = _one_of_field(field(STRING, key), [safe_text(text) for text in texts])
    return any_of([strings, _one_of_field(field(NUMBER, key), numbers)])


def _one_of_field(name: str, values: Sequence[str]) -> Expression:
    if not values:
        return False
    if len(values) == 1:
        return where(name, f"== {_quoted(values[0])}")
    return where(name, f"in [{', '.join(map(_quoted, values))}]")


def _sized(sign: str) -> Callable[[str, float], Expression]:
    return lambda key, value: where(field(NUMBER, key), f"{sign} {_quoted(number_term(value))}")


def _has(key: str, value: Scalar) -> Expression:
    return where(field(LIST, key), f'like "%{SEPARATOR}{marked(value)}{SEPARATOR}%"')


def _has_all(key: str, values: Sequence[Scalar]) -> Expression:
    return all_of([there(field(LIST, key)), *(_has(key, value) for value in values)])


def _contains_text(key: str, text: str) -> Expression:
    name = field(STRING, key)
    return where(name, f'like "%{safe_text(text)}%"') if text else there(name)


def _contains_text_in_any_case(key: str, text: str) -> Expression:
    # Without an entry in lower case, the field is in lower case as it is; with one, what the field
    # itself has in lower case, the entry has, too.
    lower = text.lower()
    if not lower:
        return there(field(STRING, key))
    pattern = f'like "%{safe_text(lower)}%"'
    return any_of([where(field(mark, key), pattern) for mark in (STRING, LOWER)])


def _is_empty(key: str, _: None) -> Expression:
    listed = field(LIST, key)
    filled = where(listed, f"!= {_quoted(EMPTY_LIST)}")
    others = [there(field(mark, key)) for mark in (STRING, NUMBER, OTHER)]
    return _none_of(any_of([*others, filled]))


def _depth(condition: Condition) -> int:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            return 1 + max(map(_depth, parts), default=0)
        case Not(part):
            return 1 + _depth(part)
        case _:
            return 1


_UNEQUAL: Final = {FilterOperator.NE, FilterOperator.NIN}
_EQUALITY: Final = {FilterOperator.EQ, FilterOperator.IN, *_UNEQUAL}
# Any: parse_filters has made sure that each operator has a value of its kind.
_OPERATORS: Final[Mapping[FilterOperator, Callable[[str, Any], Expression]]] = {
    FilterOperator.GT: _sized(">"),
    FilterOperator.GTE: _sized(">="),
    FilterOperator.LT: _sized("<"),
    FilterOperator.LTE: _sized("<="),
    FilterOperator.ANY: lambda key, values: any_of([_has(key, value) for value in values]),
    FilterOperator.ALL: _has_all,
    FilterOperator.CONTAINS: _has,
    FilterOperator.TEXT_MATCH: _contains_text,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _contains_text_in_any_case,
    FilterOperator.IS_EMPTY: _is_empty,
}
