"""The journal records unfinished writes, so that they can be finished or undone at any time.

The nodes of a document that is being changed are ``fresh`` (of the new version only), ``doomed``
(of the old version only) or neither. During an update the journal keeps the whole new version:
after a crash it is unknown which nodes the engine has replaced already.
"""

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Self, TypeAlias

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.knowledge_base.ledger.local_ledger import Database
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    PackedNode,
    Prepared,
    Writable,
    unpacked,
)

# Nodes of an unfinished update that are read at a time.
_PAGE: Final = 1024


class WriteOutcome(StrEnum):
    """The result of writing a document."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    OUTDATED = "outdated"  # not written: the stored version is not the one that it was made from


class JournalState(StrEnum):
    """The kind of a change."""

    ADDING = "adding"
    UPDATING = "updating"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Claim:
    """A document that this writer is changing."""

    key: DocumentKey
    state: JournalState
    fresh: tuple[str, ...] = ()
    doomed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, key: DocumentKey, state: JournalState, old: Sequence[str], new: Sequence[str]
    ) -> Self:
        """Return the claim of a document that has old nodes and will have new ones."""
        kept = set(old) & set(new)
        fresh = tuple(each for each in new if each not in kept)
        return cls(key, state, fresh, tuple(each for each in old if each not in kept))


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """The new version of a document, which a journal keeps during its update."""

    parts: Callable[[], Iterator[Prepared]]  # documents with its key, each with some of its nodes


Version: TypeAlias = Writable | KeptVersion
# UNCHANGED if this version is stored already; None if another writer has claimed the document.
Reply: TypeAlias = Claim | WriteOutcome | Exception | None


class Journal(ABC):
    """Records the changes of a writer; the caller holds the lock of the knowledge base.

    Attributes:
        is_shared: Whether other processes wait for the claims of this writer.
    """

    is_shared: ClassVar[bool] = False

    @abstractmethod
    def begin(self, documents: Sequence[Writable]) -> list[Reply]:
        """Claim documents before they are written; an error, as of a duplicate id, is a reply."""

    @abstractmethod
    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents before they are deleted; UNCHANGED for those that do not exist."""

    @abstractmethod
    def unfinished(self) -> list[Claim]:
        """Claim the unfinished changes of this writer or of a dead one."""

    @abstractmethod
    def new_version(self, claim: Claim) -> KeptVersion | None:
        """Return the new version of a document that is being updated; None if none was written."""

    @abstractmethod
    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are done; return those that no other writer had taken over."""

    @abstractmethod
    def undo(self, claim: Claim) -> None:
        """Record that a document has its old version again, without its fresh nodes.

        An updated document always counts as changed afterwards, because some of its other nodes may
        have been replaced already.
        """

    def confirm(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that no other writer has taken over."""
        return list(claims)

    def unowned(self, claims: Sequence[Claim]) -> list[str]:  # noqa: ARG002 - none is lost
        """Return the ids of nodes without a document, of claims that another writer has undone."""
        return []


def duplicate_error(document: Writable, node_id: str, owner: DocumentKey) -> DuplicateNodeError:
    """Return the error for a document with a node id that another document has."""
    # The message does not name documents outside the caller's scope.
    same_scope = owner[:2] == document.key[:2]
    whose = f"document {owner.ref!r}" if same_scope else "another scope"
    return DuplicateNodeError(
        f"the node id {node_id!r} of document {document.key.ref!r} is in use by "
        f"{whose}; nothing was overwritten: give the node another id",
        node_id,
    )


_SHOW_NEW: Final = (
    "UPDATE documents SET allowed = new_allowed, new_allowed = NULL "
    "WHERE id = ? AND new_allowed IS NOT NULL"
)
_FINISH: Final = (
    # `+role` forces the index on documents; the one on roles matches the whole batch.
    "DELETE FROM nodes WHERE document = ? AND +role = 'doomed'",
    "UPDATE nodes SET role = NULL WHERE document = ? AND +role = 'fresh'",
    "DELETE FROM redo WHERE document = ?",
    "DELETE FROM documents WHERE id = ? AND state = 'deleting'",
    _SHOW_NEW,
    "UPDATE documents SET state = NULL WHERE id = ?",
)
_UNDO: Final = (
    "DELETE FROM nodes WHERE document = ? AND +role = 'fresh'",
    "UPDATE nodes SET role = NULL WHERE document = ?",
    "DELETE FROM redo WHERE document = ?",
    "DELETE FROM documents WHERE id = ? AND state = 'adding'",
    "UPDATE documents SET state = NULL, digest = '', new_allowed = NULL WHERE id = ?",
)


