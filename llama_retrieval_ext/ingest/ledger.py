"""The ledger: which documents a knowledge base has, and how it is set up."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from llama_retrieval_ext.ingest.database import Database
from llama_retrieval_ext.ingest.documents import DocumentKey
from llama_retrieval_ext.ingest.manifest import Manifest
from llama_retrieval_ext.query import Scope

# A document's state and a node's role are NULL at rest; what they are in motion stands in
# `journal.py`. The columns that make up a document's key are in the order of `DocumentKey`.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS manifest (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, kb TEXT NOT NULL, ref TEXT NOT NULL,
    digest TEXT NOT NULL, state TEXT, UNIQUE (ref, tenant, kb)
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


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in a knowledge base.

    Attributes:
        document_id: Its id; ``ref_doc_id`` of its nodes.
        tenant_id: Its tenant; None where it has none.
        kb_id: Its knowledge base within the tenant; None where it has none.
        n_nodes: How many nodes it has.
    """

    document_id: str
    tenant_id: str | None
    kb_id: str | None
    n_nodes: int


class Ledger:
    """What a knowledge base knows about its documents, in one SQLite file.

    Args:
        path: The file, made if need be; None to keep it in memory.

    Raises:
        StoreUnavailableError: The file cannot be opened or written.
        StoreFormatError: The file is no ledger.
    """

    def __init__(self, path: Path | None) -> None:
        self.database = Database(path, _SCHEMA)

    def manifest(self) -> Manifest | None:
        """How the knowledge base is set up; None for one that is not yet."""
        recorded = {str(key): json.loads(str(value)) for key, value in self._manifest_rows()}
        # A newer version may record more than is known here; it is refused by its format.
        known = {key: value for key, value in recorded.items() if key in Manifest.__slots__}
        return Manifest(**known) if known else None

    def record(self, manifest: Manifest) -> None:
        """Keep how the knowledge base is set up."""
        rows = [(key, json.dumps(value)) for key, value in asdict(manifest).items()]
        with self.database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)

    def dimension(self) -> int | None:
        """The dimension of the vectors; None until there are some."""
        manifest = self.manifest()
        return None if manifest is None else manifest.dimension

    def record_dimension(self, dimension: int) -> None:
        """Keep the dimension of the vectors, before the first is stored."""
        with self.database.transaction() as connection:
            row = ("dimension", json.dumps(dimension))
            connection.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", row)

    def digests(self, keys: Iterable[DocumentKey]) -> list[str | None]:
        """The digest of each document, in the order of the keys; None where it is not stored."""
        query = (
            "SELECT digest FROM documents WHERE tenant = ? AND kb = ? AND ref = ? AND state IS NULL"
        )
        found = [self.database.rows(query, *key) for key in keys]
        return [str(rows[0][0]) if rows else None for rows in found]

    def doubt_all(self) -> None:
        """Let every document count as changed, so that adding it again writes it again."""
        with self.database.transaction() as connection:
            connection.execute("UPDATE documents SET digest = ''")

    def keys(self, ref: str, scope: Scope | None) -> list[DocumentKey]:
        """The documents with an id that a scope can see; without a scope, those in none."""
        condition, values = _seen_by(scope, none="tenant = '' AND kb = ''")
        query = f"SELECT tenant, kb, ref FROM documents WHERE ref = ? AND {condition}"  # noqa: S608
        return [DocumentKey(*map(str, row)) for row in self.database.rows(query, ref, *values)]

    def documents(self, scope: Scope | None) -> list[StoredDocument]:
        """The documents that a scope can see, by id; without a scope, all."""
        condition, values = _seen_by(scope, none="1")
        query = (
            "SELECT ref, tenant, kb, count(node_id) FROM documents LEFT JOIN nodes "  # noqa: S608
            f"ON nodes.document = documents.id WHERE {condition} "
            "GROUP BY documents.id ORDER BY ref, tenant, kb"
        )
        return [
            StoredDocument(str(ref), str(tenant) or None, str(kb) or None, int(str(n_nodes)))
            for ref, tenant, kb, n_nodes in self.database.rows(query, *values)
        ]

    def count(self) -> tuple[int, int]:
        """How many documents and nodes there are."""
        query = "SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM nodes)"
        ((documents, nodes),) = self.database.rows(query)
        return int(str(documents)), int(str(nodes))

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _manifest_rows(self) -> list[tuple[object, ...]]:
        return self.database.rows("SELECT key, value FROM manifest")


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
