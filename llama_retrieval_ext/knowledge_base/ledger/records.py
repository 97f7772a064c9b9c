"""The records of a ledger: one per document, which is replaced as a whole.

A document has one version, or two while it changes. The nodes of each are rows of one slot (see
`row_id`), so that the next version is written beside the stored one, and one of both deleted.

Long values are stored in separate records, their parts. A document lists its parts before they are
written and until they are deleted, so that a crash leaves no unlisted part.
"""

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.records import Field, Record, Records

_DOCUMENT: Final = "document"
_SYNCED: Final = "synced"
_SINCE: Final = "since"
_WRITER: Final = "writer"
# At most 30,000 characters a record; a document's has up to three values, and its names.
_PART: Final = 30_000
_INLINE: Final = 4_000


def where(
    key: str, value: Field | list[str], operator: FilterOperator = FilterOperator.EQ
) -> MetadataFilter:
    """Return a condition on a field."""
    return MetadataFilter(key=key, value=value, operator=operator)


def all_of(*conditions: MetadataFilter | MetadataFilters) -> MetadataFilters:
    """Return the conjunction of filters."""
    return MetadataFilters(filters=list(conditions))


class Entry(NamedTuple):
    """The ledger's entry for a document; its digest is that of its version."""

    key: DocumentKey
    digest: str
    source: str
    n_nodes: int
    allowed: tuple[str, ...] = ()


class SourceKey(NamedTuple):
    """The identity of a source: its scope, whose parts may be empty, and its name."""

    tenant: str
    kb: str
    source: str


@dataclass(frozen=True, slots=True)
class StoredSource:
    """The origin of documents in a knowledge base: a file, or the document itself.

    Attributes:
        source: The path of the file, or the id of the document.
        documents: Number of its documents.
        nodes: Number of their nodes.
        scope: The scope that it belongs to; None for none.
    """

    source: str
    documents: int
    nodes: int
    scope: Scope | None


class SyncedSource(NamedTuple):
    """A source as `KnowledgeBase.sync` found it; it is the same while all fields are."""

    owner: str  # the name and the scope of the sync
    key: SourceKey
    size: int = -1
    mtime_ns: int = -1  # -1 if a later edit may not change it
    content: str = ""  # digest of the file; empty if it is unknown
    stamp: str = ""  # digest of its stored documents; empty until they are complete
    allowed: str = ""  # as JSON, the principals of its documents, for when they are not stored
    earlier: str = ""  # the restricted source of its content, until somebody is named here


def principals_json(allowed: Iterable[tuple[str, ...]]) -> str:
    """Return the principals of documents as JSON, two if they differ; "" for everyone."""
    names = sorted({*allowed} - {()})[:2]
    return json.dumps(names) if names else ""


class WriteState(StrEnum):
    """What a writer does to a document; a change that ends here is swept by whoever comes next."""

    ADDING = "adding"  # writes the rows of its first version
    UPDATING = "updating"  # writes the rows of its next version
    SWEEPING = "sweeping"  # deletes the rows of the version before
    DELETING = "deleting"  # deletes all its rows


class Value(NamedTuple):
    """A text in a record if it is short, else a reference to its parts."""

    text: str = ""
    stamp: str = ""
    n_parts: int = 0

    @property
    def part_ids(self) -> list[str]:
        """The ids of the parts."""
        return [f"part:{self.stamp}/{number}" for number in range(self.n_parts)]


class Version(NamedTuple):
    """A version of a document, whose rows are all in the same slot."""

    digest: str = ""  # empty if it counts as changed
    source: str = ""  # the file it came from; empty if it is its own source
    n_nodes: int = 0
    allowed: tuple[str, ...] = ()  # the principals who may see it; empty for everyone
    nodes: Value = Value("[]")  # their ids, as a JSON list

    @classmethod
    def of(cls, digest: str, source: str, n_nodes: int, allowed: list[str], nodes: Any) -> Self:  # noqa: ANN401 - JSON
        """Return the version of its JSON form."""
        return cls(digest, source, n_nodes, tuple(allowed), Value(*nodes))


