"""Filters in words: their grammar, as of ``--filter``; descriptions; conditions as filters."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.errors import InvalidFilterError
from llama_retrieval_ext.filters import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Not,
    matches,
    parse_filters,
)
from llama_retrieval_ext.wording import short

Expression: TypeAlias = MetadataFilter | MetadataFilters
Scalar: TypeAlias = int | float | str

_OPERATORS = {
    "=": FilterOperator.EQ,
    "!=": FilterOperator.NE,
    ">=": FilterOperator.GTE,
    ">": FilterOperator.GT,
    "<=": FilterOperator.LTE,
    "<": FilterOperator.LT,
    "~": FilterOperator.TEXT_MATCH_INSENSITIVE,
}
# The first operator ends the key; the longest operator at a position matches.
_COMPARISON = re.compile(r"(?P<key>[^=!<>~]*?)(?<!\s)\s*+(?P<operator>!=|>=|<=|[=<>~])\s*+")
_LIST = re.compile(
    r"(?P<key>[^=!<>~()]*?)(?<!\s)\s++(?P<negation>not\s++)?in\s*+\(\s*+", re.IGNORECASE
)
_SPACES = re.compile(r"\s*")
_QUOTED = re.compile(r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'", re.DOTALL)
# The end of a value without quotes; in parentheses also a comma or a parenthesis.
_END = re.compile(r"(?<!\s)\s++(?:and|or)(?=[\s(]|$)|$", re.IGNORECASE)
_END_IN_PARENTHESES = re.compile(r"[,()]|(?<!\s)\s++(?:and|or)(?=[\s(]|$)|$", re.IGNORECASE)
_KEYWORD_IN_KEY = re.compile(r"(?:^|\s)(?:and|or)(?:\s|$)", re.IGNORECASE)
_QUOTES = ('"', "'")
# A value that starts with one of these is probably an operator such as == or =>.
_OPERATOR_SIGNS = ("=", "<", ">")
_DEEPEST = 50
_SHOWN = 100
_GRAMMAR = (
    "write KEY=VALUE, or one of != >= > <= < in place of =, or KEY~PART, or KEY in (VALUE, VALUE); "
    "combine with and, or, not and parentheses; in quotes a value is a string, and may hold these "
    "words"
)


def parse_filter_texts(texts: Sequence[str], *, name: str = "the filter") -> MetadataFilters | None:
    """Return the filters that texts stand for, combined by AND.

    Args:
        texts: Each ``key=value``, ``key!=value``, ``key>=value``, ``key>value``, ``key<=value``,
            ``key<value``, ``key~part`` (the string contains that part, ignoring case),
            ``key in (value, value)`` or ``key not in (value, value)``; or several of these with
            ``and``, ``or``, ``not`` and parentheses, where ``not`` binds tightest and ``or`` least.
            A value that parses as a number is a number unless quoted. A value must be quoted if it
            starts with ``=``, ``<`` or ``>``, or contains the words ``and`` or ``or``; a quote
            inside is doubled.
        name: What errors call a text.

    Returns:
        LlamaIndex filters, or None if there are no texts.

    Raises:
        InvalidFilterError: A text has another form, or a value does not fit its operator.

    Examples:
        >>> for part in parse_filter_texts(["year>=2020", 'article="3"', "law~safety"]).filters:
        ...     print(part.key, part.operator.name, repr(part.value))
        year GTE 2020
        article EQ '3'
        law TEXT_MATCH_INSENSITIVE 'safety'
        >>> (either,) = parse_filter_texts(["lang in (zh, en) or year<2000"]).filters
        >>> either.condition.name, [part.key for part in either.filters]
        ('OR', ['lang', 'year'])

    """
    if not texts:
        return None
    filters = MetadataFilters(filters=[_Parser(text, name).parse() for text in texts])
    parse_filters(filters)
    return filters


class _Parser:
    """Recursive descent parser of one text."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._text = text.strip()
        self._at = 0
        self._depth = 0  # of parentheses
        self._nesting = 0  # of parentheses and negations

    def parse(self) -> Expression:
        """Return the whole text as one expression."""
        expression = self._disjunction()
        if self._at < len(self._text):
            raise self._error(f"cannot be read from {self._text[self._at :]!r} on")
        return expression

    def _disjunction(self) -> Expression:
        parts = [self._conjunction()]
        while self._keyword("or"):
            parts.append(self._conjunction())
        return _group(parts, FilterCondition.OR)

    def _conjunction(self) -> Expression:
        parts = [self._term()]
        while self._keyword("and"):
            parts.append(self._term())
        return _group(parts, FilterCondition.AND)

    def _term(self) -> Expression:
        self._nesting += 1
        if self._nesting > _DEEPEST:
            raise self._error(f"is nested more than {_DEEPEST} times")
        term = self._factor()
        self._nesting -= 1
        return term

    def _factor(self) -> Expression:
        if self._keyword("not"):
            return MetadataFilters(filters=[self._term()], condition=FilterCondition.NOT)
        if not self._skip("("):
            return self._comparison()
        self._depth += 1
        expression = self._disjunction()
        self._depth -= 1
        if not self._skip(")"):
            raise self._error("has a parenthesis that does not end")
        return expression

    def _comparison(self) -> MetadataFilter:
        values = _LIST.match(self._text, self._at)
        if values is not None:
            key = self._key(values)
            operator = FilterOperator.NIN if values["negation"] else FilterOperator.IN
            return MetadataFilter(key=key, operator=operator, value=self._values())
        comparison = _COMPARISON.match(self._text, self._at)
        if comparison is None:
            raise self._error("cannot be read")
        key, operator = self._key(comparison), _OPERATORS[comparison["operator"]]
        as_text = operator is FilterOperator.TEXT_MATCH_INSENSITIVE
        return MetadataFilter(key=key, operator=operator, value=self._value(as_text=as_text))

    def _key(self, match: re.Match[str]) -> str:
        key = match["key"]
        if not key or _KEYWORD_IN_KEY.search(key):
            raise self._error("cannot be read")
        self._at = match.end()
        return key

    def _values(self) -> list[str] | list[float]:
        self._depth += 1
        values = [self._value()]
        while self._skip(","):
            values.append(self._value())
        self._depth -= 1
        if not self._skip(")"):
            raise self._error("has a parenthesis that does not end")
        strings = [value for value in values if isinstance(value, str)]
        numbers: list[float] = [value for value in values if not isinstance(value, str)]
        if strings and numbers:
            raise self._error("has a list of numbers and strings; put all in quotes, or none")
        return strings or numbers

    def _value(self, *, as_text: bool = False) -> Scalar:
        if self._text[self._at : self._at + 1] in _QUOTES:
            return self._quoted()
        end = (_END_IN_PARENTHESES if self._depth else _END).search(self._text, self._at)
        value = self._text[self._at : end.start() if end else None].rstrip()
        if not value:
            raise self._error("has a value that is empty")
        if value.startswith(_OPERATOR_SIGNS):
            raise self._error("has two operators in a row; write one, or quote the value")
        self._advance(len(value))
        return value if as_text else _number_or_text(value)

    def _quoted(self) -> str:
        match = _QUOTED.match(self._text, self._at)
        if match is None:
            raise self._error("has a quote that does not end")
        self._advance(len(match[0]))
        quote = match[0][0]
        return match[0][1:-1].replace(quote * 2, quote)

    def _keyword(self, word: str) -> bool:
        """Skip a keyword, and return whether it was next."""
        match = re.compile(rf"{word}(?=[\s(])\s*", re.IGNORECASE).match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match is not None

    def _skip(self, sign: str) -> bool:
        """Skip a sign, and return whether it was next."""
        is_next = self._text.startswith(sign, self._at)
        if is_next:
            self._advance(len(sign))
        return is_next

    def _advance(self, length: int) -> None:
        """Advance by a length and over the following white space."""
        following = _SPACES.match(self._text, self._at + length)
        self._at = len(self._text) if following is None else following.end()

    def _error(self, problem: str) -> InvalidFilterError:
        shown = short(self._text, _SHOWN)
        return InvalidFilterError(f"{self._name} {shown!r} {problem}; {_GRAMMAR}")


