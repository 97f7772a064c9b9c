"""Comparison of a shard's points with its indexes, also as a program.

    python check_shard.py FOLDER

After an unclean end the program goes first: a damaged file may end the process that reads it. It
imports only the engine, for a fast start, and prints the damage, a line each.
"""

import json
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha1
from typing import Any, Final
from uuid import NAMESPACE_OID

from qdrant_edge import (
    CountRequest,
    EdgeShard,
    FacetRequest,
    FieldCondition,
    Filter,
    HasVectorCondition,
    Query,
    QueryRequest,
    RangeFloat,
    ScrollRequest,
    SearchParams,
)

_PAGE: Final = 2048
# Values of a field that are counted one by one; a hundred thousand would take some seconds.
MOST_VALUES: Final = 1000
_NAMED: Final = 3
# Ranges of numbers that are counted.
_RANGES: Final = 16
# What every search is filtered by.
_ALWAYS: Final = {"allowed", "meta.tenant_id", "meta.kb_id"}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "PayloadSchemaType.Keyword": (str,),
    "PayloadSchemaType.Integer": (int,),
    "PayloadSchemaType.Float": (int, float),
}
# The lower half of a UUID is random but for its first two bits.
_NAMESPACE: Final = NAMESPACE_OID.bytes
_RANDOM: Final = 2**62 - 1
_VARIANT: Final = 2**63
# As in `encoding.node_json`: the end of the id of a second row.
_SECOND: Final = "\0second"
_JSON: Final = json.JSONDecoder()


def damage_in(shard: EdgeShard, *, most_values: int = MOST_VALUES) -> Iterator[str]:
    """Yield the damage of a shard: points that its searches and filters do not find as stored.

    Fields with more than ``most_values`` values are compared by the number of points that have one.
    It takes about 40 microseconds per point.
    """
    columns = [_Column(*item) for item in shard.info().payload_schema.items()]
    nodes: dict[Any, str] = {}  # Any: the engine's ids
    misplaced = []
    fields = ["node", *sorted({column.group for column in columns})]
    for id_, payload in _points(shard, fields):
        nodes[id_] = node_id = _node_id(payload)
        if id_ not in (_point_id(node_id), _point_id(node_id + _SECOND)):
            misplaced.append(node_id)
        for column in columns:
            column.read(payload)
    if misplaced:
        yield f"the stored text is of another node than its id says: {_named(misplaced)}"
    if len(nodes) != shard.info().points_count:
        yield f"{shard.info().points_count} nodes are counted, and {len(nodes)} are stored"
    yield from _not_found(shard, nodes)
    for name in [column.name for column in columns if not column.agrees(shard, most_values)]:
        yield f"the index of {name!r} does not have the values of the nodes"


class _Column:
    """The values of an indexed field in all points, and the number of points that have one."""

    def __init__(self, name: str, index: Any) -> None:  # noqa: ANN401 - the engine's
        self.name = name.replace('"', "")
        self.group, _, self._key = self.name.partition(".")
        self._types = _TYPES[str(index.data_type)]
        self._values: list[Any] = []
        self._filled = 0

    def read(self, payload: Mapping[str, Any]) -> None:
        """Add the values of a point that the index has to have."""
        value = payload.get(self.group)
        if self._key and value is not None:
            value = value.get(self._key)
        if value is None:
            return
        several = set(value) if type(value) is list else (value,)
        values = [value for value in several if type(value) in self._types]
        self._values += values
        self._filled += bool(values)

    def agrees(self, shard: EdgeShard, most_values: int) -> bool:
        """Return whether the index has the values of the points."""
        path = f'"{self.group}"."{self._key}"' if self._key else self.group

        def count(condition: FieldCondition) -> int:
            return shard.count(CountRequest(exact=True, filter=Filter(must=[condition])))

        if count(FieldCondition(path, is_empty=False)) != self._filled:
            return False
        if float in self._types:
            numbers = sorted(self._values)
            bounds = numbers[:: len(numbers) // _RANGES + 1]
            return all(
                count(FieldCondition(path, range=RangeFloat(gte=bound)))
                == len(numbers) - bisect_left(numbers, bound)
                for bound in bounds
            )
        counts = Counter(self._values)
        if len(counts) > most_values and self.name not in _ALWAYS:
            return True
        hits = shard.facet(FacetRequest(path, limit=len(counts) + 1, exact=True)).hits
        return {hit.value: hit.count for hit in hits if hit.count} == counts


def _points(shard: EdgeShard, fields: list[str]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    offset = None
    while True:
        records, offset = shard.scroll(
            ScrollRequest(offset=offset, limit=_PAGE, with_payload=fields, with_vector=False)
        )
        yield from ((record.id, record.payload or {}) for record in records)
        if offset is None:
            return


def _node_id(payload: Mapping[str, Any]) -> str:
    """Return the id in a stored node, whose first field it is."""
    text = str(payload.get("node", ""))
    try:
        return str(_JSON.raw_decode(text, text.index(":") + 1)[0])
    except ValueError:
        return text[:40]


def _point_id(node_id: str) -> int:
    """Return what `point_id` and `number_of` make of the id of a node."""
    digest = sha1(_NAMESPACE + node_id.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return int.from_bytes(digest.digest()[8:16]) & _RANDOM | _VARIANT


def _not_found(shard: EdgeShard, nodes: Mapping[Any, str]) -> Iterator[str]:
    """Yield which nodes vector search does not find, and how many keyword search has no terms of.

    Texts without terms have a term, too.
    """
    if not nodes:
        return
    (first,), _ = shard.scroll(ScrollRequest(limit=1, with_payload=False, with_vector=["dense"]))
    vector = first.vector["dense"]  # type: ignore[index,call-overload]  # by this name
    hits = shard.query(
        QueryRequest(
            limit=len(nodes) + 1,
            query=Query.Nearest(vector, using="dense"),
            params=SearchParams(exact=True),
        )
    )
    missing = nodes.keys() - {hit.id for hit in hits}
    if missing:
        yield f"vector search does not find {_named([nodes[id_] for id_ in missing])}"
    with_terms = Filter(must=[HasVectorCondition("bm25")])
    count = shard.count(CountRequest(exact=True, filter=with_terms))
    if count != len(nodes):
        yield f"keyword search has {count} of {len(nodes)} nodes"


def _named(node_ids: list[str]) -> str:
    shown = ", ".join(map(repr, sorted(node_ids)[:_NAMED]))
    more = len(node_ids) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def main(folder: str) -> None:
    """Print the damage of the shard in a folder; no other process may have it open."""
    shard = EdgeShard.load(folder)
    for damage in damage_in(shard):
        sys.stdout.write(f"{damage}\n")
    shard.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
