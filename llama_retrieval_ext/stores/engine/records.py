"""Versioned records by id, with replacement only if the version is unchanged.

Each record is stored as one node. An engine with compare-and-set has its own `Records`;
`IntentRecords` needs no compare-and-set. It adds an intent, reads all intents on the same record,
and continues only if there is no other. Of two writers, at least one sees the other's intent.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

if TYPE_CHECKING:
    from llama_retrieval_ext.stores.engine.vector_store import EngineStore

Field: TypeAlias = str | int

_RECORD: Final = "record"
# Records are found by id and fields. Milvus requires at least two dimensions.
_VECTOR: Final = (1.0, 0.0)
_TARGET: Final = "intent_for"
_SINCE: Final = "since"
# Ids per request.
_MANY: Final = 500


@dataclass(frozen=True, slots=True)
class Record:
    """A text with searchable fields.

    Attributes:
        id: Record id.
        text: At most 30,000 ASCII characters: Milvus limits a node to 65,535 bytes, and nested
            JSON may need two bytes per character.
        fields: Fields for filters.
        version: Changes with each write; empty for a record that is not stored.
    """

    id: str
    text: str = ""
    fields: Mapping[str, Field] | None = None
    version: str = ""


class Records(Protocol):
    """Records in a separate collection. Writes are visible when the call returns."""

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the existing records with these ids."""
        ...

    def find(
        self, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records whose fields satisfy the filters, or the first by id; all for None."""
        ...

    def count(self, filters: MetadataFilters) -> int:
        """Return the number of records that satisfy the filters."""
        ...

    def put(self, records: Sequence[Record]) -> None:
        """Write records, regardless of stored versions."""
        ...

    def replace(
        self, records: Sequence[Record], *, remove: Sequence[Record] = (), held: bool = False
    ) -> dict[str, str]:
        """Write and remove the records whose stored version equals the given version.

        Args:
            records: Records with the version to replace; empty if the record must not exist.
            remove: Records to remove, with their version.
            held: Whether the caller has claimed them, so that no other writer replaces them.

        Returns:
            The new versions by id, empty for removed records. Records that another writer has
            replaced or is replacing are missing.
        """
        ...

    def delete(self, ids: Iterable[str]) -> None:
        """Delete records, regardless of their version."""
        ...

    def remove(self) -> None:
        """Remove all records with their collection or file; can be repeated."""
        ...


class IntentRecords:
    """Records in a store without compare-and-set.

    Args:
        store: Store that holds only records; reads see earlier writes.
        is_shared: Whether other processes write to it.
        clock: Returns the seconds since 1970.
        patience_s: Seconds after which an intent belongs to a dead writer.
    """

    def __init__(
        self,
        store: "EngineStore",
        *,
        is_shared: bool,
        clock: Callable[[], float],
        patience_s: float,
    ) -> None:
        self._store = store
        self._is_shared = is_shared
        self._clock = clock
        self._patience_s = patience_s

    def get(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the existing records with these ids."""
        records = [
            record_of(node)
            for part in in_parts(ids, _MANY)
            for node in self._store.get_nodes(node_ids=part)
        ]
        return {record.id: record for record in records}

    def find(
        self, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[Record]:
        """Return the records whose fields satisfy the filters; all for None."""
        return [record_of(node) for node in self._store.get_nodes(filters=filters)[:limit]]

    def count(self, filters: MetadataFilters) -> int:
        """Return the number of records that satisfy the filters."""
        return self._store.count(filters)

    def put(self, records: Sequence[Record]) -> None:
        """Write records, regardless of stored versions."""
        if records:
            self._store.add([node_of(replace(record, version=_token())) for record in records])

    def replace(
        self, records: Sequence[Record], *, remove: Sequence[Record] = (), held: bool = False
    ) -> dict[str, str]:
        """Write and remove records with unchanged versions; see `Records.replace`."""
        if held or not self._is_shared:
            return self._replace(records, remove)
        ids = [record.id for record in (*records, *remove)]
        prefix = f"intent:{_token()}/"
        fields = {_SINCE: round(self._clock() * 1000)}
        self.put([Record(f"{prefix}{id_}", fields={**fields, _TARGET: id_}) for id_ in ids])
        try:
            taken = self._other_targets(ids, prefix)
            return self._replace(
                [record for record in records if record.id not in taken],
                [record for record in remove if record.id not in taken],
            )
        finally:
            self.delete(f"{prefix}{id_}" for id_ in ids)

    def delete(self, ids: Iterable[str]) -> None:
        """Delete records, regardless of their version."""
        for part in in_parts(ids, _MANY):
            self._store.delete_nodes(node_ids=part)

    def remove(self) -> None:
        """Drop the collection of the records."""
        self._store.clear()

    def _replace(self, records: Sequence[Record], remove: Sequence[Record]) -> dict[str, str]:
        stored = self.get([record.id for record in (*records, *remove)])
        versions = {id_: record.version for id_, record in stored.items()}
        new = [
            replace(record, version=_token())
            for record in records
            if versions.get(record.id, "") == record.version
        ]
        if new:
            self._store.add([node_of(record) for record in new])
        gone = [record.id for record in remove if versions.get(record.id) == record.version]
        self.delete(gone)
        return {**{record.id: record.version for record in new}, **dict.fromkeys(gone, "")}

    def _other_targets(self, ids: Sequence[str], prefix: str) -> set[Field | None]:
        """Return the ids with a live intent of another writer."""
        oldest = round((self._clock() - self._patience_s) * 1000)
        intents = [
            record
            for part in in_parts(ids, _MANY)
            for target in [MetadataFilter(key=_TARGET, value=part, operator=FilterOperator.IN)]
            for record in self.find(MetadataFilters(filters=[target]))
            if not record.id.startswith(prefix)
        ]
        fields = [intent.fields or {} for intent in intents]
        return {field.get(_TARGET) for field in fields if field.get(_SINCE, 0) > oldest}  # type: ignore[operator]  # a number, as it was written


def node_of(record: Record) -> TextNode:
    """Return the node that stores a record."""
    # A dict in the metadata is stored unchanged and not indexed.
    metadata = {**(record.fields or {}), _RECORD: {"text": record.text, "version": record.version}}
    return TextNode(
        id_=record.id,
        metadata=metadata,
        excluded_embed_metadata_keys=list(metadata),
        excluded_llm_metadata_keys=list(metadata),
        embedding=list(_VECTOR),
    )


def record_of(node: BaseNode) -> Record:
    """Return the record that a node stores."""
    return record_in(node.node_id, dict(node.metadata))


def record_in(id_: str, metadata: dict[str, Any], version: str = "") -> Record:
    """Return the record in the metadata of a node, which it may change."""
    content = metadata.pop(_RECORD, {})
    return Record(id_, content.get("text", ""), metadata, version or content.get("version", ""))


def in_parts(ids: Iterable[str], size: int) -> Iterable[list[str]]:
    """Yield ids in lists of at most `size`."""
    remaining = iter(ids)
    while part := list(islice(remaining, size)):
        yield part


def _token() -> str:
    return secrets.token_hex(8)
