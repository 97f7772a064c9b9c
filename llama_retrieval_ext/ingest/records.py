"""Rows of a ledger's tables as the texts of records, and back.

A document's record has its row (its source since format 2), those of its nodes and, while it is
being updated, the name of another record with its new version. The manifest's record has all its
rows, and a `State`.

Records, which are texts with a name, as nodes: what every engine keeps.

A record is one node, its head, which is replaced as a whole or not at all. What does not fit lies
in parts, under ids of their own, and the head says which: so a record is changed by writing new
parts, then the head, and whoever dies in between has changed nothing.
"""

import json
import secrets
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, Protocol

from llama_index.core.schema import BaseNode, TextNode

from llama_retrieval_ext.errors import StoreFormatError

MANIFEST: Final = "manifest"
_DOCUMENT: Final = "document:"
_REDO: Final = "redo:"


@dataclass(frozen=True, slots=True)
class State:
    """What the manifest's record says about all others.

    Attributes:
        stamp: Another one each time that something was written; empty before the first time.
        in_motion: How many documents are being written.
        n_nodes: How many nodes all documents have.
    """

    stamp: str = ""
    in_motion: int = 0
    n_nodes: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """The manifest's record, read.

    Attributes:
        state: About the other records.
        rows: Of the manifest's table.
    """

    state: State
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """The records of a document.

    Attributes:
        name: Of its record.
        text: Its record; None when it is no more.
        redo_name: Of the record with its new version; None when it is not being updated.
        redo: That record, which must be there first.
    """

    name: str
    text: str | None = None
    redo_name: str | None = None
    redo: str = ""


def manifest_text(connection: sqlite3.Connection, state: State) -> str:
    """The manifest's record."""
    rows = connection.execute("SELECT key, value FROM manifest ORDER BY key").fetchall()
    return json.dumps([[state.stamp, state.in_motion, state.n_nodes], rows])


def manifest_told(text: str) -> Told:
    """What the manifest's record says."""
    counts, rows = json.loads(text)
    return Told(State(*counts), tuple((key, value) for key, value in rows))


def document_name(key: tuple[str, str, str]) -> str:
    """The name of a document's record."""
    digest = blake2b(json.dumps(key).encode(), digest_size=16)
    return f"{_DOCUMENT}{digest.hexdigest()}"


