"""Metadata as string fields, and filters on them that agree with `matches` on every Milvus.

Milvus compares JSON types, and Milvus Lite Python types: some of 3, 3.0, "3" and true are equal in
one or in the other. So each value becomes a string, in a dynamic field named by its type and
key:

====== ================================================================================
``s_`` a string, as `safe_text` writes it
``i_`` the same string in lower case, if that differs
``n_`` a number, as `number_term` writes it: the strings sort as the numbers do
``t_`` the microseconds from 1970 to a string that is a date, as a number
``l_`` a list: its values between separators, each with the letter of its type before it
``o_`` anything else that is not None
====== ================================================================================

Text is stored without any character that has a meaning in an expression: quotes, back-slashes,
wildcards and control characters become three characters of Unicode's private
area. So no escaping is needed, which differs between Milvus and Milvus Lite, and no value can
break out of an expression. The mapping preserves substrings, equality and inequality.

Every comparison also tests that its field exists, because Milvus, Milvus Lite and their versions
differ in the value of a comparison with a missing field, and of its negation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_letters, digits
from typing import Any, Final, TypeAlias

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import ORDER_OPERATORS, AllOf, AnyOf, Condition, Not, Scalar
from llama_retrieval_ext.scope import ALLOWED_KEY, DOCUMENT_FIELD, KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.values import (
    MICROSECOND,
    boolean_term,
    date_bound,
    is_comparable,
    number_term,
    plain_value,
)
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage

# An expression, or a constant for every node.
Expression: TypeAlias = str | bool

# Limit of Milvus Lite's parser, which is recursive.
_MAX_DEPTH: Final = 30
# A server parses a chain of n parts as a tree of depth n, in quadratic time.
_MAX_WIDTH: Final = 32
ID: Final = "id"
DOC: Final = "doc"
# Nearly every query filters by scope, so these keys have columns of their own.
COLUMNS: Final[Mapping[str, str]] = {TENANT_KEY: "tenant", KB_KEY: "kb"}


_UNIT: Final = "\ue000"
_DIGITS: Final = [chr(0xE001 + digit) for digit in range(64)]
# Separates the values of a list; no stored text contains it.
SEPARATOR: Final = "\ue041"

_SPECIAL: Final = [*range(0x20), *map(ord, "\"'\\%_{}`\x7f"), *range(0xE000, 0xE042)]
_TABLE: Final = {
    code: f"{_UNIT}{_DIGITS[index // 64]}{_DIGITS[index % 64]}"
    for index, code in enumerate(_SPECIAL)
}


_ALPHANUMERIC: Final = f"{ascii_letters}{digits}".encode()


def safe_text(text: str) -> str:
    r"""Return the text with replacements for characters that have a meaning in expressions.

    Examples:
        >>> safe_text("年假 2024")
        '年假 2024'
        >>> safe_text('" or 1==1') == "\ue000\ue001\ue021 or 1==1"
        True

    """
    return text.translate(_TABLE)


def safe_key(key: str) -> str:
    """Return a metadata key as part of an identifier; other characters become hexadecimal.

    Examples:
        >>> safe_key("year"), safe_key("tenant_id"), safe_key("a.b")
        ('year', 'tenant_5fid', 'a_2eb')

    """
    if key.isascii() and key.isalnum():
        return key
    return "".join(
        chr(octet) if octet in _ALPHANUMERIC else f"_{octet:02x}" for octet in key.encode()
    )


Fields: TypeAlias = dict[str, str | list[str]]

STRING: Final = "s_"
LOWER: Final = "i_"
NUMBER: Final = "n_"
TIME: Final = "t_"
LIST: Final = "l_"
OTHER: Final = "o_"
ALLOWED: Final = "p_allowed"  # the principals, as a JSON list: faster than a substring for each
EMPTY_LIST: Final = SEPARATOR
_PRESENT: Final = "1"


def field(mark: str, key: str) -> str:
    """Return the name of a dynamic field.

    Examples:
        >>> field(STRING, "kb_id")
        's_kb_5fid'

    """
    return f"{mark}{safe_key(key)}"


def fields_of(metadata: Mapping[str, object]) -> Fields:
    """Return the dynamic fields for metadata.

    Examples:
        >>> fields_of({"lang": "en", "title": "Leave", "gone": None})
        {'s_lang': 'en', 's_title': 'Leave', 'i_title': 'leave'}

    """
    fields: Fields = {}
    for key, value in metadata.items():
        _put(fields, key, plain_value(value))
    allowed = plain_value(metadata.get(ALLOWED_KEY))
    if allowed is not None and allowed != []:
        # "o" is the mark of no principal: what is no list of names is visible to nobody.
        names = allowed if isinstance(allowed, list | tuple) else []
        fields[ALLOWED] = [marked(name) for name in names if isinstance(name, str)] or ["o"]
    return fields


def marked(value: str | float) -> str:
    """Return the stored form of a value in a list.

    Examples:
        >>> marked("3"), marked(3) == marked(3.0) != marked("3")
        ('s3', True)

    """
    return f"s{safe_text(value)}" if isinstance(value, str) else f"n{number_term(value)}"


def _put(fields: Fields, key: str, value: object) -> None:
    if isinstance(value, list | tuple):
        items = [marked(item) if is_comparable(item) else "o" for item in value]
        fields[field(LIST, key)] = SEPARATOR.join(["", *items, ""]) if items else EMPTY_LIST
    elif not is_comparable(value):
        if value is not None:
            fields[field(OTHER, key)] = boolean_term(value) if isinstance(value, bool) else _PRESENT
    elif isinstance(value, str):
        fields[field(STRING, key)] = safe_text(value)
        lower = value.lower()
        if lower != value:
            fields[field(LOWER, key)] = safe_text(lower)
        moment = instant(value)
        if moment is not None:
            fields[field(TIME, key)] = number_term(moment // MICROSECOND)
    else:
        fields[field(NUMBER, key)] = number_term(value)


def _check_depth(condition: Condition, _: Expression) -> None:
    if (depth := _depth(condition)) > _MAX_DEPTH:
        raise UnsupportedFilterError(
            f"Milvus takes filters that are nested at most {_MAX_DEPTH} deep, got {depth}; write "
            "the same with fewer groups, or with IN and NIN",
            "",
        )


def filter_text(expression: Expression | None) -> str:
    """Return an expression as text for pymilvus; empty for every node."""
    return expression if isinstance(expression, str) else ""


def all_of(parts: Sequence[Expression]) -> Expression:
    """Return the expression that is true if every part is."""
    return _joined(parts, " and ", neutral=True)


def any_of(parts: Sequence[Expression]) -> Expression:
    """Return the expression that is true if at least one part is."""
    return _joined(parts, " or ", neutral=False)


def exists(name: str) -> str:
    """Return the test that a dynamic field exists.

    In brackets, because some Milvus versions up to 2.5 parse ``exists a and b`` as
    ``exists (a and b)``:
    https://github.com/milvus-io/milvus/issues/40837.
    """
    return f"(exists {name})"


def compare(name: str, comparison: str) -> str:
    """Return the test that a dynamic field exists and satisfies a comparison."""
    return f"({exists(name)} and {name} {comparison})"


def one_of(column: str, values: Sequence[str]) -> Expression:
    """Return the test that a column has one of these values; they must be safe.

    In brackets, because every Milvus parses ``not a == b`` as ``(not a) == b``.
    """
    return f"({column} {_any_of(values)})" if values else False


def column_value(value: object) -> str:
    """Return the value for a scope key's column; empty if the metadata value is no string."""
    return marked(value) if isinstance(value, str) else ""


