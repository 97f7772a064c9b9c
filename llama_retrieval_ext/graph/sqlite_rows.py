"""`GraphRows`: a graph in one SQLite file, with durable transactions."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.graph.elements import Contents, Edge, EdgeId, GraphNode, Partition, to_json
from llama_retrieval_ext.query import ALLOWED_KEY
from llama_retrieval_ext.stores.embedded.closed_files import (
    ClosedFiles,
    check_database,
    copy_database,
)

# What a row says to those who see one of its passages: None for the row itself, otherwise a content
# as JSON, see `GraphNode.said`; `UNSAID` if these passages only name it as the end of an edge.
Said: TypeAlias = str | None
UNSAID: Final = ""
# The principals of the supports of rows, empty for everyone, with what the row says to them.
Restrictions: TypeAlias = dict[str | EdgeId, dict[frozenset[str], Said]]

FILE: Final = "graph.sqlite3"
FORMAT: Final = 1
_ENDS: Final = (
    "JOIN edges ON edges.key = edge JOIN nodes a ON a.key = edges.source "
    "JOIN nodes b ON b.key = edges.target"
)
_APPLICATION: Final = 0x4C524758  # "LRGX", in the file's header
_SCHEMA: Final = """
CREATE TABLE partitions (
    key INTEGER PRIMARY KEY, tenant_id TEXT, kb_id TEXT
);
CREATE TABLE nodes (
    key INTEGER PRIMARY KEY, partition INTEGER NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL,
    name TEXT NOT NULL, aliases TEXT, text TEXT, properties TEXT NOT NULL, embedding BLOB
);
CREATE TABLE edges (
    key INTEGER PRIMARY KEY, source INTEGER NOT NULL, type TEXT NOT NULL, target INTEGER NOT NULL,
    weight REAL NOT NULL, properties TEXT NOT NULL, UNIQUE (source, type, target)
);
CREATE TABLE node_sources (
    source TEXT NOT NULL, node INTEGER NOT NULL, allowed TEXT NOT NULL, said TEXT,
    PRIMARY KEY (source, node)
) WITHOUT ROWID;
CREATE INDEX node_sources_by_node ON node_sources (node, allowed);
CREATE INDEX node_sources_of_some ON node_sources (node) WHERE allowed <> '[]';
CREATE TABLE edge_sources (
    source TEXT NOT NULL, edge INTEGER NOT NULL, allowed TEXT NOT NULL, said TEXT,
    PRIMARY KEY (source, edge)
) WITHOUT ROWID;
CREATE INDEX edge_sources_by_edge ON edge_sources (edge, allowed);
CREATE INDEX edge_sources_of_some ON edge_sources (edge) WHERE allowed <> '[]';
"""


@dataclass
class Doomed:
    """Rows to delete: keys of nodes, and of edges with the keys of their ends and their type."""

    nodes: set[int] = field(default_factory=set)
    edges: dict[int, tuple[int, str, int]] = field(default_factory=dict)


class GraphRows:
    """Tables of nodes, edges, and the sources that support them. Not thread-safe.

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

    def partitions(self) -> Iterator[tuple[int, Partition]]:
        """Yield every partition with its key."""
        for key, tenant_id, kb_id in self._read("SELECT key, tenant_id, kb_id FROM partitions"):
            yield key, Partition(tenant_id, kb_id)

    def add_partition(self, key: int, partition: Partition) -> None:
        """Write a partition."""
        self._db.execute("INSERT INTO partitions VALUES (?, ?, ?)", (key, *partition))

    def last_key(self) -> int:
        """Return the greatest key of a node; 0 if there is none."""
        (key,) = self._read("SELECT coalesce(max(key), 0) FROM nodes").fetchone()
        return int(key)

    def entries(self) -> sqlite3.Cursor:
        """Return key, partition, id, label, name, aliases and is-passage flag of every node."""
        return self._read(
            "SELECT key, partition, id, label, name, aliases, text IS NOT NULL FROM nodes"
        )

    def edges(self) -> sqlite3.Cursor:
        """Return the keys of both ends, type, weight and properties (or None) of every edge."""
        return self._read(
            "SELECT source, type, target, weight, nullif(properties, '{}') FROM edges"
        )

    def nodes(self, keys: Sequence[int], *, embeddings: bool = True) -> dict[int, GraphNode]:
        """Return nodes by key, with or without their embeddings."""
        embedding = "embedding" if embeddings else "NULL"
        rows = self._read(
            f"SELECT key, id, label, name, properties, text, {embedding} FROM nodes "  # noqa: S608
            "WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )
        return {key: _node(*row) for key, *row in rows}

    def put_nodes(self, rows: Iterable[tuple[int, int, GraphNode]]) -> None:
        """Write nodes, each with its key and the key of its partition."""
        self._db.executemany(
            "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *(key, partition, node.id, node.label, node.name),
                    "\0".join(node.names[1:]) or None,
                    *(node.text, to_json(node.properties), _packed(node.embedding)),
                )
                for key, partition, node in rows
            ),
        )

    def put_edges(self, rows: Iterable[tuple[int, int, Edge]]) -> None:
        """Write edges, each with the keys of its ends; a stored edge keeps its key."""
        self._db.executemany(
            "INSERT INTO edges (source, type, target, weight, properties) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET weight = excluded.weight, properties = excluded.properties",
            ((s, edge.type, t, edge.weight, edge.payload) for s, t, edge in rows),
        )

    def support(
        self,
        nodes: Iterable[tuple[str, Sequence[str], Said, int]],
        edges: Iterable[tuple[str, Sequence[str], Said, int, str, int]],
    ) -> None:
        """Record sources of nodes (by key) and of edges (by the keys of their ends and type).

        With each source, the principals who may see what it supports, empty for everyone, and what
        it says.
        """
        self._db.executemany(
            "INSERT INTO node_sources (source, allowed, said, node) VALUES (?, ?, ?, ?) "
            # What a source wrote of a node stays, with its principals, if it names it as an end.
            "ON CONFLICT DO UPDATE SET allowed = excluded.allowed, said = excluded.said "
            "WHERE excluded.said IS NOT '' OR said IS ''",
            ((source, json.dumps(allowed), *row) for source, allowed, *row in nodes),
        )
        self._db.executemany(
            "INSERT INTO edge_sources (source, allowed, said, edge) SELECT ?, ?, ?, key FROM edges "
            "WHERE source = ? AND type = ? AND target = ? "
            "ON CONFLICT DO UPDATE SET allowed = excluded.allowed, said = excluded.said",
            ((source, json.dumps(allowed), *row) for source, allowed, *row in edges),
        )

    def keep_said(
        self, nodes: Mapping[int, GraphNode], edges: Iterable[tuple[tuple[int, str, int], Edge]]
    ) -> None:
        """Record what sources say before nodes get this content, and edges lose theirs."""
        before = self.nodes(list(nodes))
        self._db.executemany(
            "UPDATE node_sources SET said = ? WHERE node = ? AND said IS NULL",
            ((node.said, key) for key, node in before.items() if node != nodes[key]),
        )
        self._db.executemany(
            "UPDATE edge_sources SET said = ? WHERE said IS NULL AND edge = "
            "(SELECT key FROM edges WHERE source = ? AND type = ? AND target = ?)",
            ((edge.payload, *ends) for ends, edge in edges),
        )

    def outdated(
        self, nodes: Sequence[int], edges: Sequence[int]
    ) -> tuple[dict[int, GraphNode], dict[tuple[int, str, int], Edge]]:
        """Return what a source says of each of these rows if no source says what is stored.

        The caller writes it; nodes by key, and edges by the keys of their ends and type.
        """
        unsaid = (
            "SELECT {0}, max(said) AS said FROM {0}_sources WHERE {0} IN "
            "(SELECT value FROM json_each(?)) GROUP BY {0} HAVING sum(said IS NULL) = 0"
        )
        said = dict(self._read(unsaid.format("node"), (json.dumps(nodes),)))
        before = self.nodes(list(said))
        changed = {key: node.saying(said[key]) for key, node in before.items()}
        links = self._read(
            f"WITH unsaid AS ({unsaid.format('edge')}) SELECT edge, said, edges.source, type, "  # noqa: S608
            f"edges.target, a.id, b.id FROM unsaid {_ENDS}",
            (json.dumps(edges),),
        ).fetchall()
        for table, rows in (("node", said.items()), ("edge", [row[:2] for row in links])):
            self._db.executemany(
                f"UPDATE {table}_sources SET said = NULL "  # noqa: S608
                f"WHERE {table} = ? AND said = ? AND said <> ''",
                rows,
            )
        return (
            {key: node for key, node in changed.items() if node != before[key]},
            {
                (s, type_, t): Edge.of(a, type_, b, json.loads(payload))
                for _, payload, s, type_, t, a, b in links
            },
        )

    def restrictions(self, nodes: Iterable[int], edges: Iterable[int]) -> dict[int, Restrictions]:
        """Return who may see the nodes and edges with these keys, by the key of their partition."""
        given = "SELECT value FROM json_each(?)"
        return self._restrictions(given, (json.dumps([*nodes]),), (json.dumps([*edges]),))

    def all_restrictions(self) -> dict[int, Restrictions]:
        """Return who may see each row with a support that is not for everyone."""
        return self._restrictions("SELECT {0} FROM {0}_sources WHERE allowed <> '[]'", (), ())

    def withdraw(
        self, sources: Sequence[str], partitions: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Remove the support of sources in partitions; return the keys of its nodes and edges."""
        visible = set(partitions)
        # A source is a parameter of its own: SQLite cuts strings in JSON at a NUL character.
        of_source = (
            "SELECT {0}, partition FROM {0}_sources JOIN {0}s ON {0}s.key = {0} {1} "
            "WHERE {0}_sources.source = ?"
        )
        to_node = "JOIN nodes ON nodes.key = edges.source"
        nodes, edges = (
            [
                (source, key)
                for source in dict.fromkeys(sources)
                for key, partition in self._read(statement, (source,))
                if partition in visible
            ]
            for statement in (of_source.format("node", ""), of_source.format("edge", to_node))
        )
        self._db.executemany("DELETE FROM node_sources WHERE source = ? AND node = ?", nodes)
        self._db.executemany("DELETE FROM edge_sources WHERE source = ? AND edge = ?", edges)
        return [key for _, key in nodes], [key for _, key in edges]

    def unsupported(self, nodes: Sequence[int], edges: Sequence[int]) -> Doomed:
        """Return those of the rows with these keys that have no support."""
        statement = (
            "SELECT {1} FROM {0}s WHERE key IN (SELECT value FROM json_each(?)) "
            "AND NOT EXISTS (SELECT 1 FROM {0}_sources WHERE {0} = key)"
        )
        lost = self._read(statement.format("node", "key"), (json.dumps(nodes),))
        cut = self._read(
            statement.format("edge", "key, source, type, target"), (json.dumps(edges),)
        )
        return Doomed({key for (key,) in lost}, {key: (s, type_, t) for key, s, type_, t in cut})

    def sources(self) -> set[str]:
        """Return the sources of all nodes."""
        return {source for (source,) in self._read("SELECT DISTINCT source FROM node_sources")}

    def said_by(self, sources: Sequence[str]) -> dict[str, Contents]:
        """Return the rows that each source supports, with embeddings."""
        nodes = (
            "SELECT allowed, said, id, label, name, properties, text, embedding FROM node_sources "
            "JOIN nodes ON nodes.key = node WHERE source = ? AND said IS NOT '' ORDER BY key"
        )
        edges = (
            "SELECT allowed, a.id, type, b.id, coalesce(said, edges.properties) "  # noqa: S608
            f"FROM edge_sources {_ENDS} WHERE edge_sources.source = ? ORDER BY edges.key"
        )
        return {
            source: Contents(
                [_said_node(*node) for node in self._read(nodes, (source,))],
                [_said_edge(*edge) for edge in self._read(edges, (source,))],
            )
            for source in sources
        }

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

    def edge_keys(self, ends: Iterable[tuple[int, str, int]]) -> dict[int, tuple[int, str, int]]:
        """Return the edges with these ends and types, by key."""
        found = {}
        for identity in ends:
            for (key,) in self._read(
                "SELECT key FROM edges WHERE source = ? AND type = ? AND target = ?", identity
            ):
                found[key] = identity
        return found

    def remove(self, nodes: Iterable[int], edges: Iterable[int]) -> None:
        """Delete rows and their support."""
        for statement, keys in (
            ("DELETE FROM edge_sources WHERE edge = ?", edges),
            ("DELETE FROM edges WHERE key = ?", edges),
            ("DELETE FROM node_sources WHERE node = ?", nodes),
            ("DELETE FROM nodes WHERE key = ?", nodes),
        ):
            self._db.executemany(statement, ((key,) for key in keys))

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
        if version > FORMAT:
            raise StoreFormatError(
                f"{self._path} has format {version}, and this version reads {FORMAT}; upgrade "
                "llama-retrieval-ext"
            )
        # WAL and FULL: commits survive a crash and a power failure.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if not tables:
            self._db.executescript(
                f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; "
                f"PRAGMA user_version = {FORMAT}; COMMIT;"
            )

    def _restrictions(
        self, keys: str, nodes: Sequence[object], edges: Sequence[object]
    ) -> dict[int, Restrictions]:
        """Return what rows, whose keys a statement selects, say to whom, by partition."""
        # Of sources with the same principals, SQLite returns the columns of the maximum.
        best = "CASE WHEN said IS NULL THEN '2' WHEN said = '' THEN '0' ELSE '1' || said END"
        support = f"SELECT {{1}}, allowed, said, max({best}) FROM {{0}}_sources {{2}} "  # noqa: S608
        support += f"WHERE {{0}} IN ({keys}) GROUP BY {{0}}, allowed"
        join = "JOIN nodes ON nodes.key = node"
        found: dict[int, Restrictions] = {}
        own = self._read(support.format("node", "partition, id", join), nodes)
        links = self._read(support.format("edge", "a.partition, a.id, type, b.id", _ENDS), edges)
        rows = chain(own, ((key, (a, type_, b), *rest) for key, a, type_, b, *rest in links))
        for key, id_, allowed, said, _ in rows:
            found.setdefault(key, {}).setdefault(id_, {})[frozenset(json.loads(allowed))] = said
        return found

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


def _said_node(allowed: str, said: Said, *node: Any) -> GraphNode:  # noqa: ANN401 - columns of SQLite
    made = _node(*node)
    made = made if said is None else made.saying(said)
    names = json.loads(allowed)
    return replace(made, properties={**made.properties, ALLOWED_KEY: names}) if names else made


def _said_edge(allowed: str, source: str, type_: str, target: str, payload: str) -> Edge:
    names = {ALLOWED_KEY: listed} if (listed := json.loads(allowed)) else {}
    return Edge.of(source, type_, target, {**json.loads(payload), **names})


def _packed(embedding: Sequence[float] | None) -> bytes | None:
    return None if embedding is None else np.asarray(embedding, dtype="<f4").tobytes()


def _node(
    id_: str, label: str, name: str, properties: str, text: str | None, embedding: bytes | None
) -> GraphNode:
    vector = None if embedding is None else np.frombuffer(embedding, dtype="<f4").tolist()
    return GraphNode(id_, label, name, json.loads(properties), text, vector)
