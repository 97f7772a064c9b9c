"""The payload of a point: the node, and its metadata for exact filters; and its vectors.

::

    {"doc": ref_doc_id, "node": the node as text,
     "meta": {key: string or number, or {} for anything else that is not None},
     "lower": {key: string in lower case, where that is another one},
     "big": {key: a number beyond what JSON keeps exactly, as a string of digits},
     "list": {key: a list's values, marked by type}}

Lists stand apart, because the engine's comparison with a field also compares with the elements of
a list. Groups without content are left out: every value costs some microseconds to hand over.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import sha1
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import NAMESPACE_OID, UUID

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode
from pydantic_core import to_jsonable_python

from llama_retrieval_ext.formulas.bm25 import bm25_term_weight
from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.encoding.node_json import node_to_text
from llama_retrieval_ext.stores.encoding.values import all_utf8_safe, keyword_text
from llama_retrieval_ext.stores.encoding.vectors import Vectors, document_vectors
from llama_retrieval_ext.stores.qdrant_common.config import QdrantConfig
from llama_retrieval_ext.text.tokenizer import Tokenizer

Payload: TypeAlias = dict[str, object]
_Groups: TypeAlias = dict[str, dict[str, object]]

DOC: Final = "doc"
NODE: Final = "node"
META: Final = "meta"
LOWER: Final = "lower"
BIG: Final = "big"
LIST: Final = "list"
# First in every stored list: whether it has values.
FILLED: Final = "+"
EMPTY: Final = "-"
# Below it, whole numbers and floats are the same to JSON and to Python.
EXACT: Final = 2**53
# The first characters of a lone surrogate that node_to_text has escaped.
_ESCAPED: Final = "\\ud"


def path(group: str, key: str) -> str:
    """Return the engine's name of a metadata field; quotes protect dots and spaces in the key."""
    return f'"{group}"."{key}"'


def payload_of(node: BaseNode) -> Payload:
    """Return all that is stored of a node beside its vectors."""
    text = node_to_text(node)
    payload: Payload = {NODE: text, **_groups(node.metadata)}
    ref_doc_id = node.ref_doc_id
    if ref_doc_id is not None:
        payload[DOC] = ref_doc_id
    return all_utf8_safe(payload) if _ESCAPED in text else payload


def marked(value: str | float) -> str:
    """Return a value of a list as it is stored: strings and numbers never equal each other."""
    return f"s{value}" if isinstance(value, str) else f"n{digits(value)}"


def digits(number: float) -> str:
    """Return a finite number as a string, the same for every number that equals it.

    Examples:
        >>> digits(3) == digits(3.0) != digits(3.5)
        True

    """
    # Hexadecimal, because Python refuses to write very long decimal numbers.
    return f"{int(number):x}" if number == int(number) else repr(number)


def _groups(metadata: Mapping[str, object]) -> Payload:
    groups: _Groups = {META: {}, LOWER: {}, BIG: {}, LIST: {}}
    for key, value in metadata.items():
        if value is not None:
            _put(groups, key, value)
    return {name: group for name, group in groups.items() if group}


def _put(groups: _Groups, key: str, value: object) -> None:
    if isinstance(value, str):
        groups[META][key] = value
        lower = value.lower()
        if lower != value:
            groups[LOWER][key] = lower
    elif isinstance(value, bool | dict):
        groups[META][key] = {}
    elif isinstance(value, int | float):
        groups[META][key] = _orderable(value)
        if EXACT <= abs(value) < math.inf:
            groups[BIG][key] = digits(value)
    elif isinstance(value, list | tuple):
        kept = [marked(each) for each in value if _is_comparable(each)]
        groups[LIST][key] = [FILLED if value else EMPTY, *kept]
    else:  # a date, a set: what JSON makes of it, as in the stored node
        _put(groups, key, to_jsonable_python(value))


def _orderable(number: float) -> object:
    """Return a number that the engine orders as Python does; {} for NaN."""
    if abs(number) < EXACT:
        return number
    if isinstance(number, float) and math.isnan(number):
        return {}
    size = float(min(abs(number), sys.float_info.max))
    return size if number > 0 else -size


def _is_comparable(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int) and not isinstance(value, bool)


# A text without terms still counts as a document: without a sparse vector, the engine would leave
# it out of the number of documents in IDF.
NO_TERM: Final = 2**32 - 1
_ID_BITS: Final = np.uint64(32)
_ID_BYTES: Final = 4
_NO_NUMBER: Final = np.uint64(2**64 - 1)
# Term ids, and a weight each.
Weighed: TypeAlias = tuple[list[int], list[float]]


_Numbers: TypeAlias = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Terms:
    """The counted terms of some texts, end to end: a few bytes a term, so that many fit.

    Attributes:
        ids: Term ids of the first text, then of the second, and so on.
        counts: How often each occurs.
        sizes: How many of the ids each text has.
        lengths: How many terms each text has, repetitions included.
    """

    ids: _Numbers
    counts: _Numbers
    sizes: _Numbers
    lengths: _Numbers

    def weighed(self, *, average_length: float) -> Iterator[Weighed]:
        """Return the BM25 weights of each text, without IDF, which the engine computes."""
        ids = self.ids.tolist()
        weights: list[float] = bm25_term_weight(
            self.counts.astype(np.float64),
            length=np.repeat(self.lengths, self.sizes),
            average_length=average_length,
        ).tolist()
        for start, end in pairwise(accumulate(self.sizes.tolist(), initial=0)):
            yield (ids[start:end], weights[start:end]) if end > start else ([NO_TERM], [0.0])


