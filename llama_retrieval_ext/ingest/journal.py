"""The journal: what is being written, so that it can be finished or undone at any time.

A document in motion is ``adding`` (it was not there before), ``updating`` (it was) or ``deleting``.
Its nodes are ``fresh`` (of the new version only), ``doomed`` (of the old version only) or, as those
of documents at rest, neither. What is being updated is kept here as a whole until it is done:
whether an engine had replaced a node before the process died could not be told otherwise.
"""

import sqlite3
from array import array
from collections.abc import Callable, Sequence
from enum import StrEnum

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import DuplicateNodeError
from llama_retrieval_ext.ingest.documents import DocumentKey, Prepared
from llama_retrieval_ext.ingest.ledger import Database
from llama_retrieval_ext.stores.encoding.node_json import node_from_text, node_to_text


class WriteOutcome(StrEnum):
    """What came of a document."""

    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class JournalState(StrEnum):
    """What is being done with a document."""

    ADDING = "adding"
    UPDATING = "updating"
    DELETING = "deleting"


class Journal:
    """What is being written. Whoever writes here holds the lock of the knowledge base.

    Args:
        database: The ledger's.
        refresh: Sees what others have written; called before anything is begun or settled.
    """

    def __init__(self, database: Database, refresh: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._refresh = refresh

    def begin(self, documents: Sequence[Prepared]) -> list[WriteOutcome | Exception]:
        """Note what is about to be written, before any of it is.

        Args:
            documents: New versions of documents; of each key one.

        Returns:
            For each what will come of it. One whose node ids are taken is not noted.
        """
        with self._database.transaction() as connection:
            return [_begin(connection, each) for each in documents]

    def begin_deleting(self, keys: Sequence[DocumentKey]) -> None:
        """Note that documents are about to be deleted; those that do not exist are left out."""
        with self._database.transaction() as connection:
            for key in keys:
                document = _id_of(connection, key)
                _run(connection, "UPDATE documents SET state = 'deleting' WHERE id = ?", document)
                _run(connection, "UPDATE nodes SET role = 'doomed' WHERE document = ?", document)

    def unfinished(self) -> list[tuple[DocumentKey, JournalState]]:
        """What was begun and is not finished."""
        self._refresh()
        query = "SELECT tenant, kb, ref, state FROM documents WHERE state IS NOT NULL"
        rows = [list(map(str, row)) for row in self._database.rows(query)]
        return [
            (DocumentKey(tenant, kb, ref), JournalState(state)) for tenant, kb, ref, state in rows
        ]

    def new_version(self, key: DocumentKey) -> Prepared:
        """The new version of a document that is being updated."""
        query = (
            "SELECT digest, redo.node, redo.embedding FROM redo JOIN documents ON document = id "
            "WHERE tenant = ? AND kb = ? AND ref = ? ORDER BY redo.rowid"
        )
        rows = self._database.rows(query, *key)
        nodes = tuple(_restored(str(text), vector) for _, text, vector in rows)
        return Prepared(key, str(rows[0][0]), nodes)

    def fresh(self, key: DocumentKey) -> list[str]:
        """The ids of nodes that only the new version of a document has."""
        query = (
            "SELECT node_id FROM nodes JOIN documents ON document = id "
            "WHERE tenant = ? AND kb = ? AND ref = ? AND role = 'fresh'"
        )
        return [str(node_id) for (node_id,) in self._database.rows(query, *key)]

    def doomed(self) -> list[str]:
        """The ids of all nodes that are to be deleted."""
        rows = self._database.rows("SELECT node_id FROM nodes WHERE role = 'doomed'")
        return [str(node_id) for (node_id,) in rows]

    def ownerless(self, documents: Sequence[Prepared]) -> list[str]:
        """The ids of nodes of these documents that the ledger does not know, or no longer.

        Somebody else may have taken this writer for dead, and have undone what it was about to do:
        what it wrote after that nobody would ever take out.
        """
        self._refresh()
        ids = (node.node_id for document in documents for node in document.nodes)
        query = "SELECT 1 FROM nodes WHERE node_id = ?"
        return [node_id for node_id in ids if not self._database.rows(query, node_id)]

    def finish(self) -> None:
        """Everything that was begun is done."""
        with self._database.transaction() as connection:
            for statement in (
                "DELETE FROM nodes WHERE role = 'doomed'",
                "UPDATE nodes SET role = NULL WHERE role = 'fresh'",
                "DELETE FROM redo",
                "DELETE FROM documents WHERE state = 'deleting'",
                "UPDATE documents SET state = NULL WHERE state IS NOT NULL",
            ):
                _run(connection, statement)

    def undo(self, key: DocumentKey) -> None:
        """A document is as it was before; its fresh nodes are no more.

        Some of its other nodes may have been replaced already, so that an updated document counts
        as changed whatever comes next.
        """
        with self._database.transaction() as connection:
            document = _id_of(connection, key)
            for statement in (
                "DELETE FROM nodes WHERE document = ? AND role = 'fresh'",
                "UPDATE nodes SET role = NULL WHERE document = ?",
                "DELETE FROM redo WHERE document = ?",
                "DELETE FROM documents WHERE id = ? AND state = 'adding'",
                "UPDATE documents SET state = NULL, digest = '' WHERE id = ?",
            ):
                _run(connection, statement, document)


def _begin(connection: sqlite3.Connection, document: Prepared) -> WriteOutcome | Exception:
    query = "SELECT id, digest FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    found = _run(connection, query, *document.key).fetchone()
    id_, digest = found or (None, None)
    if digest == document.digest:
        return WriteOutcome.UNCHANGED
    taken = _taken(connection, document, id_)
    if taken is not None:
        return taken
    if id_ is None:
        statement = (
            "INSERT INTO documents (tenant, kb, ref, digest, state, source) "
            "VALUES (?, ?, ?, ?, ?, ?)"
        )
        row = _run(
            connection,
            statement,
            *document.key,
            document.digest,
            JournalState.ADDING,
            document.source,
        )
        _insert_fresh(connection, row.lastrowid, [node.node_id for node in document.nodes])
        return WriteOutcome.ADDED
    _begin_update(connection, document, id_)
    return WriteOutcome.UPDATED


def _begin_update(connection: sqlite3.Connection, document: Prepared, id_: int) -> None:
    rows = _run(connection, "SELECT node_id FROM nodes WHERE document = ?", id_).fetchall()
    old, new = {node_id for (node_id,) in rows}, {node.node_id for node in document.nodes}
    _insert_fresh(connection, id_, sorted(new - old))
    connection.executemany(
        "UPDATE nodes SET role = 'doomed' WHERE node_id = ?", [(gone,) for gone in old - new]
    )
    connection.executemany(
        "INSERT INTO redo VALUES (?, ?, ?)",
        [
            (id_, node_to_text(node), array("d", node.get_embedding()).tobytes())
            for node in document.nodes
        ],
    )
    statement = "UPDATE documents SET digest = ?, state = ?, source = ? WHERE id = ?"
    _run(connection, statement, document.digest, JournalState.UPDATING, document.source, id_)


def _insert_fresh(
    connection: sqlite3.Connection, document: int | None, node_ids: Sequence[str]
) -> None:
    rows = [(node_id, document) for node_id in node_ids]
    connection.executemany("INSERT INTO nodes VALUES (?, ?, 'fresh')", rows)


def _taken(
    connection: sqlite3.Connection, document: Prepared, id_: int | None
) -> DuplicateNodeError | None:
    """Why the document cannot be stored, if one of its node ids is another's."""
    query = (
        "SELECT tenant, kb, ref FROM nodes JOIN documents ON document = id "
        "WHERE node_id = ? AND id IS NOT ?"
    )
    for node in document.nodes:
        owner = _run(connection, query, node.node_id, id_).fetchone()
        if owner is not None:
            *place, ref = owner
            # What is outside the scope of the caller is not named.
            whose = f"document {ref!r}" if place == list(document.key[:2]) else "another scope"
            return DuplicateNodeError(
                f"the node id {node.node_id!r} of document {document.key.ref!r} is in use by "
                f"{whose}; nothing was overwritten: give the node another id",
                node.node_id,
            )
    return None


def _restored(text: str, embedding: object) -> BaseNode:
    vector = array("d")
    vector.frombytes(embedding if isinstance(embedding, bytes) else b"")
    return node_from_text(text).model_copy(update={"embedding": vector.tolist()})


def _id_of(connection: sqlite3.Connection, key: DocumentKey) -> object:
    query = "SELECT id FROM documents WHERE tenant = ? AND kb = ? AND ref = ?"
    found = _run(connection, query, *key).fetchone()
    return None if found is None else found[0]


def _run(connection: sqlite3.Connection, statement: str, *values: object) -> sqlite3.Cursor:
    return connection.execute(statement, values)