def _joined(parts: Sequence[Expression], by: str, *, neutral: bool) -> Expression:
    if any(part is (not neutral) for part in parts):
        return not neutral
    joined = list(dict.fromkeys(part for part in parts if isinstance(part, str)))
    while len(joined) > 1:
        starts = range(0, len(joined), _MAX_WIDTH)
        groups = [joined[start : start + _MAX_WIDTH] for start in starts]
        joined = [f"({by.join(group)})" if len(group) > 1 else group[0] for group in groups]
    return joined[0] if joined else neutral


def negated(part: Expression) -> Expression:
    """Return the negation of an expression."""
    return f"(not {part})" if isinstance(part, str) else not part


def _quoted(safe: str) -> str:
    return f'"{safe}"'


def _equals_any(key: str, values: Sequence[Any], *, in_choice: bool) -> Expression:
    texts = [value for value in values if isinstance(value, str)]
    if key == DOCUMENT_FIELD:
        return one_of(DOC, [*map(safe_text, texts)])
    numbers = [number_term(value) for value in values if not isinstance(value, str | bool)]
    booleans = [boolean_term(value) for value in values if isinstance(value, bool)]
    column = COLUMNS.get(key)
    # A server searches only the partitions that an expression names, and reads
    # `tenant == "a" or exists b` as naming only a's. In such cases use the dynamic field.
    use_column = key != TENANT_KEY or not (in_choice or numbers)
    if column is not None and use_column:
        strings = one_of(column, [column_value(text) for text in texts])
    else:
        strings = _one_of_field(field(STRING, key), [safe_text(text) for text in texts])
    return any_of(
        [
            strings,
            _one_of_field(field(NUMBER, key), numbers),
            _one_of_field(field(OTHER, key), booleans),
        ]
    )