def terms_of(nodes: Sequence[BaseNode], tokenizer: Tokenizer) -> Terms:
    """Return the counted terms of the keyword texts of nodes."""
    texts = [tokenizer.term_ids(keyword_text(node)) for node in nodes]
    lengths = np.array([len(text) for text in texts]) // _ID_BYTES
    # Counted all at once: the number of the text is in the upper half, the term id in the lower.
    numbers = np.repeat(np.arange(len(texts), dtype=np.uint64) << _ID_BITS, lengths)
    numbers |= np.frombuffer(b"".join(texts), dtype=np.uint32)
    numbers.sort(kind="stable")  # in half the time of `np.unique`: each text is a run
    first = np.flatnonzero(np.diff(numbers, prepend=_NO_NUMBER))
    keys, counts = numbers[first], np.diff(first, append=len(numbers))
    sizes = np.bincount((keys >> _ID_BITS).astype(np.intp), minlength=len(texts))
    return Terms(keys.astype(np.uint32), counts.astype(np.uint32), sizes, lengths)


# Texts of our test collections have 50 to 110 terms on average; to expect too many does less harm
# than to expect too few.
USUAL_LENGTH: Final = 100
_USUAL_NODES: Final = 10


class Ready(NamedTuple):
    """The parts of a point."""

    id: UUID
    vector: list[float]
    weighed: Weighed
    payload: Payload


@dataclass(frozen=True, slots=True)
class Batch:
    """Nodes that are ready to be written, but for the weights of their terms."""

    nodes: Sequence[BaseNode]
    vectors: Vectors
    terms: Terms
    payloads: Sequence[Payload]

    @property
    def size_bytes(self) -> int:
        """Its approximate size."""
        texts = sum(len(str(payload[NODE]).encode()) for payload in self.payloads)
        numbers = len(self.vectors) * len(self.vectors[0]) * 4 + len(self.terms.ids) * 8
        return texts + numbers

    def ready(self, *, average_length: float) -> Iterator[Ready]:
        """Return the parts of each point, for a mean number of terms."""
        weighed = self.terms.weighed(average_length=average_length)
        ids = (point_id(node.node_id) for node in self.nodes)
        return map(Ready._make, zip(ids, self.vectors, weighed, self.payloads, strict=True))


def prepare_batches(
    nodes: Sequence[BaseNode], *, size: int, config: QdrantConfig, where: object
) -> list[Batch]:
    """Validate nodes, at least one, and return them in batches."""
    batches = []
    for start in range(0, len(nodes), size):
        some = nodes[start : start + size]
        vectors = document_vectors(
            some,
            dimension=config.dimension or len(nodes[0].embedding or ()),
            distance=config.distance,
            where=where,
        )
        terms = terms_of(some, config.tokenizer)
        batches.append(Batch(some, vectors, terms, [payload_of(node) for node in some]))
    return batches


def mean_length(batches: Sequence[Batch]) -> float:
    """Return the mean number of terms, smoothed with pseudo-documents of `USUAL_LENGTH`.

    It is recorded once: if a first document of two words determined it, every later one would
    count as far too long, which costs an eighth to a fifth of the nDCG@10 of keyword search.
    """
    lengths = [length for batch in batches for length in batch.terms.lengths.tolist()]
    mean: float = (sum(lengths) + _USUAL_NODES * USUAL_LENGTH) / (len(lengths) + _USUAL_NODES)
    return mean


def point_id(node_id: str) -> UUID:
    """Return the engine's id for a node id, which may be any string: always the same one."""
    # uuid5, but for lone surrogates, which it refuses.
    name = NAMESPACE_OID.bytes + node_id.encode("utf-8", "surrogatepass")
    return UUID(bytes=sha1(name, usedforsecurity=False).digest()[:16], version=5)


# Each index costs memory and a little of every insertion. Further fields are filtered all the same,
# only slower: some milliseconds per 10,000 nodes.
MOST_FIELDS: Final = 64
# A field of longer strings holds text, such as the window around a sentence. It is not
# filtered by as a whole, and an index would hold all such values in memory.
LONGEST_VALUE: Final = 256


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the payload that gets an index.

    Attributes:
        name: As the engine writes it back: with as few quotes as it can.
        path: As it is written to the engine.
        kind: Of a tenant's field, the engine keeps the nodes of each value together.
    """

    name: str
    path: str
    kind: Literal["keyword", "tenant", "number"]


def metadata_field(key: str, value: object, *, group: str = META) -> Field:
    """Return the field of a metadata key."""
    keyword: Literal["keyword", "tenant"] = "tenant" if key in {TENANT_KEY, KB_KEY} else "keyword"
    kind = "number" if isinstance(value, int | float) else keyword
    return Field(f"{group}.{key}", path(group, key), kind)


DOC_FIELD: Final = Field(DOC, DOC, "keyword")


def fields_to_index(payloads: Iterable[Payload], indexed: AbstractSet[str]) -> list[Field]:
    """Return the fields of payloads that have no index yet, up to `MOST_FIELDS` in all."""
    new: dict[str, Field] = {}
    for payload in payloads:
        if DOC in payload and DOC not in indexed:
            new[DOC] = DOC_FIELD
        for group in (META, LIST):
            values = payload.get(group)
            for key, value in values.items() if isinstance(values, dict) else ():
                name = f"{group}.{key}"
                if name in new or name in indexed or not _fits(key, value):
                    continue
                if len(indexed) + len(new) >= MOST_FIELDS:
                    return list(new.values())
                new[name] = metadata_field(key, value, group=group)
    return list(new.values())


def _fits(key: str, value: object) -> bool:
    # {} stands for a value that cannot be filtered by, of any type. A long string is text.
    text = isinstance(value, str) and len(value) > LONGEST_VALUE
    return value != {} and not text and '"' not in key and "\\" not in key
