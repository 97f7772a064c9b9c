"""The tables of a ledger, and what more than one place asks of them."""

from pathlib import Path
from typing import Final

from llama_retrieval_ext.ingest.database import Database

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