def _group(parts: list[Expression], condition: FilterCondition) -> Expression:
    if len(parts) == 1:
        return parts[0]
    return MetadataFilters(filters=parts, condition=condition)


def _number_or_text(value: str) -> Scalar:
    for number in (int, float):
        try:
            read = number(value)
            is_finite = math.isfinite(read)
        except (ValueError, OverflowError):
            continue
        # Python also parses 1_000, nan and inf, which are words in metadata.
        if "_" not in value and is_finite:
            return read
    return value


def describe_filters(filters: MetadataFilters) -> str:
    """Return filters as one readable line, such as ``year >= 2020``."""
    return _described(parse_filters(filters))


def _described(condition: Condition, *, inside: bool = False) -> str:
    if isinstance(condition, Compare):
        value = condition.value
        shown = list(value) if isinstance(value, tuple) else value
        operand = "" if value is None else f" {shown!r}"
        return f"{condition.key} {condition.operator.value}{operand}"
    if isinstance(condition, Not):
        return f"not ({_described(condition.part)})"
    joint = " and " if isinstance(condition, AllOf) else " or "
    text = joint.join(_described(part, inside=True) for part in condition.parts)
    return f"({text})" if inside and len(condition.parts) > 1 else text


def describe_unmet(condition: Condition | None, metadata: Mapping[str, object]) -> list[str]:
    """Return the parts of a condition that a node's metadata does not satisfy, in words.

    Examples:
        >>> describe_unmet(Compare("year", FilterOperator.GTE, 2020), {"year": 2018})
        ['year >= 2020 (year is 2018)']

    """
    if condition is None or matches(condition, metadata):
        return []
    if isinstance(condition, AllOf):
        return [text for part in condition.parts for text in describe_unmet(part, metadata)]
    if isinstance(condition, Compare):
        return [f"{_described(condition)} ({condition.key} is {metadata.get(condition.key)!r})"]
    return [_described(condition)]


def as_metadata_filters(condition: Condition) -> MetadataFilters:
    """Return equivalent LlamaIndex filters, nested only where one level is not enough."""
    written = _written(condition)
    return written if isinstance(written, MetadataFilters) else MetadataFilters(filters=[written])


def _written(condition: Condition) -> MetadataFilter | MetadataFilters:
    match condition:
        case Compare(key, operator, value):
            given = list(value) if isinstance(value, tuple) else value
            return MetadataFilter(key=key, operator=operator, value=given)  # type: ignore[arg-type]
        case AllOf():
            return MetadataFilters(filters=[_written(part) for part in _flat(condition)])
        case AnyOf(parts):
            written = [_written(part) for part in parts]
            return MetadataFilters(filters=written, condition=FilterCondition.OR)
        case Not(part):
            return MetadataFilters(filters=[_written(part)], condition=FilterCondition.NOT)


def _flat(condition: AllOf) -> list[Condition]:
    flat: list[Condition] = []
    for part in condition.parts:
        flat.extend(_flat(part) if isinstance(part, AllOf) else [part])
    return flat
