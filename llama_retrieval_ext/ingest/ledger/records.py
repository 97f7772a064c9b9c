"""The records of a ledger on a server: one per document, and one for the configuration.

A document's record has its key, digest, source and node ids and, while a writer changes it, the
claim: who, since when, and the new version. It is replaced as a whole. Long values lie in parts of
their own, which the record names before they are written and until they are deleted, so that a
crash leaves no part that nobody finds.
"""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilters

from llama_retrieval_ext.ingest.documents import DocumentKey
from llama_retrieval_ext.ingest.ledger.journal import JournalState
from llama_retrieval_ext.ingest.ledger.ledger import Entry
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.stores.engine.records import Record, RecordStore, all_of, where

CONFIG: Final = "config"
TOTALS: Final = "totals"
# The first record of a ledger of format 2 on a server.
OLD_CONFIG: Final = "manifest"
_DOCUMENT: Final = "document"
_SINCE: Final = "since"
_WRITER: Final = "writer"
# At most 30,000 characters a record; a document's has up to three values, and its names.
_PART: Final = 30_000
_INLINE: Final = 4_000


@dataclass(frozen=True, slots=True)
class Value:
    """A text in a record, or the name of the parts that have it.

    Attributes:
        text: The text, if it is short.
        stamp: Tells its parts from all others; empty where there are none.
        n_parts: How many parts it has.
    """

    text: str = ""
    stamp: str = ""
    n_parts: int = 0

    @property
    def part_ids(self) -> list[str]:
        """The ids of its parts."""
        return [f"part:{self.stamp}/{number}" for number in range(self.n_parts)]


@dataclass(frozen=True, slots=True)
class Change:
    """What a writer is doing with a document.

    Attributes:
        state: Which of adding, updating and deleting.
        digest: Of the new version.
        source: Of the new version.
        n_nodes: How many nodes it has.
        nodes: Their ids, as a JSON list.
        redo: The whole new version of a document that is being updated.
    """

    state: JournalState
    digest: str = ""
    source: str = ""
    n_nodes: int = 0
    nodes: Value = Value()
    redo: Value = Value()


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document as the ledger has it.

    Attributes:
        key: Which document.
        created: When it was first added, in nanoseconds since 1970.
        digest: Of the stored version; empty if it counts as changed.
        source: The file it came from; empty where it is its own source.
        n_nodes: How many nodes it has.
        nodes: Their ids, as a JSON list.
        change: What a writer is doing with it; None at rest.
        trash: Values whose parts are yet to be deleted.
        writer: Who changes it, or deletes parts.
        since: When the writer last said so, in milliseconds since 1970.
        version: Of the record; empty for one that is not stored.
    """

    key: DocumentKey
    created: int
    digest: str = ""
    source: str = ""
    n_nodes: int = 0
    nodes: Value = Value()
    change: Change | None = None
    trash: tuple[Value, ...] = ()
    writer: str = ""
    since: int = 0
    version: str = ""

    @property
    def entry(self) -> Entry:
        """What readers see of it: of a document that is being added, the new version."""
        at_rest = self.change if self.change and self.change.state is JournalState.ADDING else self
        return Entry(self.key, self.digest, at_rest.source or self.key.ref, at_rest.n_nodes)

    def finished(self) -> "DocumentRecord":
        """Return the record at rest once its change is done."""
        change = self.change or Change(JournalState.DELETING)
        trash = (self.nodes, change.redo)
        return replace(
            self._at_rest(trash),
            digest=change.digest,
            source=change.source,
            n_nodes=change.n_nodes,
            nodes=change.nodes,
        )

    def undone(self) -> "DocumentRecord":
        """Return the record at rest without its change; the document counts as changed."""
        change = self.change or Change(JournalState.DELETING)
        return replace(self._at_rest((change.nodes, change.redo)), digest="")

    def _at_rest(self, values: Iterable[Value]) -> "DocumentRecord":
        trash = tuple(each for each in (*self.trash, *values) if each.n_parts)
        return replace(self, change=None, trash=trash)

    def to_record(self) -> Record:
        """Return it as it is stored."""
        fields: dict[str, str | int] = {
            "kind": _DOCUMENT,
            "ref": _digest(self.key.ref),
            "tenant": _digest(self.key.tenant),
            "kb": _digest(self.key.kb),
            "source": _digest(self.entry.source),
        }
        if self.change is not None or self.trash:
            fields |= {_SINCE: self.since, _WRITER: self.writer}
        content = asdict(self)
        del content["version"]
        return Record(record_id(self.key), json.dumps(content), fields, self.version)

    @classmethod
    def from_record(cls, record: Record) -> "DocumentRecord":
        """Return the document of a record."""
        content: dict[str, Any] = json.loads(record.text)  # Any: JSON
        change = content.pop("change")
        return cls(
            **{
                **content,
                "key": DocumentKey(*content["key"]),
                "nodes": Value(**content["nodes"]),
                "change": None if change is None else _change(change),
                "trash": tuple(Value(**each) for each in content["trash"]),
                "version": record.version,
            }
        )


def record_id(key: DocumentKey) -> str:
    """Return the id of a document's record."""
    return f"{_DOCUMENT}:{_digest(json.dumps(key))}"