_NONE: Final = Version()


class DocumentRecord(NamedTuple):
    """A document in the ledger."""

    key: DocumentKey
    created: int  # in nanoseconds since 1970
    stored: Version = _NONE
    slot: int = 1  # of the rows of the stored version; those of the other are in the other slot
    state: WriteState | None = None  # None for a document at rest
    other: Version = _NONE  # the version before, or the next one, while the document changes
    trash: tuple[Value, ...] = ()  # their parts may not have been deleted yet
    writer: str = ""  # the writer that changes it
    since: int = 0  # when the writer last renewed its claim, in milliseconds since 1970
    version: str = ""  # of the record; empty if it is not stored

    @property
    def id(self) -> str:
        """The id of the record."""
        return record_id(self.key)

    @property
    def values(self) -> list[Value]:
        """All its values that have parts."""
        named = (self.stored.nodes, self.other.nodes, *self.trash)
        return [value for value in named if value.n_parts]

    @property
    def entry(self) -> Entry:
        """The document as visible to readers; during its addition, the new version."""
        shown = self.other if self.state is WriteState.ADDING else self.stored
        source = shown.source or self.key.ref
        return Entry(self.key, self.stored.digest, source, shown.n_nodes, shown.allowed)

    def committed(self) -> "DocumentRecord":
        """Return the record with the next version as the stored one."""
        swept = self.state is WriteState.ADDING  # there is no version before
        return self._replace(
            stored=self.other,
            slot=1 - self.slot,
            state=None if swept else WriteState.SWEEPING,
            other=self.stored,
        )

    def swept(self) -> "DocumentRecord":
        """Return the record without the other version, whose rows were deleted."""
        trash = (self.other.nodes,) if self.other.nodes.n_parts else ()
        return self._replace(state=None, other=_NONE, trash=trash)

    def to_record(self) -> Record:
        """Return the stored form of the record."""
        fields: dict[str, str | int] = {
            "kind": _DOCUMENT,
            "ref": _digest(self.key.ref),
            "tenant": _digest(self.key.tenant),
            "kb": _digest(self.key.kb),
            "source": _digest(self.entry.source),
        }
        if self.state is not None:
            fields |= {_SINCE: self.since, _WRITER: self.writer}
        return Record(self.id, json.dumps(self[:-1]), fields, self.version)

    @classmethod
    def from_record(cls, record: Record) -> "DocumentRecord":
        """Return the document of a record."""
        key, created, stored, slot, state, other, trash, writer, since = json.loads(record.text)
        return cls(
            DocumentKey(*key),
            created,
            Version.of(*stored),
            slot,
            state and WriteState(state),
            Version.of(*other),
            tuple(Value(*value) for value in trash),
            writer,
            since,
            record.version,
        )


def sources_of(entries: Iterable[Entry]) -> list[StoredSource]:
    """Return the sources of documents, by name."""
    counts: dict[tuple[str, str, str], list[int]] = {}
    for key, _, source, n_nodes, _ in entries:
        counts.setdefault((source, key.tenant, key.kb), []).append(n_nodes)
    sources: list[StoredSource] = []
    for (source, tenant, kb), nodes in sorted(counts.items()):
        # Metadata may contain a blank name; a scope cannot.
        tenant, kb = tenant.strip() and tenant, kb.strip() and kb  # noqa: PLW2901
        owner = Scope(tenant or None, [kb] if kb else None) if tenant or kb else None
        sources.append(StoredSource(source, len(nodes), sum(nodes), owner))
    return sources


@lru_cache(maxsize=4096)
def record_id(key: DocumentKey) -> str:
    """Return the id of a document's record."""
    return f"{_DOCUMENT}:{_digest(json.dumps(key))}"


def documents_in(records: Iterable[Record]) -> dict[DocumentKey, DocumentRecord]:
    """Return the documents among records, by key."""
    documents: dict[DocumentKey, DocumentRecord] = {}
    for record in records:
        if record.fields and record.fields.get("kind") == _DOCUMENT:
            document = DocumentRecord.from_record(record)
            documents[document.key] = document
    return documents


