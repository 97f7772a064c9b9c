"""The ledger: which documents a knowledge base has, and how it is set up."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.ingest.database import Database
from llama_retrieval_ext.ingest.documents import DocumentKey
from llama_retrieval_ext.ingest.manifest import Manifest
from llama_retrieval_ext.ingest.schema import IN_MOTION_AND_NODES, N_SOURCES, SOURCE
from llama_retrieval_ext.query import Scope


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


def strangers(where: str, count: int) -> StoreFormatError:
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
        self._admitted: tuple[Manifest, str] | None = None

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

    def admit(self, asked: Manifest, where: str) -> bool:
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
