"""`GraphRows`: a graph in one SQLite file, with durable transactions."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.graph.elements import Contents, Edge, EdgeId, GraphNode, Partition, to_json
from llama_retrieval_ext.query import ALLOWED_KEY
from llama_retrieval_ext.stores.embedded.files import DirectoryLock, copy_database

# The principals who may see rows, by node id or edge; None for everyone.
Restrictions: TypeAlias = dict[str | EdgeId, frozenset[str] | None]
_NOBODY: Final[frozenset[str]] = frozenset()

FILE: Final = "graph.sqlite3"
FORMAT: Final = 1
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
    source TEXT NOT NULL, node INTEGER NOT NULL, allowed TEXT NOT NULL, PRIMARY KEY (source, node)
) WITHOUT ROWID;
CREATE INDEX node_sources_by_node ON node_sources (node, allowed);
CREATE INDEX node_sources_of_some ON node_sources (node) WHERE allowed <> '[]';
CREATE TABLE edge_sources (
    source TEXT NOT NULL, edge INTEGER NOT NULL, allowed TEXT NOT NULL, PRIMARY KEY (source, edge)
) WITHOUT ROWID;
CREATE INDEX edge_sources_by_edge ON edge_sources (edge, allowed);
CREATE INDEX edge_sources_of_some ON edge_sources (edge) WHERE allowed <> '[]';
"""


@dataclass
class Doomed:
    """Rows to delete: keys of nodes, and of edges with the keys of their ends and their type."""

    nodes: set[int] = field(default_factory=set)
    edges: dict[int, tuple[int, str, int]] = field(default_factory=dict)
    # Keys of the nodes and edges, these and others, that have lost a support.
    withdrawn: tuple[Sequence[int], Sequence[int]] = ((), ())


