"""Writes stored documents again: for other principals, or as they were known until now."""

import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryFile
from typing import IO, Final

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.dates import KNOWN_TO, now
from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    HISTORY,
    DocumentKey,
    Prepared,
    SpooledDocument,
    Writable,
    content_of,
    version_of,
)
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.wording import counted

# Nodes of a document that are in memory at a time.
_GROUP: Final = 1024


def stored_documents(
    entries: Sequence[Entry], storage: Storage, file: IO[bytes]
) -> dict[DocumentKey, Writable | StoreError]:
    """Return stored documents as they were written, or an error for an incomplete one.

    The nodes of long ones are read in groups, and kept in the file.
    """
    ids = storage.ledger.node_ids(entry.key for entry in entries)
    target = storage.graph_target()

    def read(ids: Sequence[str]) -> tuple[Mapping[str, BaseNode], Mapping[str, str]]:
        """Return nodes by id, and their rows in the graph."""
        nodes = {node.node_id: node for node in storage.nodes(ids)}
        return nodes, target.rows_of(list(nodes)) if target is not None and nodes else {}

    short = [entry.key for entry in entries if entry.n_nodes <= _GROUP]
    together = read([node_id for key in short for node_id in ids.get(key, ())])
    documents: dict[DocumentKey, Writable | StoreError] = {}
    for key, digest, _, n_nodes, allowed in entries:
        node_ids = ids.get(key, [])
        # A missing digest counts as changed; a random one matches no document.
        version = digest or secrets.token_hex(16)
        document: Writable
        if n_nodes <= _GROUP:
            document = _part(key, version, node_ids, *together)
        else:
            document = SpooledDocument(key, content_of(version), allowed, file)
            for start in range(0, len(node_ids), _GROUP):
                group = node_ids[start : start + _GROUP]
                document.append(_part(key, version, group, *read(group)))
        documents[key] = document
        n_found = len(document.node_ids)
        if n_found != n_nodes:
            documents[key] = StoreError(
                f"the store at {storage.url} has {n_found} of its {counted(n_nodes, 'node')}; if "
                "it is not being written to, delete the document there and add it again"
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
    stored = tuple(nodes[node_id] for node_id in ids if node_id in nodes)
    extracted = {node_id: rows[node_id] for node_id in ids if node_id in nodes and node_id in rows}
    return Prepared(key, version, stored, extracted)


class Sharing:
    """Writes stored documents again, with their embeddings, for other principals."""

    def __init__(self, storage: Storage, writer: Writer) -> None:
        self._storage = storage
        self._writer = writer

    def share_keys(
        self, allowed: Mapping[DocumentKey, Sequence[str]]
    ) -> dict[DocumentKey, WriteOutcome | Exception]:
        """Make the documents with these keys visible to these principals.

        Those that were deleted meanwhile, or that another process is writing, are left out.
        """
        with self._writer.lock:
            ids = self._storage.ledger.node_ids(allowed)
            digests = self._storage.ledger.digests(allowed)
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
                stored = stored_documents(batch, self._storage, file)
                whole: list[Writable] = []
                for entry in batch:
                    document = stored[entry.key]
                    if isinstance(document, StoreError):
                        outcomes[entry.key] = document
                    else:
                        names = allowed[entry.key]
                        whole.append(document.shared(names, replaces=entry.digest))
                for document, outcome in zip(whole, self._writer.write(whole), strict=True):
                    outcomes[document.key] = outcome
        return outcomes


@contextmanager
def copies_until_now(storage: Storage, keys: Sequence[DocumentKey]) -> Generator[list[Writable]]:
    """Yield copies of stored documents that say until when they were known, ready to be written.

    A copy is a document of its own, whose key no listing shows, with the nodes under new ids. It is
    written before the change, so that a crash between both leaves nothing unknown.
    """
    stored = storage.ledger.read(key for key in keys if HISTORY not in key.ref)
    entries = [record.entry for record in stored.values()]
    moment = now()
    with TemporaryFile() as file, TemporaryFile() as copied:
        documents = stored_documents(entries, storage, file)
        copies: list[Writable] = []
        for key, document in documents.items():
            if isinstance(document, StoreError):
                raise document
            new = key._replace(ref=f"{key.ref}{HISTORY}{moment}")
            digest = version_of(f"{content_of(document.digest)}-{moment}", document.allowed)
            parts = (_known_until(moment, part, new, digest) for part in document.parts())
            if isinstance(document, Prepared):
                copies += parts
                continue
            spooled = SpooledDocument(new, content_of(digest), document.allowed, copied)
            for part in parts:
                spooled.append(part)
            copies.append(spooled)
        yield copies


def _known_until(moment: str, part: Prepared, key: DocumentKey, digest: str) -> Prepared:
    """Return the nodes of a document as they were known until a moment."""
    nodes = tuple(
        node.model_copy(
            update={
                "id_": f"{node.node_id}{HISTORY}{moment}",
                "metadata": {**node.metadata, KNOWN_TO: moment},
                "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, KNOWN_TO],
                "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, KNOWN_TO],
            }
        )
        for node in part.nodes
    )
    return replace(part, key=key, digest=digest, nodes=nodes, rows={})