def all_documents(scope: Scope | None = None) -> MetadataFilters:
    """Return the filters for the documents visible to a scope; without a scope, for all."""
    conditions = [where("kind", _DOCUMENT)]
    if scope is not None and scope.tenant_id is not None:
        conditions.append(where("tenant", _digest(scope.tenant_id)))
    if scope is not None and scope.kb_ids:
        conditions.append(where("kb", [*map(_digest, scope.kb_ids)], FilterOperator.IN))
    return all_of(*conditions)


def named_documents(name: str, scope: Scope | None, *, in_any: bool = False) -> MetadataFilters:
    """Return the filters for an id or source in a scope; None means in no scope, or ``in_any``."""
    is_open = in_any or scope is not None
    in_none = [] if is_open else [where("tenant", _digest("")), where("kb", _digest(""))]
    either = [where("ref", _digest(name)), where("source", _digest(name))]
    is_named = MetadataFilters(filters=[*either], condition=FilterCondition.OR)
    return all_of(*all_documents(scope).filters, *in_none, is_named)


def synced_record(source: SyncedSource) -> Record:
    """Return the stored form of a source that a sync has recorded."""
    fields = {"kind": _SYNCED, "owner": _digest(source.owner)}
    id_ = f"{_SYNCED}:{_digest(json.dumps(source[:2]))}"
    return Record(id_, json.dumps(source), fields)


def synced_from(record: Record) -> SyncedSource:
    """Return the source of a record."""
    owner, key, *state = json.loads(record.text)
    return SyncedSource(owner, SourceKey(*key), *state)


def synced_by(owner: str | None) -> MetadataFilters:
    """Return the filters for the sources that a sync has recorded; None for those of all."""
    by_owner = [] if owner is None else [where("owner", _digest(owner))]
    return all_of(where("kind", _SYNCED), *by_owner)


def temporary(*, until_ms: int, writer: str) -> MetadataFilters:
    """Return the filters for changes begun by this writer, or by any writer until a time."""
    return MetadataFilters(
        filters=[where(_SINCE, until_ms, FilterOperator.LTE), where(_WRITER, writer)],
        condition=FilterCondition.OR,
    )


def begun_after(ms: int) -> MetadataFilters:
    """Return the filters for changes begun by any writer after a time."""
    return all_of(where(_SINCE, ms, FilterOperator.GT))


class Values:
    """Stores the parts of values."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._unwritten: dict[str, str] = {}

    def create(self, text: str) -> Value:
        """Return a value for a text; `write` stores its parts, if any."""
        if len(text) <= _INLINE:
            return Value(text)
        value = Value("", secrets.token_hex(16), -(-len(text) // _PART))
        self._unwritten |= {
            id_: text[_PART * number :][:_PART] for number, id_ in enumerate(value.part_ids)
        }
        return value

    def write(self, values: Iterable[Value]) -> None:
        """Store the parts of these values if created here; forget all other created values."""
        texts, self._unwritten = self._unwritten, {}
        if texts:
            ids = [id_ for value in values for id_ in value.part_ids]
            self._records.put([Record(id_, texts[id_], {"kind": "part"}) for id_ in ids])

    def read(self, values: Iterable[Value]) -> list[str | None]:
        """Return the text of each value; None where a part is missing."""
        values = list(values)
        ids = [id_ for value in values if value.n_parts for id_ in value.part_ids]
        stored = self._records.get(ids) if ids else {}
        texts: list[str | None] = []
        for value in values:
            parts = value.part_ids if value.n_parts else ()
            is_whole = all(id_ in stored for id_ in parts)
            texts.append(
                value.text + "".join(stored[id_].text for id_ in parts) if is_whole else None
            )
        return texts

    def delete(self, values: Iterable[Value]) -> None:
        """Delete the parts of values."""
        ids = [id_ for value in values for id_ in value.part_ids]
        if ids:
            self._records.delete(ids)


@lru_cache(maxsize=4096)
def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
