"""`Sharing`: changes who may see stored documents, without embedding them again."""

import secrets
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.knowledge_base.graph import graph_target
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
    content_of,
)
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.wording import counted

# Nodes of a document that are in memory at a time.
_GROUP: Final = 1024


def stored_documents(
    entries: Sequence[Entry], storage: Storage, ledger: Ledger, file: IO[bytes], *, where: str
) -> dict[DocumentKey, Writable | StoreError]:
    """Return stored documents as they were written, or an error for an incomplete one.

    The nodes of long ones are read in groups, and kept in the file.
    """
    ids = ledger.node_ids(entry.key for entry in entries)
    target = None if storage.graph is None else graph_target(storage.graph, ledger)

    def read(ids: Sequence[str]) -> tuple[Mapping[str, BaseNode], Mapping[str, str]]:
        """Return nodes by id, and their rows in the graph."""
        nodes = {node.node_id: node for node in storage.nodes(ids)}
        return nodes, target.rows_of(list(nodes)) if target is not None and nodes else {}

    short = [entry.key for entry in entries if entry.n_nodes <= _GROUP]
    together = read([node_id for key in short for node_id in ids.get(key, ())])
    documents: dict[DocumentKey, Writable | StoreError] = {}
    for key, digest, _, n_nodes, allowed in entries:
        own = ids.get(key, [])
        # A missing digest counts as changed; a random one matches no document.
        version = digest or secrets.token_hex(16)
        document: Writable = _part(key, version, own, *together)
        if n_nodes > _GROUP:
            document = SpooledDocument(key, content_of(version), allowed, file)
            for start in range(0, len(own), _GROUP):
                some = own[start : start + _GROUP]
                document.append(_part(key, version, some, *read(some)))
        documents[key] = document
        n_found = len(document.node_ids)
        if n_found != n_nodes:
            documents[key] = StoreError(
                f"the store at {where} has {n_found} of its {counted(n_nodes, 'node')}; if it is "
                "not being written to, delete the document there and add it again"
            )
    return documents


def _part(
    key: DocumentKey,
    version: str,
    ids: Sequence[str],
    nodes: Mapping[str, BaseNode],
    rows: Mapping[str, str],
) -> Prepared:
    """Return those of the nodes of a document that are there."""
    found = [node_id for node_id in ids if node_id in nodes]
    own = {node_id: rows[node_id] for node_id in found if node_id in rows}
    return Prepared(key, version, tuple(nodes[node_id] for node_id in found), own)


class Sharing:
    """Writes stored documents again, with their embeddings, for other principals."""

    def __init__(self, storage: Storage, ledger: Ledger, writer: Writer, where: str) -> None:
        self._storage = storage
        self._ledger = ledger
        self._writer = writer
        self._where = where

    def share_keys(
        self, allowed: Mapping[DocumentKey, Sequence[str]]
    ) -> dict[DocumentKey, WriteOutcome | Exception]:
        """Make the documents with these keys visible to these principals.

        Those that were deleted meanwhile, or that another process is writing, are left out.
        """
        with self._writer.lock:
            ids = self._ledger.node_ids(allowed)
            digests = self._ledger.digests(allowed)
            entries = [
                Entry(key, digest, "", max(1, len(ids.get(key, ()))))
                for key, digest in zip(allowed, digests, strict=True)
                if digest is not None
            ]
            return self.share(entries, allowed)

    def share(
        self, entries: Sequence[Entry], allowed: Mapping[DocumentKey, Sequence[str]]
    ) -> dict[DocumentKey, WriteOutcome | Exception]:
        """Make documents visible to these principals; return the outcome of each.

        Those that another process has changed since they were read are OUTDATED.
        """
        outcomes: dict[DocumentKey, WriteOutcome | Exception] = {}
        for batch in batches(entries):
            with TemporaryFile() as file:
                found = stored_documents(
                    batch, self._storage, self._ledger, file, where=self._where
                )
                errors = {k: each for k, each in found.items() if isinstance(each, StoreError)}
                whole = [
                    each.shared(allowed[entry.key], replaces=entry.digest)
                    for entry, each in zip(batch, found.values(), strict=True)
                    if not isinstance(each, StoreError)
                ]
                written = self._writer.write(whole)
                outcomes |= errors
                outcomes |= {each.key: one for each, one in zip(whole, written, strict=True)}
        return outcomes
