"""`History`: stored documents as they were known before they are replaced or deleted."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryFile

from llama_retrieval_ext.dates import KNOWN_TO, now
from llama_retrieval_ext.errors import StoreError
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
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
from llama_retrieval_ext.knowledge_base.sharing import stored_documents
from llama_retrieval_ext.knowledge_base.storage import Storage


class History:
    """Copies of stored documents that say until when they were known.

    A copy is a document of its own, whose key no listing shows, with the nodes under new ids. It is
    written before the change, so that a crash between both leaves nothing unknown.
    """

    def __init__(self, storage: Storage, ledger: Ledger, where: str) -> None:
        self._storage, self._ledger, self._where = storage, ledger, where

    @contextmanager
    def copies(self, keys: Sequence[DocumentKey]) -> Generator[list[Writable]]:
        """Yield the copies of the stored ones of some documents, ready to be written."""
        stored = self._ledger.read(key for key in keys if HISTORY not in key.ref)
        entries: list[Entry] = [record.entry for record in stored.values()]
        moment = now()
        with TemporaryFile() as file, TemporaryFile() as copied:
            documents = stored_documents(
                entries, self._storage, self._ledger, file, where=self._where
            )
            copies: list[Writable] = []
            for key, document in documents.items():
                if isinstance(document, StoreError):
                    raise document
                new = key._replace(ref=f"{key.ref}{HISTORY}{moment}")
                digest = version_of(f"{content_of(document.digest)}-{moment}", document.allowed)
                parts = [_known_until(moment, part, new, digest) for part in document.parts()]
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
