"""Metadata as terms of one keyword field, and filters on it that agree with `matches`.

Filters are exact, and the mapping is fixed. Each term is its key in JSON, which is never a prefix
of another key's JSON, followed by

====== =============================================================================
``s…`` a string; ``h…`` the digest of a long string
``n…`` a number, as `number_term` writes it: ranges of terms are ranges of numbers
``t…`` the microseconds from 1970 to a string that is a date, as a number
``i…`` an element of a list, in one of the forms above
``l``  the value is a list
``+``  the value is not missing, not ``None``, not ``[]``
====== =============================================================================

A second field holds pieces of the strings for substring search: ``s…`` unchanged, and ``l…`` in
lower case if that differs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import UnsupportedFilterError
from llama_retrieval_ext.filters import ORDER_OPERATORS, Condition, Scalar
from llama_retrieval_ext.scope import DOCUMENT_FIELD
from llama_retrieval_ext.stores.elasticsearch.client import Json
from llama_retrieval_ext.stores.encoding.values import (
    MICROSECOND,
    boolean_term,
    date_bound,
    is_comparable,
    number_term,
    plain_value,
)
from llama_retrieval_ext.stores.engine.filters import Comparison, FilterLanguage
from llama_retrieval_ext.stores.engine.records import in_parts

DOC: Final = "doc"
TERMS: Final = "terms"
PIECES: Final = "pieces"

EVERYTHING: Final[Json] = {"match_all": {}}
NOTHING: Final[Json] = {"match_none": {}}
# A server's default limits, minus the clauses that searches add; more values are several clauses.
_MAX_VALUES: Final = 65_536
_MAX_CLAUSES: Final = 1000
_MAX_DEPTH: Final = 26
# Limit of the engine for the id of a document, in bytes.
_MAX_KEY_BYTES: Final = 512
_DIGEST: Final = "sha256:"


# Longer strings are stored as digests. The engine's limit for a term is 32,766 bytes.
_MAX_TERM: Final = 256
_PIECE: Final = 2000
# Longest substring for a search: pieces overlap by this length, and the size of the engine's
# automaton for "*text*" is quadratic in it.
_MAX_SUBSTRING: Final = 128


def prefix(key: str) -> str:
    r"""Return the prefix of a key's terms.

    Examples:
        >>> prefix('say "x"')
        '"say \\"x\\""'

    """
    return json.dumps(key, ensure_ascii=False)


def scalar(value: str | float) -> str:
    """Return the part of the term after the key, for a string, a number or a boolean."""
    if isinstance(value, bool):
        return f"b{boolean_term(value)}"
    if not isinstance(value, str):
        return f"n{number_term(value)}"
    return f"s{value}" if len(value) <= _MAX_TERM else f"h{sha256(value.encode()).hexdigest()}"


def terms_of(metadata: Mapping[str, object]) -> list[str]:
    """Return the terms of metadata.

    Examples:
        >>> terms_of({"lang": "en", "tags": ["a"], "gone": None})
        ['"lang"+', '"lang"sen', '"tags"l', '"tags"+', '"tags"isa']

    """
    return [f"{prefix(key)}{end}" for key, value in metadata.items() for end in _ends(value)]


def pieces_of(metadata: Mapping[str, object]) -> list[str]:
    """Return the pieces of the strings in metadata.

    Examples:
        >>> pieces_of({"title": "Leave", "lang": "en", "year": 2024})
        ['"title"sLeave', '"title"lleave', '"lang"sen']

    """
    pieces: list[str] = []
    for key, value in metadata.items():
        text = plain_value(value)
        if not isinstance(text, str):
            continue
        marked = [("s", text)] if text.lower() == text else [("s", text), ("l", text.lower())]
        for mark, part in marked:
            starts = range(0, max(1, len(part) - _MAX_SUBSTRING), _PIECE - _MAX_SUBSTRING)
            pieces += [f"{prefix(key)}{mark}{part[at : at + _PIECE]}" for at in starts]
    return pieces


def _ends(value: object) -> Iterator[str]:
    value = plain_value(value)
    if isinstance(value, list | tuple):
        yield "l"
        if value:
            yield "+"
        yield from (f"i{scalar(item)}" for item in value if is_comparable(item))
    elif value is not None:
        yield "+"
        if is_comparable(value) or isinstance(value, bool):
            yield scalar(value)
        moment = instant(value)
        if moment is not None:
            yield f"t{number_term(moment // MICROSECOND)}"


def _check_size(_: Condition, query: Json) -> None:
    clauses, depth = _size(query)
    if clauses > _MAX_CLAUSES or depth > _MAX_DEPTH:
        raise UnsupportedFilterError(
            f"Elasticsearch takes filters of at most {_MAX_CLAUSES} comparisons, nested at most "
            f"{_MAX_DEPTH} deep, got {clauses} and {depth}; use IN and NIN for many values",
            "",
        )


def _of_documents(doc_ids: Sequence[str]) -> Json:
    return {"terms": {DOC: [scalar(doc_id) for doc_id in doc_ids]}}


def key_of(node_id: str) -> str:
    """Return the engine's id for a node id: the id itself if it is short enough, else a digest."""
    octets = node_id.encode()
    if len(octets) <= _MAX_KEY_BYTES and node_id and not node_id.startswith(_DIGEST):
        return node_id
    return f"{_DIGEST}{sha256(octets).hexdigest()}"


