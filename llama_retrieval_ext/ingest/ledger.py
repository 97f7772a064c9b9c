"""The ledger: which documents a knowledge base has, and how it is set up."""

import json
import sqlite3
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Final, NamedTuple

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ModelMismatchError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.ingest.documents import DocumentKey
from llama_retrieval_ext.query import Scope

# Another handle on the same file holds it for milliseconds; a minute is for a machine that swaps.
_WAIT_S = 60.0


class Database:
    """A SQLite database that may be used from any thread.

    Args:
        path: The file, made if need be; None for one in memory.
        schema: Statements that make its tables where they are missing.

    Raises:
        StoreUnavailableError: The file cannot be opened or written.
        StoreFormatError: The file is no database.
    """

    def __init__(self, path: Path | None, schema: str) -> None:
        self._where = "the ledger in memory" if path is None else str(path)
        self._lock = RLock()
        with self._translated():
            self._connection = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        # Also when nobody does, and the program ends: Python 3.13 warns of what is left open.
        self._end = weakref.finalize(self, self._connection.close)
        try:
            with self._translated():
                self._connection.execute("PRAGMA journal_mode = WAL")
                # What is committed survives a power cut: the ledger must never know less than the
                # store, or nodes would be left over that nobody knows of.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.executescript(schema)
        except StoreError:
            self._end()
            raise

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of it is kept, or nothing.

        Raises:
            StoreUnavailableError: There is no room, or no right to write.
            StoreClosedError: The database is closed.
        """
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk has rolled it back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        """What a query finds.

        Raises:
            StoreClosedError: The database is closed.
        """
        with self._lock, self._translated():
            return self._connection.execute(query, parameters).fetchall()

    def close(self) -> None:
        """Close the file; twice does no harm."""
        with self._lock:
            self._end()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreUnavailableError(
                f"{self._where} cannot be read or written: {error}; check that the directory is "
                "writable and has room. What was stored before is safe"
            ) from error
        except sqlite3.ProgrammingError as error:
            raise StoreClosedError(f"{self._where} is closed: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreFormatError(f"{self._where} is no ledger of ours: {error}") from error


# 2: the ledger keeps the source of each document.
FORMAT = 2


@dataclass(frozen=True, slots=True)
class KnowledgeBaseConfig:
    """How a knowledge base is set up.

    Attributes:
        embed_model: Name of the embedding model that made its vectors.
        tokenizer: Settings of the tokenizer of its keyword search; empty where the engine has its
            own.
        require_scope: Whether queries without a scope are refused; None, which is never recorded,
            to leave it as it is.
        dimension: Of its vectors; None until there are some. Of what is asked for: of the vectors
            that the embedding model makes, where it says so.
        format: Version of the ledger.
        removing: Whether its removal was begun.
        params: Settings for the engine as JSON, for when it makes the collection; empty for none.
    """

    embed_model: str
    tokenizer: str = ""
    require_scope: bool | None = False
    dimension: int | None = None
    format: int = FORMAT
    removing: bool = False
    params: str = ""

    def check_format(self, where: str) -> None:
        """Nothing, if this version can read it.

        Raises:
            StoreFormatError: It was written by a newer version.
        """
        if self.format > FORMAT:
            raise StoreFormatError(
                f"{where} has format {self.format}, this version reads up to {FORMAT}; "
                "upgrade llama-retrieval-ext"
            )

    def opened(self, asked: "KnowledgeBaseConfig", where: str) -> "KnowledgeBaseConfig":
        """What stays recorded when a knowledge base is opened.

        Args:
            asked: What the one who opens it says. A scope may be required that the knowledge base
                does not ask for; it is then required of this caller alone.
            where: The knowledge base, for messages.

        Raises:
            StoreFormatError: It was written by a newer version.
            StoreUnavailableError: It is being removed.
            ModelMismatchError: It was made with another embedding model, or one whose vectors have
                another dimension.
            ConfigurationError: It requires a scope, and the caller does not; or its keyword search
                has another tokenizer.
        """
        self.check_format(where)
        if self.removing:
            raise StoreUnavailableError(
                f"{where} is being removed, or who began to has died; finish it with "
                f"KnowledgeBase.remove, or: llama-retrieval remove {where}"
            )
        if self.embed_model != asked.embed_model:
            raise ModelMismatchError(
                f"{where} was made with the embedding model {self.embed_model!r}, and is opened "
                f"with {asked.embed_model!r}; open it with the first, or make a new knowledge base"
            )
        if None not in (self.dimension, asked.dimension) and self.dimension != asked.dimension:
            raise ModelMismatchError(
                f"{where} holds vectors of dimension {self.dimension}, and is opened with "
                f"{asked.embed_model!r}, which makes vectors of dimension {asked.dimension}; "
                "open it with the model that made those, or make a new knowledge base"
            )
        if self.require_scope and asked.require_scope is False:
            raise ConfigurationError(
                f"{where} was made with require_scope=True, and is opened with "
                "require_scope=False; leave it out, and give queries a scope (on the command line: "
                "--tenant or --kb-id)"
            )
        if self.dimension is None:  # nothing has been indexed yet
            return replace(self, tokenizer=asked.tokenizer, params=asked.params)
        if self.tokenizer != asked.tokenizer:
            raise ConfigurationError(
                f"{where} was indexed with the tokenizer {self.tokenizer}, and is opened with "
                f"{asked.tokenizer}; leave tokenizer= out, or make a new knowledge base"
            )
        return self

    def as_new(self) -> "KnowledgeBaseConfig":
        """What is recorded of it where a knowledge base is set up, before anything is in it."""
        return replace(self, dimension=None, require_scope=bool(self.require_scope), format=FORMAT)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in a knowledge base.

    Attributes:
        document_id: Its id; ``ref_doc_id`` of its nodes.
        source: The file that it came from; its own id where there is none.
        tenant_id: Its tenant; None where it has none.
        kb_id: Its knowledge base within the tenant; None where it has none.
        n_nodes: How many nodes it has.
    """

    document_id: str
    source: str
    tenant_id: str | None
    kb_id: str | None
    n_nodes: int


