"""`Sharing`: changes who may see stored documents, without embedding them again."""

import secrets
from collections.abc import Mapping, Sequence

from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.knowledge_base.graph import graph_target
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.ledger import Entry, Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.wording import counted


def stored_documents(
    entries: Sequence[Entry], storage: Storage, ledger: Ledger, *, where: str
) -> dict[DocumentKey, Prepared | StoreError]:
    """Return stored documents as they were written, or an error for an incomplete one."""
    ids = ledger.node_ids(entry.key for entry in entries)
    stored = storage.nodes([node_id for own in ids.values() for node_id in own])
    found = {node.node_id: node for node in stored}
    rows: Mapping[str, str] = {}
    if storage.graph is not None and found:
        rows = graph_target(storage.graph, ledger).rows_of(list(found))
    documents: dict[DocumentKey, Prepared | StoreError] = {}
    for key, digest, _, n_nodes, _ in entries:
        nodes = tuple(found[node_id] for node_id in ids.get(key, ()) if node_id in found)
        own = {each.node_id: rows[each.node_id] for each in nodes if each.node_id in rows}
        # A missing digest counts as changed; a random one matches no document.
        documents[key] = Prepared(key, digest or secrets.token_hex(16), nodes, own)
        if len(nodes) != n_nodes:
            documents[key] = StoreError(
                f"the store at {where} has {len(nodes)} of its {counted(n_nodes, 'node')}; "
                "if it is not being written to, add the document again there"
            )
    return documents


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
        """Make documents visible to these principals; return the outcome of each."""
        outcomes: dict[DocumentKey, WriteOutcome | Exception] = {}
        for batch in batches(entries):
            found = stored_documents(batch, self._storage, self._ledger, where=self._where)
            whole = {
                key: each.shared(allowed[key])
                for key, each in found.items()
                if isinstance(each, Prepared)
            }
            outcomes |= {key: each for key, each in found.items() if isinstance(each, Exception)}
            outcomes |= zip(whole, self._writer.write(list(whole.values())), strict=True)
        return outcomes
