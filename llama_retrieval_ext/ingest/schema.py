"""The tables of a ledger, and what more than one place asks of them."""

from typing import Final

# A document's state and a node's role are NULL at rest; what they are in motion stands in
# `journal.py`. The columns that make up a document's key are in the order of `DocumentKey`.
SCHEMA: Final = """
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

# How many documents are in motion, and how many nodes there are.
IN_MOTION_AND_NODES: Final = (
    "SELECT (SELECT count(*) FROM documents WHERE state IS NOT NULL), count(*) FROM nodes"
)
