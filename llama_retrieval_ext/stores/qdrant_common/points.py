"""Payload and vectors of a point; the payload holds the node and metadata for exact filters.

::

    {"doc": ref_doc_id, "node": the node as text, "start": its position in its document,
     "allowed": numbers of the principals that may see it, missing if everyone may,
     "meta": {key: string or number, or {} for any other value except None},
     "lower": {key: string in lower case, if it differs},
     "time": {key: microseconds from 1970 to a date},
     "bool": {key: "true" or "false"},
     "list": {key: the values of a list, marked by type}}

Lists have their own group, because an engine filter on a field also matches elements of a list.
Empty groups are omitted, because passing each value to the engine costs some microseconds.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import sha1
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import NAMESPACE_OID, UUID

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.dates import KNOWN_FROM, KNOWN_TO, instant
from llama_retrieval_ext.scope import ALLOWED_KEY, KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.node_json import node_to_text
from llama_retrieval_ext.stores.encoding.values import (
    MICROSECOND,
    boolean_term,
    is_comparable,
    plain_value,
)
from llama_retrieval_ext.stores.encoding.vectors import Vectors, document_vectors
from llama_retrieval_ext.stores.engine.config import StoreConfig
from llama_retrieval_ext.stores.qdrant_common.terms import Terms, Weighed, terms_of

Payload: TypeAlias = dict[str, object]
_Groups: TypeAlias = dict[str, dict[str, Any]]

DOC: Final = "doc"
NODE: Final = "node"
START: Final = "start"
ALLOWED: Final = "allowed"
META: Final = "meta"
LOWER: Final = "lower"
TIME: Final = "time"
BOOLEAN: Final = "bool"
LIST: Final = "list"
LONG: Final = "long"  # as text, numbers that the engines round, see `is_rounded`
# First element of every stored list: whether the list has values.
FILLED: Final = "+"
EMPTY: Final = "-"
# Mark of the strings in it.
_STRING: Final = "s"
_NOBODY: Final = 0
# Below this, every integer is a float.
EXACT: Final = 2**53
_EXACT_DIGITS: Final = 15
_EXACT_ZEROS: Final = 22


def path(group: str, key: str) -> str:
    """Return the engine's path of a metadata field; quotes allow dots and spaces in the key."""
    return f'"{group}"."{key}"'


def payload_of(node: BaseNode) -> Payload:
    """Return the stored data of a node except its vectors."""
    groups: _Groups = {META: {}, LOWER: {}, TIME: {}, BOOLEAN: {}, LIST: {}, LONG: {}}
    for key, value in node.metadata.items():
        _put(groups, key, plain_value(value))
    filled = {name: group for name, group in groups.items() if group}
    payload: Payload = {NODE: node_to_text(node), **filled}
    ref_doc_id = node.ref_doc_id
    if ref_doc_id is not None:
        payload[DOC] = ref_doc_id
    start = getattr(node, "start_char_idx", None)
    if start is not None:
        payload[START] = start
    if node.metadata.get(ALLOWED_KEY) not in (None, [], ()):
        names = groups[LIST].get(ALLOWED_KEY, [])[1:]
        numbers = [principal_number(name[1:]) for name in names if name.startswith(_STRING)]
        payload[ALLOWED] = numbers or [_NOBODY]  # what is no list of strings names nobody
    return payload


def marked(value: str | float) -> str:
    """Return the stored form of a list value; strings never equal numbers.

    Examples:
        >>> marked("3"), marked(3) == marked(3.0) != marked(3.5)
        ('s3', True)

    """
    # Adding 0.0 makes -0.0 equal 0.0.
    return f"{_STRING}{value}" if isinstance(value, str) else f"n{float(value) + 0.0!r}"


def is_rounded(number: float) -> bool:
    """Return whether the engines may change the last digit of a number.

    They read payloads as JSON again, by serde_json without ``float_roundtrip``, which is exact for
    numbers of at most 15 digits with at most 22 zeros.

    Examples:
        >>> is_rounded(0.3), is_rounded(0.1 + 0.2), is_rounded(2**53), is_rounded(1e300)
        (False, True, True, True)

    """
    if isinstance(number, int):
        return abs(number) >= EXACT
    _, digits, exponent = Decimal(repr(number)).as_tuple()
    return len(digits) > _EXACT_DIGITS or not -_EXACT_ZEROS <= int(exponent) <= _EXACT_ZEROS


def _put(groups: _Groups, key: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, str):
        _put_text(groups, key, value)
    elif isinstance(value, list | tuple):
        items = [marked(item) for item in value if is_comparable(item)]
        groups[LIST][key] = [FILLED if value else EMPTY, *items]
    elif isinstance(value, bool):
        groups[META][key] = {}
        groups[BOOLEAN][key] = boolean_term(value)
    elif isinstance(value, int | float) and not math.isnan(value):
        # JSON has no infinity, which the largest float stands for.
        most = sys.float_info.max
        number = value if abs(value) < EXACT else max(-most, min(float(value), most))
        groups[META][key] = number
        if is_rounded(number):
            groups[LONG][key] = marked(number)
    else:
        groups[META][key] = {}


def _put_text(groups: _Groups, key: str, text: str) -> None:
    groups[META][key] = text
    lower = text.lower()
    if lower != text:
        groups[LOWER][key] = lower
    moment = instant(text)
    if moment is not None:
        groups[TIME][key] = moment // MICROSECOND