def _one_of_field(name: str, values: Sequence[str]) -> Expression:
    return compare(name, _any_of(values)) if values else False


def _any_of(values: Sequence[str]) -> str:
    quoted = [_quoted(value) for value in values]
    return f"== {quoted[0]}" if len(quoted) == 1 else f"in [{', '.join(quoted)}]"


def _ordered(operator: FilterOperator) -> Comparison[Expression]:
    def ordered(key: str, value: Scalar) -> Expression:
        if isinstance(value, str):  # a date: `parse_filters` has checked it
            name, number = field(TIME, key), float(date_bound(value, operator.name.lower()))
        else:
            name, number = field(NUMBER, key), value
        return compare(name, f"{operator.value} {_quoted(number_term(number))}")

    return ordered


def _has(key: str, value: Scalar) -> Expression:
    return compare(field(LIST, key), f'like "%{SEPARATOR}{marked(value)}{SEPARATOR}%"')


def _contains_text(key: str, text: str) -> Expression:
    name = field(STRING, key)
    return compare(name, f'like "%{safe_text(text)}%"') if text else exists(name)


def _contains_text_in_any_case(key: str, text: str) -> Expression:
    # A field without a lower-case copy is in lower case itself; otherwise the copy contains
    # every match of the lower-case text.
    lower = text.lower()
    if not lower:
        return exists(field(STRING, key))
    pattern = f'like "%{safe_text(lower)}%"'
    return any_of([compare(field(mark, key), pattern) for mark in (STRING, LOWER)])


def _is_empty(key: str, _: None) -> Expression:
    listed = field(LIST, key)
    filled = compare(listed, f"!= {_quoted(EMPTY_LIST)}")
    scalars = [exists(field(mark, key)) for mark in (STRING, NUMBER, OTHER)]
    return negated(any_of([*scalars, filled]))


def _visible(principals: Sequence[str]) -> Expression:
    names = ", ".join(_quoted(marked(name)) for name in principals)
    named = [f"json_contains_any({ALLOWED}, [{names}])"] if principals else []
    return any_of([negated(exists(ALLOWED)), *named])


def _depth(condition: Condition) -> int:
    match condition:
        case AllOf(parts) | AnyOf(parts):
            return 1 + max(map(_depth, parts), default=0)
        case Not(part):
            return 1 + _depth(part)
        case _:
            return 1


def _comparisons(*, in_choice: bool) -> Mapping[FilterOperator, Comparison[Expression]]:
    return {
        FilterOperator.EQ: lambda key, value: _equals_any(key, [value], in_choice=in_choice),
        FilterOperator.IN: lambda key, values: _equals_any(key, values, in_choice=in_choice),
        **{operator: _ordered(operator) for operator in ORDER_OPERATORS},
        FilterOperator.ANY: lambda key, values: any_of([_has(key, value) for value in values]),
        FilterOperator.ALL: lambda key, values: all_of(
            [exists(field(LIST, key)), *(_has(key, value) for value in values)]
        ),
        FilterOperator.CONTAINS: _has,
        FilterOperator.TEXT_MATCH: _contains_text,
        FilterOperator.TEXT_MATCH_INSENSITIVE: _contains_text_in_any_case,
        FilterOperator.IS_EMPTY: _is_empty,
    }


_IN_CHOICE: Final = FilterLanguage(
    _comparisons(in_choice=True), all_of, any_of, negated, visible=_visible
)
LANGUAGE: Final = replace(
    _IN_CHOICE,
    comparisons=_comparisons(in_choice=False),
    in_choice=_IN_CHOICE,
    ids=lambda ids: one_of(ID, [*map(safe_text, ids)]),
    documents=lambda ids: one_of(DOC, [*map(safe_text, ids)]),
    check=_check_depth,
)