@dataclass(frozen=True, slots=True)
class StoredSource:
    """What documents in a knowledge base came from: a file, or the document itself.

    Attributes:
        source: The path of the file, or the id of the document.
        documents: How many documents it has.
        nodes: How many nodes these have.
        scope: Where it belongs; None where it is in none.
    """

    source: str
    documents: int
    nodes: int
    scope: Scope | None


def unknown_nodes_error(where: str, count: int) -> StoreFormatError:
    """The error for nodes that are in the store and that no ledger knows."""
    return StoreFormatError(
        f"{where} holds {count} nodes that were not added through a knowledge base; search it "
        "with VectorRetriever and KeywordRetriever, or add the documents to a new one"
    )


class Entry(NamedTuple):
    """A document, as the ledger knows it: which it is, its digest, its source, its nodes."""

    key: DocumentKey
    digest: str
    source: str
    n_nodes: int


class Ledger:
    """What a knowledge base knows about its documents.

    Args:
        database: Has the tables of `SCHEMA`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._admitted: tuple[KnowledgeBaseConfig, str] | None = None

    def refresh(self) -> None:
        """See what others have written; a file on this machine always shows it."""

    def refresh_to_write(self) -> None:
        """See what others have written, once none is writing."""
        self.refresh()

    def check_unwritten(self, where: str) -> None:
        """Nothing, unless somebody else is writing; a file on this machine is this process's own.

        Args:
            where: The knowledge base, for messages.

        Raises:
            StoreUnavailableError: Somebody is.
        """

    def admit(self, asked: KnowledgeBaseConfig, where: str) -> bool:
        """Let in who opens the knowledge base; False if it is not set up yet.

        Args:
            asked: What the one who opens it says.
            where: The knowledge base, for messages.

        Raises:
            StoreFormatError: It was written by a newer version.
            StoreUnavailableError: It is being removed.
            ModelMismatchError: It was made with another embedding model.
            ConfigurationError: It was made with other settings.
        """
        recorded = self.manifest()
        if asked.require_scope is None:
            # Settled now: should somebody set it up otherwise, this one must not go on without.
            requires = recorded is not None and recorded.require_scope
            asked = replace(asked, require_scope=requires)
        self._admitted = asked, where
        if recorded is None:
            return False
        kept = recorded.opened(asked, where)
        if kept != recorded:
            self.record(kept)
        return True

    @property
    def requires_scope(self) -> bool:
        """Whether everything that is done by whoever was let in needs a scope."""
        return self._admitted is not None and bool(self._admitted[0].require_scope)

    def at_rest(self) -> int | None:
        """How many nodes the store must hold; None while something is being written."""
        ((in_motion, nodes),) = self.database.rows(IN_MOTION_AND_NODES)
        return None if in_motion else int(str(nodes))

    def is_current(self) -> bool:
        """Whether nobody has written since it was last read; a file is read anew each time."""
        return True

    def manifest(self) -> KnowledgeBaseConfig | None:
        """How the knowledge base is set up; None for one that is not yet."""
        recorded = {str(key): json.loads(str(value)) for key, value in self._manifest_rows()}
        # A newer version may record more than is known here; it is refused by its format.
        known = {
            key: value for key, value in recorded.items() if key in KnowledgeBaseConfig.__slots__
        }
        return KnowledgeBaseConfig(**known) if known else None

    def record(self, manifest: KnowledgeBaseConfig) -> None:
        """Keep how the knowledge base is set up."""
        rows = [(key, json.dumps(value)) for key, value in asdict(manifest).items()]
        with self.database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)

    def dimension(self) -> int | None:
        """The dimension of the vectors; None until there are some."""
        self.refresh()
        manifest = self.manifest()
        return None if manifest is None else manifest.dimension

    def record_dimension(self, dimension: int) -> None:
        """Keep the dimension of the vectors, before the first is stored.

        The one who stores it decides on what was open as long as there was none: the tokenizer, and
        whether from now on everybody needs a scope.

        Raises:
            ConfigurationError: Since it was opened, somebody has set it up otherwise.
            ModelMismatchError: Likewise, with another embedding model.
        """
        recorded = self.manifest()
        if recorded is not None and self._admitted is not None:
            kept = recorded.opened(*self._admitted)
            require_scope = kept.require_scope or self._admitted[0].require_scope
            self.record(replace(kept, dimension=dimension, require_scope=require_scope))

    def digests(self, keys: Iterable[DocumentKey]) -> list[str | None]:
        """The digest of each document, in the order of the keys; None where it is not stored."""
        self.refresh()
        query = (
            "SELECT digest FROM documents WHERE tenant = ? AND kb = ? AND ref = ? AND state IS NULL"
        )
        found = [self.database.rows(query, *key) for key in keys]
        return [str(rows[0][0]) if rows else None for rows in found]

    def entries(self) -> list[Entry]:
        """All documents at rest, in the order they came in."""
        return self._entries("state IS NULL")

    def node_ids(self, key: DocumentKey) -> list[str]:
        """The ids of a document's nodes."""
        query = (
            "SELECT node_id FROM nodes JOIN documents ON document = id "
            "WHERE tenant = ? AND kb = ? AND ref = ? ORDER BY node_id"
        )
        return [str(node_id) for (node_id,) in self.database.rows(query, *key)]

    def doubt_all(self) -> None:
        """Let every document count as changed, so that adding it again writes it again."""
        self.refresh()
        with self.database.transaction() as connection:
            connection.execute("UPDATE documents SET digest = ''")

    def named(self, name: str, scope: Scope | None) -> list[Entry]:
        """The documents with this id or source that a scope can see; without a scope, in none."""
        condition, values = _seen_by(scope, none="tenant = '' AND kb = ''")
        return self._entries(f"(ref = ? OR source = ?) AND {condition}", name, name, *values)

    def visible(self, scope: Scope | None) -> list[Entry]:
        """The documents that a scope can see, in the order they came in; without a scope, all."""
        condition, values = _seen_by(scope, none="1")
        return self._entries(condition, *values)

    def owners(self, node_ids: Iterable[str]) -> set[DocumentKey]:
        """The documents that have nodes with these ids."""
        query = (
            "SELECT tenant, kb, ref FROM nodes JOIN documents ON document = id WHERE node_id = ?"
        )
        found = [self.database.rows(query, node_id) for node_id in node_ids]
        return {DocumentKey(*map(str, row)) for rows in found for row in rows}

    def documents(self, scope: Scope | None) -> list[StoredDocument]:
        """The documents that a scope can see, by id; without a scope, all."""
        entries = sorted(
            self.visible(scope), key=lambda each: (each.key.ref, each.key.tenant, each.key.kb)
        )
        return [
            StoredDocument(key.ref, source, key.tenant or None, key.kb or None, n_nodes)
            for key, _, source, n_nodes in entries
        ]

    def sources(self, scope: Scope | None) -> list[StoredSource]:
        """The sources that a scope can see, by name; without a scope, all."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for key, _, source, n_nodes in self.visible(scope):
            found.setdefault((source, key.tenant, key.kb), []).append(n_nodes)
        return [
            StoredSource(source, len(counts), sum(counts), _scope_of(tenant, kb))
            for (source, tenant, kb), counts in sorted(found.items())
        ]

    def record_sources(self, sources: Mapping[DocumentKey, str]) -> None:
        """Keep what documents came from."""
        statement = "UPDATE documents SET source = ? WHERE tenant = ? AND kb = ? AND ref = ?"
        with self.database.transaction() as connection:
            connection.executemany(statement, [(each, *key) for key, each in sources.items()])

    def sample(self, scope: Scope | None, size: int) -> list[str]:
        """The ids of some nodes that a scope can see; without a scope, of any."""
        self.refresh()
        condition, values = _seen_by(scope, none="1")
        query = (
            "SELECT node_id FROM nodes JOIN documents ON document = id "  # noqa: S608
            f"WHERE {condition} ORDER BY node_id LIMIT ?"
        )
        return [str(node_id) for (node_id,) in self.database.rows(query, *values, size)]

    def n_sources(self) -> int:
        """How many sources there are."""
        self.refresh()
        ((count,),) = self.database.rows(N_SOURCES)
        return int(str(count))

    def count(self) -> tuple[int, int]:
        """How many documents and nodes there are."""
        self.refresh()
        query = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM nodes)"
        ((documents, nodes),) = self.database.rows(query)
        return int(str(documents)), int(str(nodes))

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _entries(self, condition: str, *values: str) -> list[Entry]:
        """The documents that satisfy a condition in SQL, in the order they came in."""
        self.refresh()
        query = (
            f"SELECT tenant, kb, ref, digest, {SOURCE}, count(node_id) "  # noqa: S608
            "FROM documents LEFT JOIN nodes "
            f"ON nodes.document = documents.id WHERE {condition} "
            "GROUP BY documents.id ORDER BY documents.id"
        )
        rows = [tuple(map(str, row)) for row in self.database.rows(query, *values)]
        return [
            Entry(DocumentKey(*key), digest, source, int(n_nodes))
            for *key, digest, source, n_nodes in rows
        ]

    def _manifest_rows(self) -> list[tuple[object, ...]]:
        return self.database.rows("SELECT key, value FROM manifest")


def _scope_of(tenant: str, kb: str) -> Scope | None:
    # Metadata may name a blank one, which no scope can.
    tenant, kb = tenant.strip() and tenant, kb.strip() and kb
    return Scope(tenant or None, [kb] if kb else []) if tenant or kb else None


def _seen_by(scope: Scope | None, *, none: str) -> tuple[str, Sequence[str]]:
    """A condition in SQL and the values for its question marks."""
    if scope is None:
        return none, ()
    conditions = []
    values: list[str] = []
    if scope.tenant_id is not None:
        conditions.append("tenant = ?")
        values.append(scope.tenant_id)
    if scope.kb_ids:
        conditions.append(f"kb IN ({', '.join('?' * len(scope.kb_ids))})")
        values.extend(scope.kb_ids)
    return " AND ".join(conditions), values


# The source of a document is empty where it is its own. Its state and a node's role are NULL at
# rest; what they are in motion stands in `journal.py`. The columns that make up a document's key
# are in the order of `DocumentKey`.
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, kb TEXT NOT NULL, ref TEXT NOT NULL,
    digest TEXT NOT NULL, state TEXT, source TEXT NOT NULL DEFAULT '', UNIQUE (ref, tenant, kb)
);
CREATE INDEX IF NOT EXISTS documents_in_motion ON documents (state) WHERE state IS NOT NULL;
CREATE TABLE IF NOT EXISTS nodes (
    node_id TEXT PRIMARY KEY, document INTEGER NOT NULL, role TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS nodes_of_document ON nodes (document);
CREATE INDEX IF NOT EXISTS nodes_in_motion ON nodes (role) WHERE role IS NOT NULL;
CREATE TABLE IF NOT EXISTS redo (
    document INTEGER NOT NULL, node TEXT NOT NULL, embedding BLOB NOT NULL
);
"""