def all_of(parts: Sequence[Json]) -> Json:
    """Return the query that is true if all parts are."""
    return (
        parts[0] if len(parts) == 1 else {"bool": {"filter": list(parts)}} if parts else EVERYTHING
    )


def any_of(parts: Sequence[Json]) -> Json:
    """Return the query that is true if at least one part is."""
    if not parts:
        return NOTHING
    return (
        parts[0]
        if len(parts) == 1
        else {"bool": {"should": list(parts), "minimum_should_match": 1}}
    )


def _negated(part: Json) -> Json:
    return {"bool": {"must_not": [part]}}


def _term(key: str, end: str) -> Json:
    return {"term": {TERMS: prefix(key) + end}}


def _among(key: str, values: Sequence[Scalar]) -> Json:
    if key == DOCUMENT_FIELD:
        return _of_documents([value for value in values if isinstance(value, str)])
    return _one_of(key, values)


def _one_of(key: str, values: Sequence[Scalar], mark: str = "") -> Json:
    terms = in_parts((f"{prefix(key)}{mark}{scalar(value)}" for value in values), _MAX_VALUES)
    return any_of([{"terms": {TERMS: part}} for part in terms])


def _ordered(operator: str) -> Comparison[Json]:
    opposite = "lt" if operator.startswith("g") else "gt"

    def compare(key: str, value: Scalar) -> Json:
        if isinstance(value, str):  # a date: `parse_filters` has checked it
            term = f"t{number_term(date_bound(value, operator))}"
        else:
            term = scalar(value)
        # The range ends with the last number or date of this key: "o" follows "n".
        bound = chr(ord(term[0]) + 1) if opposite == "lt" else term[0]
        ends = {operator: prefix(key) + term, opposite: prefix(key) + bound}
        return {"range": {TERMS: ends}}

    return compare


def _contains_text(key: str, text: str, marks: str = "s") -> Json:
    if len(text) > _MAX_SUBSTRING:
        raise UnsupportedFilterError(
            f"Elasticsearch finds at most {_MAX_SUBSTRING} characters within strings, got "
            f"{len(text)} for {key!r}; use EQ, or a part of the text",
            FilterOperator.TEXT_MATCH.name,
        )
    inner = f"*{_escaped(text)}*" if text else "*"
    return any_of(
        [{"wildcard": {PIECES: {"value": _escaped(prefix(key) + mark) + inner}}} for mark in marks]
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")


def _size(query: Json) -> tuple[int, int]:
    """Return the number of comparisons and their nesting depth."""
    if "bool" not in query:
        return 1, 0
    parts = [part for group in query["bool"].values() if isinstance(group, list) for part in group]
    sizes = [_size(part) for part in parts]
    return sum(size for size, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


LANGUAGE: Final = FilterLanguage(
    {
        FilterOperator.EQ: lambda key, value: _among(key, [value]),
        FilterOperator.IN: _among,
        **{operator: _ordered(operator.name.lower()) for operator in ORDER_OPERATORS},
        FilterOperator.ANY: lambda key, values: _one_of(key, values, "i"),
        FilterOperator.ALL: lambda key, values: all_of(
            [_term(key, "l"), *(_term(key, f"i{scalar(value)}") for value in values)]
        ),
        FilterOperator.CONTAINS: lambda key, value: _term(key, f"i{scalar(value)}"),
        FilterOperator.TEXT_MATCH: _contains_text,
        # Pieces that are in lower case already, and lower-case copies of the others.
        FilterOperator.TEXT_MATCH_INSENSITIVE: lambda key, text: _contains_text(
            key, text.lower(), "sl"
        ),
        FilterOperator.IS_EMPTY: lambda key, _: _negated(_term(key, "+")),
    },
    all_of,
    any_of,
    _negated,
    ids=lambda ids: {"ids": {"values": [*map(key_of, ids)]}},
    documents=_of_documents,
    check=_check_size,
)