class GraphRows:
    """Tables of nodes, edges, and the sources that support them. Not thread-safe.

    Args:
        path: The file, created if missing; None for memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
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
        nodes: Iterable[tuple[str, Sequence[str], int]],
        edges: Iterable[tuple[str, Sequence[str], int, str, int]],
    ) -> None:
        """Record sources of nodes (by key) and of edges (by the keys of their ends and type).

        With each source, the principals who may see what it supports; empty for everyone.
        """
        self._db.executemany(
            "INSERT INTO node_sources (source, allowed, node) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET allowed = excluded.allowed",
            ((source, json.dumps(allowed), key) for source, allowed, key in nodes),
        )
        self._db.executemany(
            "INSERT INTO edge_sources (source, allowed, edge) SELECT ?, ?, key FROM edges "
            "WHERE source = ? AND type = ? AND target = ? "
            "ON CONFLICT DO UPDATE SET allowed = excluded.allowed",
            ((source, json.dumps(allowed), *ends) for source, allowed, *ends in edges),
        )

    def restrictions(self, nodes: Iterable[int], edges: Iterable[int]) -> dict[int, Restrictions]:
        """Return who may see the nodes and edges with these keys, by the key of their partition."""
        return _united(
            self._read(_NODE_SUPPORT + _GIVEN, (json.dumps(list(nodes)),)),
            self._read(_EDGE_SUPPORT + _GIVEN, (json.dumps(list(edges)),)),
        )

    def all_restrictions(self) -> dict[int, Restrictions]:
        """Return who may see each row with a support that is not for everyone."""
        nodes, edges = _NODE_SUPPORT + _RESTRICTED_NODES, _EDGE_SUPPORT + _RESTRICTED_EDGES
        return _united(self._read(nodes), self._read(edges))

    def withdraw(
        self, sources: Sequence[str], partitions: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Remove the support of sources in partitions; return the keys of its nodes and edges."""
        visible = set(partitions)
        nodes, edges = (
            [
                (source, key)
                for source in dict.fromkeys(sources)
                for key, partition in self._read(statement, (source,))
                if partition in visible
            ]
            for statement in (_NODES_OF, _EDGES_OF)
        )
        self._db.executemany("DELETE FROM node_sources WHERE source = ? AND node = ?", nodes)
        self._db.executemany("DELETE FROM edge_sources WHERE source = ? AND edge = ?", edges)
        return [key for _, key in nodes], [key for _, key in edges]

    def unsupported(self, nodes: Sequence[int], edges: Sequence[int]) -> Doomed:
        """Return those of the rows with these keys that have no support."""
        return Doomed(
            {key for (key,) in self._read(_UNSUPPORTED_NODES, (json.dumps(nodes),))},
            {
                key: (source, type_, target)
                for key, source, type_, target in self._read(
                    _UNSUPPORTED_EDGES, (json.dumps(edges),)
                )
            },
            (nodes, edges),
        )

    def said_by(self, sources: Sequence[str]) -> dict[str, Contents]:
        """Return the rows that each source supports, with embeddings."""
        return {
            source: Contents(
                [_said_node(*node) for node in self._read(_SAID_NODES, (source,))],
                [_said_edge(*edge) for edge in self._read(_SAID_EDGES, (source,))],
            )
            for source in sources
        }

    def load(self, source: Path) -> None:
        """Replace all rows by the rows of another file, which may be open elsewhere."""
        with self._errors():
            copy_database(source, self._db)

    def compact(self) -> int:
        """Rewrite the file without the space of deleted rows; return the bytes freed."""
        if self._path is None:
            return 0
        before = self._size()
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

    def _size(self) -> int:
        files = [Path(f"{self._path}{suffix}") for suffix in ("", "-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    def _prepare(self) -> None:
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


# A source is a parameter of its own: SQLite cuts strings in JSON at a NUL character.
_NODES_OF: Final = (
    "SELECT node, partition FROM node_sources JOIN nodes ON nodes.key = node WHERE source = ?"
)
_EDGES_OF: Final = (
    "SELECT edge, partition FROM edge_sources JOIN edges ON edges.key = edge "
    "JOIN nodes ON nodes.key = edges.source WHERE edge_sources.source = ?"
)
_UNSUPPORTED_NODES: Final = (
    "SELECT key FROM nodes WHERE key IN (SELECT value FROM json_each(?)) "
    "AND NOT EXISTS (SELECT 1 FROM node_sources WHERE node = key)"
)
_UNSUPPORTED_EDGES: Final = (
    "SELECT key, source, type, target FROM edges WHERE key IN (SELECT value FROM json_each(?)) "
    "AND NOT EXISTS (SELECT 1 FROM edge_sources WHERE edge = key)"
)
_SAID_NODES: Final = (
    "SELECT allowed, id, label, name, properties, text, embedding FROM node_sources "
    "JOIN nodes ON nodes.key = node WHERE source = ? ORDER BY key"
)
_SAID_EDGES: Final = (
    "SELECT allowed, a.id, type, b.id, weight, edges.properties FROM edge_sources "
    "JOIN edges ON edges.key = edge JOIN nodes a ON a.key = edges.source "
    "JOIN nodes b ON b.key = edges.target "
    "WHERE edge_sources.source = ? ORDER BY edges.key"
)


_NODE_SUPPORT: Final = (
    "SELECT DISTINCT partition, id, allowed FROM node_sources JOIN nodes ON nodes.key = node "
    "WHERE node IN "
)
_EDGE_SUPPORT: Final = (
    "SELECT DISTINCT a.partition, a.id, type, b.id, allowed FROM edge_sources "
    "JOIN edges ON edges.key = edge JOIN nodes a ON a.key = edges.source "
    "JOIN nodes b ON b.key = edges.target WHERE edge IN "
)
_RESTRICTED_NODES: Final = "(SELECT node FROM node_sources WHERE allowed <> '[]')"
_RESTRICTED_EDGES: Final = "(SELECT edge FROM edge_sources WHERE allowed <> '[]')"
_GIVEN: Final = "(SELECT value FROM json_each(?))"


def _united(nodes: sqlite3.Cursor, edges: sqlite3.Cursor) -> dict[int, Restrictions]:
    """Return the principals of all supports of each row; None if one is for everyone."""
    found: dict[int, Restrictions] = {}
    rows = chain(nodes, ((key, tuple(ends), allowed) for key, *ends, allowed in edges))
    for key, id_, allowed in rows:
        own = found.setdefault(key, {})
        names, before = frozenset(json.loads(allowed)), own.get(id_, _NOBODY)
        own[id_] = before | names if before is not None and names else None
    return found


def _said_node(allowed: str, *node: Any) -> GraphNode:  # noqa: ANN401 - columns of SQLite
    made = _node(*node)
    names = json.loads(allowed)
    return replace(made, properties={**made.properties, ALLOWED_KEY: names}) if names else made


def _said_edge(allowed: str, *edge: Any) -> Edge:  # noqa: ANN401 - columns of SQLite
    made, names = Edge(*edge), json.loads(allowed)
    return Edge.of(*made.id, {**made.properties, ALLOWED_KEY: names}) if names else made


def locked(directory: Path) -> DirectoryLock:
    """Create the directory of a graph if missing, lock it, and return the lock."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(directory)
    except StoreUnavailableError as error:
        raise StoreUnavailableError(
            f"the graph {directory} is open already, here or in another process; close it "
            "there, pass on the graph that is open, or use neo4j://, which several can share"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"{directory} cannot be a graph's folder: {error}") from error


def _packed(embedding: Sequence[float] | None) -> bytes | None:
    return None if embedding is None else np.asarray(embedding, dtype="<f4").tobytes()


def _node(
    id_: str, label: str, name: str, properties: str, text: str | None, embedding: bytes | None
) -> GraphNode:
    vector = None if embedding is None else np.frombuffer(embedding, dtype="<f4").tolist()
    return GraphNode(id_, label, name, json.loads(properties), text, vector)