class LocalJournal(Journal):
    """The journal of a `LocalLedger`, in the same database, to which no other process writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, documents: Sequence[Writable]) -> list[Reply]:
        """Claim documents before they are written; see `Journal.begin`."""
        with self._database.transaction() as connection:
            return [_begin(connection, document) for document in documents]

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents before they are deleted; UNCHANGED for those that do not exist."""
        with self._database.transaction() as connection:
            return [_begin_deleting(connection, key) for key in keys]

    def unfinished(self) -> list[Claim]:
        """Return the claims of unfinished changes."""
        query = "SELECT id, tenant, kb, ref, state FROM documents WHERE state IS NOT NULL"
        roles = "SELECT node_id FROM nodes WHERE document = ? AND +role = ?"
        claims = []
        for id_, *key, state in self._database.rows(query):
            fresh, doomed = (
                tuple(node_id for (node_id,) in self._database.rows(roles, id_, role))
                for role in ("fresh", "doomed")
            )
            claims.append(Claim(DocumentKey(*key), JournalState(state), fresh, doomed))
        return claims

    def new_version(self, claim: Claim) -> KeptVersion | None:
        """Return the new version of a document that is being updated."""
        with self._database.connection() as connection:
            document = _id_of(connection, claim.key)
        kept = self._database.rows("SELECT 1 FROM redo WHERE document = ? LIMIT 1", document)
        return KeptVersion(lambda: self._redo(claim.key, document)) if kept else None

    def _redo(self, key: DocumentKey, document: int | None) -> Iterator[Prepared]:
        query = (
            "SELECT redo.rowid, digest, redo.node, redo.embedding, redo.rows "
            "FROM redo JOIN documents ON document = id "
            "WHERE document = ? AND redo.rowid > ? ORDER BY redo.rowid LIMIT ?"
        )
        last = 0
        while rows := self._database.rows(query, document, last, _PAGE):
            last, digest, *_ = rows[-1]
            yield unpacked(key, digest, [PackedNode(*each) for _, _, *each in rows])

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are done."""
        self._end(claims, _FINISH)
        return list(claims)

    def undo(self, claim: Claim) -> None:
        """Record that a document has its old version again; see `Journal.undo`."""
        self._end([claim], _UNDO)

    def _end(self, claims: Sequence[Claim], statements: Sequence[str]) -> None:
        with self._database.transaction() as connection:
            for claim in claims:
                document = _id_of(connection, claim.key)
                for statement in statements:
                    connection.execute(statement, (document,))


def _begin(connection: sqlite3.Connection, document: Writable) -> Reply:
    query = "SELECT id, digest FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    row = connection.execute(query, document.key).fetchone()
    id_, digest = row or (None, None)
    if digest == document.digest:
        return WriteOutcome.UNCHANGED
    taken = _duplicate(connection, document, id_)
    if taken is not None:
        return taken
    new = document.node_ids
    if id_ is not None:
        return _begin_update(connection, document, id_)
    statement = (
        "INSERT INTO documents (tenant, kb, ref, digest, state, source, allowed) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)"
    )
    shown = document.source, json.dumps(document.allowed)
    values = (*document.key, document.digest, JournalState.ADDING, *shown)
    _insert_fresh(connection, connection.execute(statement, values).lastrowid, new)
    return Claim.of(document.key, JournalState.ADDING, (), new)


def _begin_update(connection: sqlite3.Connection, document: Writable, id_: int) -> Claim:
    old = _node_ids(connection, id_)
    claim = Claim.of(document.key, JournalState.UPDATING, old, document.node_ids)
    _insert_fresh(connection, id_, claim.fresh)
    connection.executemany(
        "UPDATE nodes SET role = 'doomed' WHERE node_id = ?", [(gone,) for gone in claim.doomed]
    )
    for part in document.parts():
        connection.executemany(
            "INSERT INTO redo VALUES (?, ?, ?, ?)", [(id_, *each) for each in part.packed()]
        )
    shown = document.source, json.dumps(document.allowed)
    connection.execute(
        "UPDATE documents SET digest = ?, state = ?, source = ?, new_allowed = ? WHERE id = ?",
        (document.digest, JournalState.UPDATING, *shown, id_),
    )
    return claim


def _begin_deleting(connection: sqlite3.Connection, key: DocumentKey) -> Reply:
    document = _id_of(connection, key)
    if document is None:
        return WriteOutcome.UNCHANGED
    connection.execute("UPDATE documents SET state = 'deleting' WHERE id = ?", (document,))
    connection.execute("UPDATE nodes SET role = 'doomed' WHERE document = ?", (document,))
    return Claim.of(key, JournalState.DELETING, _node_ids(connection, document), ())


def _node_ids(connection: sqlite3.Connection, document: int) -> list[str]:
    rows = connection.execute("SELECT node_id FROM nodes WHERE document = ?", (document,))
    return [node_id for (node_id,) in rows]


def _insert_fresh(
    connection: sqlite3.Connection, document: int | None, node_ids: Sequence[str]
) -> None:
    rows = [(node_id, document) for node_id in node_ids]
    connection.executemany("INSERT INTO nodes VALUES (?, ?, 'fresh')", rows)


def _duplicate(
    connection: sqlite3.Connection, document: Writable, id_: int | None
) -> DuplicateNodeError | None:
    query = (
        "SELECT tenant, kb, ref FROM nodes JOIN documents ON document = id "
        "WHERE node_id = ? AND id IS NOT ?"
    )
    for node_id in document.node_ids:
        owner = connection.execute(query, (node_id, id_)).fetchone()
        if owner is not None:
            return duplicate_error(document, node_id, DocumentKey(*owner))
    return None


def _id_of(connection: sqlite3.Connection, key: DocumentKey) -> int | None:
    query = "SELECT id FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    row = connection.execute(query, key).fetchone()
    return None if row is None else row[0]