@lru_cache(maxsize=100_000)
def principal_number(name: str) -> int:
    """Return the number of a principal.

    The engine finds integers three times as fast as strings, of which a query may have hundreds.
    Should two names ever have the same of 2**63 numbers, the check of hits by name remains.
    """
    digest = sha1(name.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8]) >> 1 or 1


@dataclass(frozen=True, slots=True)
class QdrantConfig(StoreConfig):
    """The config of a store of a Qdrant engine, with the mean lengths in all keyword weights."""

    average_lengths: Mapping[str, float] = field(default_factory=dict)


class Ready(NamedTuple):
    """The parts of a point."""

    id: UUID
    vector: list[float]
    weighed: Weighed
    payload: Payload


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Nodes prepared for writing, except for their term weights."""

    nodes: Sequence[BaseNode]
    vectors: Vectors
    terms: Terms
    payloads: Sequence[Payload]

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        texts = sum(len(str(payload[NODE]).encode()) for payload in self.payloads)
        numbers = len(self.vectors) * len(self.vectors[0]) * 4 + len(self.terms.ids) * 8
        return texts + numbers

    def ready(self, average_lengths: Mapping[str, float]) -> Iterator[Ready]:
        """Yield the parts of each point, weighted with mean numbers of terms."""
        weighed = self.terms.weighed(average_lengths)
        ids = map(point_id, map(attrgetter("node_id"), self.nodes))
        return map(Ready._make, zip(ids, self.vectors, weighed, self.payloads, strict=True))


def prepare_batches(
    nodes: Sequence[BaseNode], *, size: int, config: QdrantConfig, where: object
) -> list[PointBatch]:
    """Return validated nodes in batches; there must be at least one node."""
    batches = []
    for start in range(0, len(nodes), size):
        part = nodes[start : start + size]
        vectors = document_vectors(
            part,
            dimension=config.dimension or len(nodes[0].embedding or ()),
            distance=config.distance,
            where=where,
        )
        terms = terms_of(part, config.tokenizer, config.schema)
        batches.append(PointBatch(part, vectors, terms, [payload_of(node) for node in part]))
    return batches


def point_id(node_id: str) -> UUID:
    """Return the engine's id for any node id; deterministic."""
    # `uuid5`, but for lone surrogates: no node has such an id, and it may be looked for.
    name = NAMESPACE_OID.bytes + node_id.encode("utf-8", "surrogatepass")
    return UUID(bytes=sha1(name, usedforsecurity=False).digest()[:16], version=5)


# Each index costs memory and insertion time. Filters on fields without an index are slower by some
# milliseconds per 10,000 nodes.
MOST_FIELDS: Final = 64
# Longer strings are text, such as the window around a sentence. Filters do not compare them as a
# whole, and an index would keep all of them in memory.
LONGEST_VALUE: Final = 256


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the payload with an index.

    Attributes:
        name: Path as the engine returns it, with the fewest possible quotes.
        path: Path as sent to the engine.
        kind: Index type; for ``tenant`` the engine groups the nodes by value.
    """

    name: str
    path: str
    kind: Literal["keyword", "tenant", "number", "principal"]


def metadata_field(key: str, value: object, *, group: str = META) -> Field:
    """Return the field of a metadata key."""
    keyword: Literal["keyword", "tenant"] = "tenant" if key in {TENANT_KEY, KB_KEY} else "keyword"
    kind = "number" if isinstance(value, int | float) else keyword
    return Field(f"{group}.{key}", path(group, key), kind)


DOC_FIELD: Final = Field(DOC, DOC, "keyword")
# Always: with an index, that a node names no principal is found as fast as that it names one.
ALLOWED_FIELD: Final = Field(ALLOWED, ALLOWED, "principal")
# The names of principals: filtered by number.
_NAMES: Final = f"{LIST}.{ALLOWED_KEY}"


def is_unused(field: str, indexed: AbstractSet[str]) -> bool:
    """Return whether no point has a date, or a list, at a path, since it would have an index.

    Examples:
        >>> is_unused(path(TIME, "due"), set()), is_unused(path(META, "due"), set())
        (True, False)

    """
    group, _, key = field.replace('"', "").partition(".")
    is_plain = field == path(group, key) and "\\" not in key
    return (
        is_plain
        and group in (LIST, TIME)
        and len(indexed) < MOST_FIELDS
        and f"{group}.{key}" not in {*indexed, _NAMES}
    )


def fields_to_index(payloads: Iterable[Payload], indexed: AbstractSet[str]) -> list[Field]:
    """Return the fields of payloads without an index, up to `MOST_FIELDS` in total."""
    new = {} if ALLOWED in indexed else {ALLOWED: ALLOWED_FIELD}
    for payload in payloads:
        if DOC in payload and DOC not in indexed:
            new[DOC] = DOC_FIELD
        for group, key, value in _filtered(payload):
            name = f"{group}.{key}"
            if name in new or name in indexed or name == _NAMES:
                continue
            # {} replaces values that filters do not support. A long string is text.
            is_text = isinstance(value, str) and len(value) > LONGEST_VALUE
            if is_text or value == {} or '"' in key or "\\" in key:
                continue
            if len(indexed) + len(new) >= MOST_FIELDS:
                return list(new.values())
            new[name] = metadata_field(key, value, group=group)
    return list(new.values())


def _filtered(payload: Payload) -> Iterator[tuple[str, str, object]]:
    """Yield the group, key and value of what filters may compare."""
    for group in (META, LIST, TIME):
        values = payload.get(group)
        for key, value in values.items() if isinstance(values, dict) else ():
            yield group, key, value
            if (group, key) == (TIME, KNOWN_FROM):  # every search asks for what is known now
                yield META, KNOWN_TO, ""
