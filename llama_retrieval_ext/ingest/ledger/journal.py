"""The journal records unfinished writes, so that they can be finished or undone at any time.

A document that is being changed is ``adding`` (it is new), ``updating`` (it exists) or
``deleting``. Its nodes are ``fresh`` (of the new version only), ``doomed`` (of the old version
only) or neither. During an update the journal keeps the whole new version until it is stored:
after a crash it is unknown which nodes the engine has replaced already.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.ingest.ledger.local_ledger import Database
from llama_retrieval_ext.ingest.readers.documents import (
    DocumentKey,
    Prepared,
    pack_node,
    unpack_node,
)


class WriteOutcome(StrEnum):
    """The result of writing a document."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class JournalState(StrEnum):
    """The kind of a change."""

    ADDING = "adding"
    UPDATING = "updating"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Claim:
    """A document that this writer is changing.

    Attributes:
        key: The document.
        state: The kind of the change.
        fresh: The ids of nodes that only its new version has.
        doomed: The ids of nodes that only its old version has.
    """

    key: DocumentKey
    state: JournalState
    fresh: tuple[str, ...] = ()
    doomed: tuple[str, ...] = ()


# None: another writer is changing the document.
Reply: TypeAlias = Claim | WriteOutcome | Exception | None


class Journal(Protocol):
    """Records the changes of a writer; the caller holds the lock of the knowledge base."""

    def begin(self, documents: Sequence[Prepared]) -> list[Reply]:
        """Claim documents before they are written.

        Args:
            documents: New versions of documents, one per key.

        Returns:
            For each document its claim; UNCHANGED if this version is stored already; an error, such
            as for node ids of another document; or None if another writer has claimed it.
        """
        ...

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents before they are deleted; UNCHANGED for those that do not exist."""
        ...

    def unfinished(self) -> list[Claim]:
        """Claim the unfinished changes of this writer or of a dead one."""
        ...

    def new_version(self, claim: Claim) -> Prepared | None:
        """Return the new version of a document that is being updated; None if it was not kept.

        If it was not kept, no part of it was written.
        """
        ...

    def confirm(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that no other writer has taken over."""
        ...

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are done; return those that no other writer had taken over."""
        ...

    def undo(self, claim: Claim) -> None:
        """Record that a document has its old version again, without its fresh nodes.

        An updated document always counts as changed afterwards, because some of its other nodes may
        have been replaced already.
        """
        ...

    def unowned(self, claims: Sequence[Claim]) -> list[str]:
        """Return the ids of nodes written under lost claims that no document has.

        Another writer considered this one dead and has undone its changes.
        """
        ...


def claim_of(
    key: DocumentKey, state: JournalState, old: Sequence[str], new: Sequence[str]
) -> Claim:
    """Return the claim of a document that has old nodes and will have new ones."""
    kept = set(old) & set(new)
    fresh = tuple(each for each in new if each not in kept)
    return Claim(key, state, fresh, tuple(each for each in old if each not in kept))


def duplicate_error(document: Prepared, node_id: str, owner: DocumentKey) -> DuplicateNodeError:
    """Return the error for a document with a node id that another document has."""
    # The message does not name documents outside the caller's scope.
    same_scope = owner[:2] == document.key[:2]
    whose = f"document {owner.ref!r}" if same_scope else "another scope"
    return DuplicateNodeError(
        f"the node id {node_id!r} of document {document.key.ref!r} is in use by "
        f"{whose}; nothing was overwritten: give the node another id",
        node_id,
    )


class LocalJournal:
    """The journal of a `LocalLedger`, in the same database.

    No other process writes to it: unfinished changes come from a crash or a failure.

    Args:
        database: The ledger's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, documents: Sequence[Prepared]) -> list[Reply]:
        """Claim documents before they are written; see `Journal.begin`."""
        with self._database.transaction() as connection:
            return [_begin(connection, each) for each in documents]

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> list[Reply]:
        """Claim documents before they are deleted; UNCHANGED for those that do not exist."""
        with self._database.transaction() as connection:
            return [_begin_deleting(connection, key) for key in keys]

    def unfinished(self) -> list[Claim]:
        """Return the claims of unfinished changes."""
        query = "SELECT tenant, kb, ref, state FROM documents WHERE state IS NOT NULL"
        rows = [list(map(str, row)) for row in self._database.rows(query)]
        return [
            self._claim(DocumentKey(tenant, kb, ref), JournalState(state))
            for tenant, kb, ref, state in rows
        ]

    def new_version(self, claim: Claim) -> Prepared | None:
        """Return the new version of a document that is being updated."""
        query = (
            "SELECT digest, redo.node, redo.embedding FROM redo JOIN documents ON document = id "
            "WHERE tenant = ? AND kb = ? AND ref = ? ORDER BY redo.rowid"
        )
        rows = self._database.rows(query, *claim.key)
        nodes = tuple(unpack_node(text, vector) for _, text, vector in rows)
        return Prepared(claim.key, rows[0][0], nodes) if rows else None

    def confirm(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return all claims: no other process takes them over."""
        return list(claims)

    def finish(self, claims: Sequence[Claim]) -> list[Claim]:
        """Record that claims are done."""
        with self._database.transaction() as connection:
            for claim in claims:
                document = _id_of(connection, claim.key)
                # `+role` forces the index on documents; the one on roles matches the whole batch.
                for statement in (
                    "DELETE FROM nodes WHERE document = ? AND +role = 'doomed'",
                    "UPDATE nodes SET role = NULL WHERE document = ? AND +role = 'fresh'",
                    "DELETE FROM redo WHERE document = ?",
                    "DELETE FROM documents WHERE id = ? AND state = 'deleting'",
                    "UPDATE documents SET state = NULL WHERE id = ?",
                ):
                    connection.execute(statement, (document,))
        return list(claims)

    def undo(self, claim: Claim) -> None:
        """Record that a document has its old version again; see `Journal.undo`."""
        with self._database.transaction() as connection:
            document = _id_of(connection, claim.key)
            for statement in (
                "DELETE FROM nodes WHERE document = ? AND +role = 'fresh'",
                "UPDATE nodes SET role = NULL WHERE document = ?",
                "DELETE FROM redo WHERE document = ?",
                "DELETE FROM documents WHERE id = ? AND state = 'adding'",
                "UPDATE documents SET state = NULL, digest = '' WHERE id = ?",
            ):
                connection.execute(statement, (document,))

    def unowned(self, claims: Sequence[Claim]) -> list[str]:  # noqa: ARG002 - none is lost
        """Return nothing: no claim is lost to another process."""
        return []

    def _claim(self, key: DocumentKey, state: JournalState) -> Claim:
        query = (
            "SELECT node_id, role FROM nodes JOIN documents ON document = id "
            "WHERE tenant = ? AND kb = ? AND ref = ? AND role IS NOT NULL"
        )
        rows = self._database.rows(query, *key)
        fresh = tuple(node_id for node_id, role in rows if role == "fresh")
        return Claim(key, state, fresh, tuple(id_ for id_, role in rows if role == "doomed"))


def _begin(connection: sqlite3.Connection, document: Prepared) -> Reply:
    query = "SELECT id, digest FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    row = connection.execute(query, document.key).fetchone()
    id_, digest = row or (None, None)
    if digest == document.digest:
        return WriteOutcome.UNCHANGED
    taken = _duplicate(connection, document, id_)
    if taken is not None:
        return taken
    new = [node.node_id for node in document.nodes]
    if id_ is not None:
        return _begin_update(connection, document, id_, new)
    statement = (
        "INSERT INTO documents (tenant, kb, ref, digest, state, source) VALUES (?, ?, ?, ?, ?, ?)"
    )
    values = (*document.key, document.digest, JournalState.ADDING, document.source)
    _insert_fresh(connection, connection.execute(statement, values).lastrowid, new)
    return claim_of(document.key, JournalState.ADDING, (), new)


def _begin_update(
    connection: sqlite3.Connection, document: Prepared, id_: int, new: Sequence[str]
) -> Claim:
    rows = connection.execute("SELECT node_id FROM nodes WHERE document = ?", (id_,)).fetchall()
    claim = claim_of(document.key, JournalState.UPDATING, [old for (old,) in rows], new)
    _insert_fresh(connection, id_, claim.fresh)
    connection.executemany(
        "UPDATE nodes SET role = 'doomed' WHERE node_id = ?", [(gone,) for gone in claim.doomed]
    )
    connection.executemany(
        "INSERT INTO redo VALUES (?, ?, ?)",
        [(id_, *pack_node(node)) for node in document.nodes],
    )
    connection.execute(
        "UPDATE documents SET digest = ?, state = ?, source = ? WHERE id = ?",
        (document.digest, JournalState.UPDATING, document.source, id_),
    )
    return claim


def _begin_deleting(connection: sqlite3.Connection, key: DocumentKey) -> Reply:
    document = _id_of(connection, key)
    if document is None:
        return WriteOutcome.UNCHANGED
    connection.execute("UPDATE documents SET state = 'deleting' WHERE id = ?", (document,))
    connection.execute("UPDATE nodes SET role = 'doomed' WHERE document = ?", (document,))
    rows = connection.execute("SELECT node_id FROM nodes WHERE document = ?", (document,))
    return claim_of(key, JournalState.DELETING, [node_id for (node_id,) in rows], ())


def _insert_fresh(
    connection: sqlite3.Connection, document: int | None, node_ids: Sequence[str]
) -> None:
    rows = [(node_id, document) for node_id in node_ids]
    connection.executemany("INSERT INTO nodes VALUES (?, ?, 'fresh')", rows)


def _duplicate(
    connection: sqlite3.Connection, document: Prepared, id_: int | None
) -> DuplicateNodeError | None:
    query = (
        "SELECT tenant, kb, ref FROM nodes JOIN documents ON document = id "
        "WHERE node_id = ? AND id IS NOT ?"
    )
    for node in document.nodes:
        owner = connection.execute(query, (node.node_id, id_)).fetchone()
        if owner is not None:
            return duplicate_error(document, node.node_id, DocumentKey(*owner))
    return None


def _id_of(connection: sqlite3.Connection, key: DocumentKey) -> int | None:
    query = "SELECT id FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    row = connection.execute(query, key).fetchone()
    return None if row is None else row[0]