def documents_in(records: Mapping[str, Record]) -> dict[DocumentKey, DocumentRecord]:
    """Return the documents among records, by key."""
    found = [
        DocumentRecord.from_record(each)
        for each in records.values()
        if (each.fields or {}).get("kind") == _DOCUMENT
    ]
    return {each.key: each for each in found}


def all_documents(scope: Scope | None = None, *, name: str | None = None) -> MetadataFilters:
    """Return the filters for the documents that a scope can see; with a name, those called so."""
    conditions = [where("kind", _DOCUMENT)]
    if scope is not None and scope.tenant_id is not None:
        conditions.append(where("tenant", _digest(scope.tenant_id)))
    if scope is not None and scope.kb_ids:
        conditions.append(where("kb", [*map(_digest, scope.kb_ids)], FilterOperator.IN))
    if name is None:
        return all_of(*conditions)
    either = [where("ref", _digest(name)), where("source", _digest(name))]
    return all_of(*conditions, MetadataFilters(filters=[*either], condition=FilterCondition.OR))


def temporary(*, until_ms: int, writer: str) -> MetadataFilters:
    """Return the filters for what the writer, or anybody until then, has begun."""
    return MetadataFilters(
        filters=[where(_SINCE, until_ms, FilterOperator.LTE), where(_WRITER, writer)],
        condition=FilterCondition.OR,
    )


def changed_after(ms: int) -> MetadataFilters:
    """Return the filters for what anybody has begun later than that."""
    return all_of(where(_SINCE, ms, FilterOperator.GT))


class Values:
    """Reads and writes values that have parts.

    Args:
        records: Has the parts.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._texts: dict[str, str] = {}

    def create(self, text: str) -> Value:
        """Return a value for a text; `write` stores its parts, if it has any."""
        if len(text) <= _INLINE:
            return Value(text)
        value = Value("", secrets.token_hex(16), -(-len(text) // _PART))
        self._texts[value.stamp] = text
        return value

    def write(self, values: Iterable[Value]) -> None:
        """Store the parts of values that were created here; forget those of all others."""
        texts, self._texts = self._texts, {}
        self._records.put(
            [
                Record(id_, texts[value.stamp][_PART * number :][:_PART], {"kind": "part"})
                for value in values
                for number, id_ in enumerate(value.part_ids)
            ]
        )

    def read(self, values: Sequence[Value]) -> list[str | None]:
        """Return the text of each value; None where a part is missing."""
        parts = self._records.get([id_ for value in values for id_ in value.part_ids])
        return [_joined(value, parts) for value in values]

    def delete(self, values: Iterable[Value]) -> None:
        """Delete the parts of values."""
        ids = [id_ for value in values for id_ in value.part_ids]
        if ids:
            self._records.delete(ids)


def _joined(value: Value, parts: Mapping[str, Record]) -> str | None:
    if not value.n_parts:
        return value.text
    texts = [parts[id_].text for id_ in value.part_ids if id_ in parts]
    return "".join(texts) if len(texts) == value.n_parts else None


def _change(content: dict[str, Any]) -> Change:
    return Change(
        **{
            **content,
            "state": JournalState(content["state"]),
            "nodes": Value(**content["nodes"]),
            "redo": Value(**content["redo"]),
        }
    )


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