# How many documents are in motion, and how many nodes there are.
IN_MOTION_AND_NODES: Final = (
    "SELECT (SELECT count(*) FROM documents WHERE state IS NOT NULL), count(*) FROM nodes"
)

_BY_SOURCE: Final = "CREATE INDEX IF NOT EXISTS documents_of_source ON documents (source)"
# The name of a document's source.
SOURCE: Final = "CASE source WHEN '' THEN ref ELSE source END"
# Documents of a source count once, whatever their number.
N_SOURCES: Final = f"SELECT count(*) FROM (SELECT DISTINCT tenant, kb, {SOURCE} FROM documents)"  # noqa: S608


def open_tables(path: Path | None) -> Database:
    """Open the tables in a file, made if need be; None for memory.

    Raises:
        StoreUnavailableError: The file cannot be opened or written.
        StoreFormatError: The file is no database.
    """
    database = Database(path, SCHEMA)
    try:
        columns = {name for _, name, *_ in database.rows("PRAGMA table_info(documents)")}
        with database.transaction() as connection:
            if "source" not in columns:  # format 1
                connection.execute("ALTER TABLE documents ADD source TEXT NOT NULL DEFAULT ''")
            connection.execute(_BY_SOURCE)
    except BaseException:
        database.close()
        raise
    return database
