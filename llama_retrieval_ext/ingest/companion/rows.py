"""Rows of a ledger's tables as the texts of records, and back.

A document's record has its row (its source since format 2), those of its nodes and, while it is
being updated, the name of another record with its new version. The manifest's record has all its
rows, and a `State`.
"""

import json
import secrets
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

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
