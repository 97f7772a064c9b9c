"""Records in an index of Elasticsearch, replaced by compare-and-set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from llama_index.core.vector_stores.types import MetadataFilters
from pydantic_core import to_json

from llama_retrieval_ext.stores.elasticsearch.client import (
    Requests,
    Transport,
    json_request,
    lines_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.encoding import Json
from llama_retrieval_ext.stores.elasticsearch.errors import error_of_part
from llama_retrieval_ext.stores.elasticsearch.filters import compile_target, key_of
from llama_retrieval_ext.stores.elasticsearch.nodes import (
    PAGE,
    count_matching,
    page_of_hits,
    stored_document,
)
from llama_retrieval_ext.stores.elasticsearch.schema import ID, NODE, Index
from llama_retrieval_ext.stores.encoding.node_json import node_from_text
from llama_retrieval_ext.stores.engine.query_modes import Target
from llama_retrieval_ext.stores.engine.records import Record, in_parts, node_of, record_of

_CONFLICT: Final = 409
_MISSING: Final = 404
_FIRST_BAD: Final = 300
_DIMENSION: Final = 2
_BATCH: Final = 200  # some 6 MB at most
_ABSENT: Final = "index_not_found_exception"
# An action of _bulk: its head, and the record that it writes.
_Action = tuple[Json, Record | None]


class ElasticsearchRecords:
    """A `RecordStore`: reads by id are realtime, searches refresh the index first.

    Args:
        index: Holds nothing else.
        transport: Sends the requests.
    """

    def __init__(self, index: Index, transport: Transport) -> None:
        self._index = index
        self._transport = transport

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the records with these ids that exist."""
        found: dict[str, Record] = {}
        for some in in_parts(ids, PAGE):
            found |= self._transport.run(self._get(some))
        return found

    def find(self, filters: MetadataFilters | None = None) -> list[Record]:
        """Return the records whose fields satisfy filters; all for None."""
        return self._transport.run(self._find(compile_target(Target(filters=filters))))

    def count(self, filters: MetadataFilters) -> int:
        """Return how many records satisfy filters."""
        return self._transport.run(self._count(compile_target(Target(filters=filters))))

    def put(self, records: Sequence[Record]) -> None:
        """Write records, whatever is stored under their ids."""
        self._write([({"index": {"_id": key_of(each.id)}}, each) for each in records])

    def replace(
        self,
        records: Sequence[Record],
        *,
        remove: Sequence[Record] = (),
        held: bool = False,
    ) -> dict[str, str]:
        """Write and remove records in the version that they carry; see `RecordStore.replace`."""
        removals = {each.id for each in remove}
        written = self._write(
            [
                *((_replacement(each), each) for each in records),
                *(({"delete": _condition(each)}, None) for each in remove),
            ],
            # Nobody drops the index of a claimed record.
            is_there=held,
        )
        ids = {key_of(each.id): each.id for each in (*records, *remove)}
        return {
            ids[key]: "" if ids[key] in removals else version for key, version in written.items()
        }

    def delete(self, ids: Iterable[str]) -> None:
        """Delete records, whatever their version."""
        self._write([({"delete": {"_id": key_of(id_)}}, None) for id_ in ids])

    def _write(self, actions: Sequence[_Action], *, is_there: bool = False) -> dict[str, str]:
        """Return the new versions of what was written, by the engine's ids."""
        written: dict[str, str] = {}
        for start in range(0, len(actions), _BATCH):
            if not is_there:
                # A write to an index that is gone would create one of another kind.
                self._transport.run(self._index.create(_DIMENSION))
            written |= self._transport.run(self._bulk(actions[start : start + _BATCH]))
        return written

    def _get(self, ids: Sequence[str]) -> Requests[dict[str, Record]]:
        body = {"ids": [key_of(id_) for id_ in ids]}
        request = json_request(
            "POST", self._index.name, "_mget", params={"_source": NODE}, body=body
        )
        records = yield from read(request, self._found)
        return {record.id: record for record in records}

    def _found(self, reply: Json) -> list[Record]:
        for document in reply["docs"]:
            if "error" in document and document["error"].get("type") != _ABSENT:
                raise error_of_part(503, document, f"index {self._index.name!r}")
        return [_record(each) for each in reply["docs"] if each.get("found")]

    def _find(self, query: Json | None) -> Requests[list[Record]]:
        yield self._index.refresh_request()
        records: list[Record] = []
        after: list[str] | None = None
        while True:
            hits = yield from page_of_hits(self._index, query, after=after, fields=[NODE, ID])
            records += [_record(hit) for hit in hits]
            if len(hits) < PAGE:
                return records
            after = hits[-1]["sort"]

    def _count(self, query: Json | None) -> Requests[int]:
        yield self._index.refresh_request()
        return (yield from count_matching(self._index, query))

    def _document(self, record: Record) -> Json:
        node = node_of(record)
        return stored_document(node, list(node.embedding or ()), self._index.config)

    def _bulk(self, actions: Sequence[_Action]) -> Requests[dict[str, str]]:
        lines = [
            to_json(part)
            for head, record in actions
            for part in (
                head,
                None if record is None else self._document(record),
            )
            if part is not None
        ]
        reply = yield lines_request(self._index.name, "_bulk", lines=lines)
        written: dict[str, str] = {}
        for each in reply["items"]:
            ((_, item),) = each.items()
            if item["status"] < _FIRST_BAD:
                written[item["_id"]] = _version(item)
            elif item["status"] not in (_CONFLICT, _MISSING):
                raise error_of_part(item["status"], item, f"index {self._index.name!r}")
        return written


def _replacement(record: Record) -> Json:
    return {"index" if record.version else "create": _condition(record)}


def _condition(record: Record) -> Json:
    if not record.version:
        return {"_id": key_of(record.id)}
    number, term = record.version.split("/")
    return {"_id": key_of(record.id), "if_seq_no": int(number), "if_primary_term": int(term)}


def _version(document: Mapping[str, int]) -> str:
    return f"{document['_seq_no']}/{document['_primary_term']}"


def _record(document: Json) -> Record:
    record = record_of(node_from_text(document["_source"][NODE]))
    return replace(record, version=_version(document))
