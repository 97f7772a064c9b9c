"""Records in an Elasticsearch index, replaced by compare-and-set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from llama_index.core.vector_stores.types import MetadataFilters
from pydantic_core import to_json

from llama_retrieval_ext.stores.elasticsearch.client import (
    Json,
    Requests,
    error_of_part,
    json_request,
    read,
)
from llama_retrieval_ext.stores.elasticsearch.filters import LANGUAGE, key_of
from llama_retrieval_ext.stores.elasticsearch.schema import (
    CONFLICT,
    FIRST_ERROR,
    NODE,
    NOT_FOUND,
    PAGE,
    STORED_NODES,
    Action,
    Index,
    stored_document,
)
from llama_retrieval_ext.stores.encoding.node_json import fields_from_text
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.stores.engine.records import Record, in_parts, node_of, record_in

T = TypeVar("T")

_DIMENSION: Final = 2
_BATCH: Final = 200  # at most about 6 MB
_ABSENT: Final = "index_not_found_exception"


class ElasticsearchRecords:
    """A `Records`: reads by id are realtime, searches refresh the index first.

    Args:
        index: The index; it contains records only.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the records with these ids that exist."""
        records: dict[str, Record] = {}
        for part in in_parts(ids, PAGE):
            body = {"ids": [key_of(id_) for id_ in part]}
            request = json_request(
                "POST", self._index.name, "_mget", params={"_source": NODE}, body=body
            )
            for document in self._run(read(request, self._documents)):
                record = _record(document["_source"][NODE], document)
                records[record.id] = record
        return records

    def find(
        self, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records whose fields satisfy filters; all for None."""
        query = LANGUAGE.select(Target(filters=filters))
        hits = self._run(self._refreshed(self._index.hits(query, STORED_NODES)))
        return [_record(hit["fields"][NODE][0], hit) for hit in hits[:limit]]

    def count(self, filters: MetadataFilters) -> int:
        """Return the number of records that satisfy filters."""
        query = LANGUAGE.select(Target(filters=filters))
        return self._run(self._refreshed(self._index.count(query)))

    def put(self, records: Sequence[Record]) -> None:
        """Write records; overwrite existing ones with the same ids."""
        self._write(
            [({"index": {"_id": key_of(record.id)}}, self._document(record)) for record in records]
        )

    def replace(
        self, records: Sequence[Record], *, remove: Sequence[Record] = (), held: bool = False
    ) -> dict[str, str]:
        """Write and remove records if their versions match; see `Records.replace`."""
        removals = {record.id for record in remove}
        written = self._write(
            [
                *(
                    ({"index" if record.version else "create": _condition(record)}, document)
                    for record, document in zip(records, map(self._document, records), strict=True)
                ),
                *(({"delete": _condition(record)}, None) for record in remove),
            ],
            # The index of a claimed record is never dropped.
            is_there=held,
        )
        ids = {key_of(record.id): record.id for record in (*records, *remove)}
        return {
            ids[key]: "" if ids[key] in removals else version for key, version in written.items()
        }

    def delete(self, ids: Iterable[str]) -> None:
        """Delete records of any version."""
        self._write([({"delete": {"_id": key_of(id_)}}, None) for id_ in ids])

    def _write(self, actions: Sequence[Action], *, is_there: bool = False) -> dict[str, str]:
        """Return the new versions of the written records, by the engine's ids."""
        written: dict[str, str] = {}
        for start in range(0, len(actions), _BATCH):
            if not is_there:
                # A write to a dropped index would create one with another mapping.
                self._run(self._index.create(_DIMENSION, again=True))
            batch = actions[start : start + _BATCH]
            items = self._run(self._index.write(batch, (CONFLICT, NOT_FOUND)))
            written |= {
                item["_id"]: _version(item) for item in items if item["status"] < FIRST_ERROR
            }
        return written

    def _run(self, requests: Requests[T]) -> T:
        return self._index.connection.run(requests)

    def _documents(self, reply: Json) -> list[Json]:
        """Return the documents that exist; raise if one could not be read."""
        for document in reply["docs"]:
            if "error" in document and document["error"].get("type") != _ABSENT:
                raise error_of_part(503, document, f"index {self._index.name!r}")
        return [document for document in reply["docs"] if document.get("found")]

    def _refreshed(self, requests: Requests[T]) -> Requests[T]:
        yield from self._index.look_up()  # for its window
        yield self._index.refresh_request()
        return (yield from requests)

    def _document(self, record: Record) -> bytes:
        node = node_of(record)
        return to_json(stored_document(node, list(node.embedding or ()), self._index.config))


def _condition(record: Record) -> Json:
    if not record.version:
        return {"_id": key_of(record.id)}
    number, term = record.version.split("/")
    return {"_id": key_of(record.id), "if_seq_no": int(number), "if_primary_term": int(term)}


def _version(document: Mapping[str, int]) -> str:
    return f"{document['_seq_no']}/{document['_primary_term']}"


def _record(node: str, document: Json) -> Record:
    fields = fields_from_text(node)  # building the node takes longer
    return record_in(fields["id_"], fields["metadata"], _version(document))
