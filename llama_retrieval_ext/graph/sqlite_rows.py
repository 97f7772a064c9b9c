"""`GraphRows`: what documents claim of nodes and edges, in one SQLite file."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.graph.elements import Contents, Edge, EdgeId, GraphNode, Partition, to_json
from llama_retrieval_ext.graph.validity import MARK
from llama_retrieval_ext.scope import ALLOWED_KEY
from llama_retrieval_ext.stores.embedded.closed_files import (
    ClosedFiles,
    check_database,
    copy_database,
)
from llama_retrieval_ext.stores.embedded.files import DirectoryLock

EdgeKey: TypeAlias = tuple[int, str, int]
"""Key of the source, type, and key of the target."""

FILE: Final = "graph.sqlite3"
FORMAT: Final = 3
_APPLICATION: Final = 0x4C524758  # "LRGX", in the file's header
# A claim is what one document writes of a row; the greatest key is the latest. One that only names
# a node, as the end of an edge, has a negative key. `allowed` has a line for each principal; it is
# empty for everyone.
_SCHEMA: Final = """
CREATE TABLE partitions (key INTEGER PRIMARY KEY, tenant_id TEXT, kb_id TEXT);
CREATE TABLE nodes (key INTEGER PRIMARY KEY, partition INTEGER NOT NULL, id TEXT NOT NULL);
CREATE TABLE node_claims (
    key INTEGER PRIMARY KEY, document TEXT NOT NULL, node INTEGER NOT NULL, allowed TEXT NOT NULL,
    label TEXT, name TEXT, aliases TEXT, text TEXT, properties TEXT, embedding BLOB,
    UNIQUE (document, node)
);
CREATE INDEX node_claims_by_node ON node_claims (node, allowed);
CREATE INDEX node_claims_of_some ON node_claims (node) WHERE allowed <> '';
CREATE INDEX node_facts ON node_claims (node) WHERE instr(document, char(1));
CREATE TABLE edge_claims (
    source INTEGER NOT NULL, type TEXT NOT NULL, target INTEGER NOT NULL, document TEXT NOT NULL,
    key INTEGER NOT NULL, allowed TEXT NOT NULL, weight REAL NOT NULL, properties TEXT NOT NULL,
    PRIMARY KEY (source, type, target, document)
) WITHOUT ROWID;
CREATE INDEX edge_claims_by_document ON edge_claims (document);
CREATE INDEX edge_claims_of_some ON edge_claims (source) WHERE allowed <> '';
CREATE TABLE functional (type TEXT PRIMARY KEY);
CREATE TABLE last_claim (key INTEGER NOT NULL);
INSERT INTO last_claim VALUES (0);
"""
_KEYS: Final = "(SELECT value FROM json_each(?))"
# Claims of a document, and of each fact of it, whose names begin with it.
_OF_DOCUMENT: Final = (
    f"(document = ?1 OR document > ?1 || '{MARK}' AND document < ?1 || '{chr(ord(MARK) + 1)}')"
)
# Edges in one statement; SQLite allows 32,766 parameters.
_VALUES: Final = 1_000


class NodeClaim(NamedTuple):
    """What a document writes of a node; only its id for the end of an edge."""

    key: int
    document: str
    node: int
    allowed: Sequence[str]
    content: GraphNode


class EdgeClaim(NamedTuple):
    """What a document writes of an edge."""

    ends: EdgeKey
    document: str
    key: int
    allowed: Sequence[str]
    content: Edge


class GraphRows:
    """Tables of nodes, and of what documents claim of nodes and edges. Not thread-safe.

    Args:
        path: The file, created if missing; None for memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._closed_files = None if path is None else ClosedFiles(path, lambda: [path])
        self.was_closed = path is None or ClosedFiles(path, list).check() or not path.exists()
        with self._errors():
            self._db = sqlite3.connect(
                ":memory:" if path is None else path, check_same_thread=False, isolation_level=None
            )
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the block, or none."""
        self._forget_checksum()
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # Reading

    def partitions(self) -> Iterator[tuple[int, Partition]]:
        """Yield every partition with its key."""
        for key, tenant_id, kb_id in self._read("SELECT key, tenant_id, kb_id FROM partitions"):
            yield key, Partition(tenant_id, kb_id)

    def last_keys(self) -> tuple[int, int]:
        """Return the greatest key of a node and of a claim; 0 if there is none."""
        (keys,) = self._read(
            "SELECT coalesce((SELECT max(key) FROM nodes), 0), key FROM last_claim"
        )
        return int(keys[0]), int(keys[1])

    def nodes(self) -> sqlite3.Cursor:
        """Return key, key of the partition, and id of every node."""
        return self._read("SELECT key, partition, id FROM nodes")

    def entries(self) -> sqlite3.Cursor:
        """Return node, key, label, name, aliases and is-passage flag of claims, greatest last."""
        return self._read(
            "SELECT node, key, label, name, aliases, text IS NOT NULL FROM node_claims "
            "WHERE key > 0 ORDER BY key"
        )

    def entry_claims(self, nodes: Iterable[int] | None) -> sqlite3.Cursor:
        """Return principals and `entries`, by node, the greatest first.

        Of claims with the same principals, only the greatest is returned. Without keys of nodes it
        returns those that not everyone sees.
        """
        keys = "(SELECT node FROM node_claims WHERE allowed <> '')" if nodes is None else _KEYS
        return self._read(
            "WITH greatest AS (SELECT max(key) AS key FROM node_claims "  # noqa: S608
            f"WHERE node IN {keys} GROUP BY node, allowed) "
            "SELECT allowed, node, key, label, name, aliases, text IS NOT NULL "
            "FROM greatest JOIN node_claims USING (key) ORDER BY node, key DESC",
            () if nodes is None else (json.dumps([*nodes]),),
        )

    def edges(self, keys: Sequence[EdgeKey] | None) -> Iterator[tuple[Any, ...]]:
        """Yield source, type, target, weight, properties (or None), principals and key of claims.

        The claims of an edge come one after the other. None are all edges.
        """
        for at in range(0, 1 if keys is None else len(keys), _VALUES):
            chunk = () if keys is None else keys[at : at + _VALUES]
            values = ", ".join(["(?, ?, ?)"] * len(chunk))
            chosen = f"WHERE (source, type, target) IN (VALUES {values})" if chunk else ""
            yield from self._read(
                "SELECT source, type, target, weight, nullif(properties, '{}'), allowed, key "  # noqa: S608
                f"FROM edge_claims {chosen} ORDER BY source, type, target",
                [*chain.from_iterable(chunk)],
            )

    def contents(self, ids: Mapping[int, str], *, embeddings: bool = True) -> dict[int, GraphNode]:
        """Return what claims say of nodes, by the key of the claim; ``ids`` by it, too."""
        embedding = "embedding" if embeddings else "NULL"
        rows = self._read(
            f"SELECT key, label, name, properties, text, {embedding} FROM node_claims "  # noqa: S608
            f"WHERE key IN {_KEYS}",
            (json.dumps([*ids]),),
        )
        return {key: _node(ids[key], *row) for key, *row in rows}

    def dated_nodes(self) -> sqlite3.Cursor:
        """Return the key of each node with facts."""
        return self._read("SELECT DISTINCT node FROM node_claims WHERE instr(document, char(1))")

    def properties_of(self, nodes: Iterable[int]) -> sqlite3.Cursor:
        """Return node, principals and properties of the claims of nodes, the greatest first."""
        return self._read(
            "SELECT node, allowed, properties FROM node_claims "  # noqa: S608
            f"WHERE node IN {_KEYS} AND key > 0 ORDER BY node, key DESC",
            (json.dumps([*nodes]),),
        )

    def functional(self) -> frozenset[str]:
        """Return the relations that have one value at a time."""
        return frozenset(type_ for (type_,) in self._read("SELECT type FROM functional"))

    def set_functional(self, relations: Iterable[str]) -> None:
        """Replace the relations that have one value at a time."""
        self._db.execute("DELETE FROM functional")
        self._db.executemany("INSERT INTO functional VALUES (?)", ((type_,) for type_ in relations))

    def sources(self) -> set[str]:
        """Return the documents with claims of nodes."""
        documents = self._read("SELECT DISTINCT document FROM node_claims")
        return {document.partition(MARK)[0] for (document,) in documents}

    def contents_of(self, document: str) -> Contents:
        """Return what a document writes, with embeddings, without the ends that it only names."""
        nodes = self._read(
            "SELECT allowed, id, label, name, properties, text, embedding FROM node_claims "  # noqa: S608
            f"JOIN nodes ON nodes.key = node WHERE {_OF_DOCUMENT} AND node_claims.key > 0 "
            "ORDER BY node_claims.key",
            (document,),
        )
        edges = self._read(
            "SELECT allowed, a.id, type, b.id, properties FROM edge_claims "  # noqa: S608
            f"JOIN nodes a ON a.key = source JOIN nodes b ON b.key = target WHERE {_OF_DOCUMENT} "
            "ORDER BY edge_claims.key",
            (document,),
        )
        return Contents(
            [
                replace(node, properties={**node.properties, **_restriction(allowed)})
                for allowed, node in ((allowed, _node(*row)) for allowed, *row in nodes)
            ],
            [
                Edge.of(source, type_, target, {**json.loads(payload), **_restriction(allowed)})
                for allowed, source, type_, target, payload in edges
            ],
        )

    # Writing

    def add_partition(self, key: int, partition: Partition) -> None:
        """Write a partition."""
        self._db.execute("INSERT INTO partitions VALUES (?, ?, ?)", (key, *partition))

    def add_node(self, key: int, partition: int, id_: str) -> None:
        """Write a node; it has no claim yet."""
        self._db.execute("INSERT INTO nodes VALUES (?, ?, ?)", (key, partition, id_))

    def claim_nodes(self, claims: Iterable[NodeClaim]) -> None:
        """Write claims of nodes; each replaces the one that its document made of the node."""
        self._db.executemany(
            "INSERT OR REPLACE INTO node_claims VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(key, document, node, "\n".join(allowed), content.label, content.name),
                    "\0".join(content.names[1:]) or None,
                    *(content.text, to_json(content.properties)),
                    None
                    if content.embedding is None
                    else np.asarray(content.embedding, dtype="<f4").tobytes(),
                )
                for key, document, node, allowed, content in claims
            ),
        )

    def name_nodes(self, claims: Iterable[tuple[int, str, int, Sequence[str]]]) -> None:
        """Write that documents name nodes, by negative keys, unless they describe the nodes.

        A claim is its key, document, node and principals.
        """
        self._db.executemany(
            "INSERT INTO node_claims (key, document, node, allowed) SELECT ?1, ?2, ?3, ?4 "
            "WHERE ?2 <> '' OR NOT EXISTS (SELECT 1 FROM node_claims WHERE node = ?3) "
            "ON CONFLICT (document, node) DO UPDATE SET allowed = excluded.allowed WHERE key < 0",
            ((*claim, "\n".join(allowed)) for *claim, allowed in claims),
        )

    def claim_edges(self, claims: Sequence[EdgeClaim]) -> None:
        """Write claims of edges; each replaces the one that its document made of the edge.

        A fact replaces what the document wrote of the edge without dates, and no other fact.
        """
        facts = [(*c.ends, c.document.partition(MARK)[0]) for c in claims if MARK in c.document]
        self._db.executemany(
            "DELETE FROM edge_claims WHERE source = ? AND type = ? AND target = ? AND document = ?",
            facts,
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO edge_claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (*ends, document, key, "\n".join(allowed), edge.weight, edge.payload)
                for ends, document, key, allowed, edge in claims
            ),
        )

    def set_last_claim(self, key: int) -> None:
        """Record the greatest key of a claim."""
        self._db.execute("UPDATE last_claim SET key = ?", (key,))

    def delete_claims(
        self, document: str, partitions: Collection[int]
    ) -> tuple[list[tuple[int, int, str]], list[tuple[EdgeKey, int, EdgeId]]]:
        """Delete the claims of a document in partitions.

        Return key, partition and id of their nodes, and of their edges.
        """
        nodes = self._read(
            "SELECT DISTINCT node, partition, id FROM node_claims JOIN nodes "  # noqa: S608
            f"ON nodes.key = node WHERE {_OF_DOCUMENT}",
            (document,),
        )
        deleted_nodes = [row for row in nodes if row[1] in partitions]
        edges = self._read(
            "SELECT source, type, target, a.partition, a.id, b.id FROM edge_claims "  # noqa: S608
            f"JOIN nodes a ON a.key = source JOIN nodes b ON b.key = target WHERE {_OF_DOCUMENT}",
            (document,),
        )
        deleted_edges = [
            ((source, type_, target), partition, (a, type_, b))
            for source, type_, target, partition, a, b in edges
            if partition in partitions
        ]
        self._db.executemany(
            f"DELETE FROM node_claims WHERE {_OF_DOCUMENT} AND node = ?2",  # noqa: S608
            ((document, key) for key, _, _ in deleted_nodes),
        )
        self._db.executemany(
            f"DELETE FROM edge_claims WHERE {_OF_DOCUMENT} AND source = ?2 AND type = ?3 "  # noqa: S608
            "AND target = ?4",
            ((document, *key) for key, _, _ in deleted_edges),
        )
        return deleted_nodes, deleted_edges

    def delete_nodes(self, keys: Iterable[int]) -> None:
        """Delete nodes, whoever claims them."""
        rows = [(key,) for key in keys]
        self._db.executemany("DELETE FROM node_claims WHERE node = ?", rows)
        self._db.executemany("DELETE FROM nodes WHERE key = ?", rows)

    def delete_edges(self, keys: Iterable[EdgeKey]) -> None:
        """Delete edges, whoever claims them."""
        self._db.executemany(
            "DELETE FROM edge_claims WHERE source = ? AND type = ? AND target = ?", keys
        )

    # The file

    def load(self, source: Path) -> None:
        """Replace all rows by the rows of another file, which may be open elsewhere."""
        self._forget_checksum()
        with self._errors():
            copy_database(source, self._db)

    def compact(self) -> int:
        """Rewrite the file without the space of deleted rows; return the bytes freed."""
        if self._path is None:
            return 0
        before = self._size()
        self._forget_checksum()
        with self._errors():
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return max(0, before - self._size())

    def close(self) -> None:
        """Write the log into the file and close it."""
        self._db.close()
        if self._closed_files is not None:
            self._closed_files.record()

    def _forget_checksum(self) -> None:
        if self._closed_files is not None:
            self._closed_files.forget()

    def _size(self) -> int:
        files = [Path(f"{self._path}{suffix}") for suffix in ("", "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    def _prepare(self) -> None:
        if not self.was_closed:
            check_database(self._db, f"the graph {self._path}")
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != _APPLICATION:
            raise StoreFormatError(f"{self._path} is no graph of this package; name another folder")
        if tables and version != FORMAT:
            advice = "upgrade llama-retrieval-ext" if version > FORMAT else "write the graph again"
            raise StoreFormatError(
                f"{self._path} has format {version}, and this version reads {FORMAT}; {advice}"
            )
        # WAL and FULL: commits survive a crash and a power failure.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if not tables:
            self._db.executescript(
                f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; "
                f"PRAGMA user_version = {FORMAT}; COMMIT;"
            )

    def _read(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        with self._errors():
            return self._db.execute(statement, values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"a text has half a character in it: {error}") from error
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise StoreUnavailableError(
                    f"the graph {self._path} cannot be used: {error}"
                ) from error
            raise StoreFormatError(f"the graph {self._path} is damaged: {error}") from error


def _restriction(allowed: str) -> dict[str, list[str]]:
    return {ALLOWED_KEY: allowed.split("\n")} if allowed else {}


def _node(
    id_: str, label: str, name: str, properties: str, text: str | None, embedding: bytes | None
) -> GraphNode:
    vector = None if embedding is None else np.frombuffer(embedding, dtype="<f4").tolist()
    return GraphNode(id_, label, name, json.loads(properties), text, vector)


def locked(directory: Path) -> DirectoryLock:
    """Create the directory of a graph if missing, lock it, and return the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(directory)
    except StoreUnavailableError as error:
        raise StoreUnavailableError(
            f"the graph {directory} is open already, perhaps in another process; close it there, "
            "or use neo4j://, which several can share; in one program, pass on the open graph"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"{directory} cannot be a graph's folder: {error}") from error