def document_texts(connection: sqlite3.Connection, key: tuple[str, str, str]) -> Texts:
    """The records of a document, as it is now."""
    name = document_name(key)
    query = (
        "SELECT id, digest, state, source FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    )
    found = connection.execute(query, key).fetchone()
    if found is None:
        return Texts(name)
    id_, digest, state, source = found
    nodes = connection.execute("SELECT node_id, role FROM nodes WHERE document = ?", (id_,))
    redo = _redo_text(connection, id_)
    redo_name = f"{_REDO}{secrets.token_hex(16)}" if redo else None
    text = json.dumps([key, digest, state, nodes.fetchall(), source, redo_name])
    return Texts(name, text, redo_name, redo)


def redo_names(records: Mapping[str, str]) -> dict[str, str]:
    """The name of the record with a document's new version, by that of the document's."""
    documents = [name for name in records if name.startswith(_DOCUMENT)]
    found = {name: json.loads(records[name])[-1] for name in documents}
    return {name: redo for name, redo in found.items() if redo is not None}


def insert_documents(connection: sqlite3.Connection, records: Mapping[str, str]) -> None:
    """Fill the tables with what records say."""
    for name, text in records.items():
        if name.startswith(_DOCUMENT):
            _insert_document(connection, text, records)


def unused(records: Mapping[str, str]) -> list[str]:
    """The names of new versions that no document refers to."""
    used = set(redo_names(records).values())
    return [name for name in records if name.startswith(_REDO) and name not in used]


def _insert_document(connection: sqlite3.Connection, text: str, records: Mapping[str, str]) -> None:
    key, digest, state, nodes, *sources, redo_name = json.loads(text)
    statement = (
        "INSERT INTO documents (tenant, kb, ref, digest, state, source) VALUES (?, ?, ?, ?, ?, ?)"
    )
    source = sources[0] if sources else ""  # format 1 has none
    id_ = connection.execute(statement, (*key, digest, state, source)).lastrowid
    # Two processes that wrote at the same time may both have taken a node's id.
    connection.executemany(
        "INSERT OR IGNORE INTO nodes VALUES (?, ?, ?)",
        [(node_id, id_, role) for node_id, role in nodes],
    )
    redo: list[list[Any]] = json.loads(records[redo_name]) if redo_name else []  # Any: JSON
    connection.executemany(
        "INSERT INTO redo VALUES (?, ?, ?)",
        [(id_, node, b64decode(embedding)) for node, embedding in redo],
    )


def _redo_text(connection: sqlite3.Connection, id_: int) -> str:
    query = "SELECT node, embedding FROM redo WHERE document = ? ORDER BY rowid"
    rows = connection.execute(query, (id_,)).fetchall()
    return json.dumps([[node, b64encode(vector).decode()] for node, vector in rows]) if rows else ""


# Whoever reads while another writes may see a head and miss its parts.
_TRIES = 5
# Ids in one request.
_MANY = 500


class RecordStore(Protocol):
    """What a companion needs of a store."""

    def add(self, nodes: Sequence[BaseNode]) -> object:
        """Add nodes, or replace them."""
        ...

    def get_nodes(self, node_ids: list[str] | None = None) -> list[BaseNode]:
        """The nodes with these ids; all for None."""
        ...

    def delete_nodes(self, node_ids: list[str] | None = None) -> object:
        """Delete the nodes with these ids."""
        ...


class Companion:
    """Records by name, in a store of their own.

    What is written is there when the call returns. Of one call each record is written as a whole or
    not at all; of several records some may be when it fails.

    Args:
        store: Holds nothing else.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._parts: dict[str, list[str]] = {}
        self._rubbish: list[str] = []

    def read(self, name: str) -> str | None:
        """A record; None where there is none.

        Raises:
            StoreFormatError: A part of it is missing.
        """
        for _ in range(_TRIES):
            heads = self._store.get_nodes(node_ids=[name])
            if not heads:
                return None
            wanted = parts_of(heads[0]) or []
            parts = self._store.get_nodes(node_ids=wanted) if wanted else []
            text = text_of(heads[0], {part.node_id: part for part in parts})
            if text is not None:
                self._note(name, wanted)
                return text
        raise _torn(name)

    def read_all(self) -> dict[str, str]:
        """All records, by name.

        Raises:
            StoreFormatError: A part of one is missing.
        """
        missing = ""
        for _ in range(_TRIES):
            nodes = {node.node_id: node for node in self._store.get_nodes()}
            heads = {
                id_: parts for id_, node in nodes.items() if (parts := parts_of(node)) is not None
            }
            texts = {name: text_of(nodes[name], nodes) for name in heads}
            whole = {name: text for name, text in texts.items() if text is not None}
            if len(whole) == len(texts):
                self._take_stock(heads, nodes)
                return whole
            missing = next(name for name, text in texts.items() if text is None)
        raise _torn(missing)

    def write(self, records: Mapping[str, str]) -> None:
        """Write records, by name."""
        made = [record_of(name, text) for name, text in records.items()]
        parts = [part for record in made for part in record.parts]
        if parts:
            self._store.add(parts)
        if made:
            self._store.add([record.head for record in made])
        for record in made:
            self._note(record.head.node_id, [part.node_id for part in record.parts])

    def delete(self, names: Iterable[str]) -> None:
        """Delete records; their parts go when it is tidied up."""
        gone = list(names)
        self._remove(gone)
        for name in gone:
            self._note(name, [])

    def delete_later(self, names: Iterable[str]) -> None:
        """Delete records that nobody looks for when it is tidied up."""
        for name in names:
            self._note(name, [])
            self._rubbish.append(name)

    def tidy(self) -> None:
        """Delete what belongs to no record any more."""
        self._remove(self._rubbish)
        self._rubbish.clear()

    def _remove(self, ids: Sequence[str]) -> None:
        left = iter(ids)
        while some := list(islice(left, _MANY)):
            self._store.delete_nodes(node_ids=some)

    def _note(self, name: str, parts: list[str]) -> None:
        kept = set(parts)
        self._rubbish += [part for part in self._parts.pop(name, []) if part not in kept]
        if parts:
            self._parts[name] = parts

    def _take_stock(self, heads: Mapping[str, list[str]], nodes: Mapping[str, BaseNode]) -> None:
        self._parts = {name: parts for name, parts in heads.items() if parts}
        used = {*heads, *(part for parts in self._parts.values() for part in parts)}
        self._rubbish = [id_ for id_ in nodes if id_ not in used]


def _torn(name: str) -> StoreFormatError:
    return StoreFormatError(
        f"the ledger of the knowledge base has lost a part of its record {name!r}; restore its "
        "collection, whose name ends in __ledger, from a backup, or index the documents again"
    )


# Milvus takes 65,535 bytes a node; in JSON within JSON a character of ASCII takes two.
SLICE: Final = 30_000
_RECORD: Final = "record"
# Records are found by their ids. Two numbers is the least that Milvus takes.
_NOWHERE: Final = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as nodes.

    Attributes:
        head: What counts.
        parts: What has to be there before.
    """

    head: TextNode
    parts: tuple[TextNode, ...]


def record_of(name: str, text: str) -> Record:
    """The nodes of a record.

    Args:
        name: Also the id of the head.
        text: ASCII; not empty.
    """
    stamp = secrets.token_hex(4)  # so that nobody's parts are overwritten
    slices = [text[start : start + SLICE] for start in range(0, len(text), SLICE)]
    head = _node(name, {"text": slices[0], "stamp": stamp, "n_parts": len(slices) - 1})
    ids = parts_of(head) or []
    parts = [_node(id_, {"text": each}) for id_, each in zip(ids, slices[1:], strict=True)]
    return Record(head, tuple(parts))


def parts_of(node: BaseNode) -> list[str] | None:
    """The ids of a head's parts; None for a node that is a part itself."""
    fields = _fields(node)
    if "stamp" not in fields:
        return None
    return [f"{node.node_id}/{fields['stamp']}/{n}" for n in range(fields["n_parts"])]


def text_of(head: BaseNode, parts: Mapping[str, BaseNode]) -> str | None:
    """The text of a record; None where a part is missing."""
    ids = parts_of(head) or []
    if any(id_ not in parts for id_ in ids):
        return None
    return "".join(_fields(node)["text"] for node in (head, *(parts[id_] for id_ in ids)))


def _node(name: str, fields: Mapping[str, object]) -> TextNode:
    # A dict in the metadata is kept as it is, and neither searched nor filtered by.
    return TextNode(
        id_=name,
        metadata={_RECORD: fields},
        excluded_embed_metadata_keys=[_RECORD],
        excluded_llm_metadata_keys=[_RECORD],
        embedding=list(_NOWHERE),
    )


def _fields(node: BaseNode) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = node.metadata[_RECORD]
    return fields
