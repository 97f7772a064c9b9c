"""`Copier`: documents with their nodes and embeddings, from one knowledge base into another."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ModelMismatchError, StoreError, StoreUnavailableError
from llama_retrieval_ext.ingest.batching import batches, stored_nodes
from llama_retrieval_ext.ingest.copy_report import CopyReport
from llama_retrieval_ext.ingest.documents import DocumentKey, Prepared
from llama_retrieval_ext.ingest.ledger import Entry, Ledger
from llama_retrieval_ext.ingest.manifest import Manifest
from llama_retrieval_ext.ingest.opening import writer_of
from llama_retrieval_ext.ingest.place import Place


@dataclass(frozen=True, slots=True)
class Base:
    """A knowledge base without an embedding model.

    Attributes:
        url: Where it lives, for messages.
        place: Its store and lock.
        ledger: What it knows about its documents.
        manifest: How it is set up, or is to be.
    """

    url: str
    place: Place
    ledger: Ledger
    manifest: Manifest


class Copier:
    """Copies documents, batch by batch: what fails is noted, the rest is copied.

    Args:
        source: Is only read.
        target: Is set up likewise.
    """

    def __init__(self, source: Base, target: Base) -> None:
        self._source = source
        self._target = target
        self._writer = writer_of(target.place, target.ledger)
        self._copied = self._unchanged = self._n_nodes = 0
        self._removed = self._only_at_target = 0
        self._failures: dict[DocumentKey, Exception] = {}

    def copy(self, entries: Sequence[Entry]) -> None:
        """Copy documents, but for those that are there already.

        Raises:
            ModelMismatchError: The target has embeddings of another dimension.
            StoreUnavailableError: A store does not answer; what was copied stays.
        """
        there = self._target.ledger.digests(entry.key for entry in entries)
        wanted = [
            entry
            for entry, digest in zip(entries, there, strict=True)
            if not digest or digest != entry.digest
        ]
        self._unchanged += len(entries) - len(wanted)
        documents = list(self._documents(wanted))
        if not documents:
            return
        with self._writer.lock:
            self._check_dimension()
            outcomes = self._writer.write(documents)
        for document, outcome in zip(documents, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._failures[document.key] = outcome
            else:
                self._copied += 1
                self._n_nodes += len(document.nodes)

    def mirror(self, entries: Sequence[Entry], *, remove: bool) -> None:
        """Look for documents that the target alone has, such as those deleted since in the source.

        Args:
            entries: All documents of the source.
            remove: Whether they are removed, or counted.

        Raises:
            StoreUnavailableError: The target does not answer; what was removed stays so.
        """
        wanted = {entry.key for entry in entries}
        extra = [entry for entry in self._target.ledger.entries() if entry.key not in wanted]
        if not remove:
            self._only_at_target = len(extra)
            return
        for batch in batches(extra):
            self._writer.delete([entry.key for entry in batch])
            self._removed += len(batch)

    def check(self, entries: Sequence[Entry]) -> None:
        """Nothing, if the target has the documents, but for those that failed.

        Raises:
            StoreUnavailableError: Somebody else writes to the target.
            StoreError: Some are not there, or not whole.
        """
        there = {entry.key: entry.n_nodes for entry in self._target.ledger.entries()}
        expected = [entry for entry in entries if entry.key not in self._failures]
        short = [entry.key.ref for entry in expected if there.get(entry.key) != entry.n_nodes]
        held, known = self._target.place.count(), self._target.ledger.at_rest()
        if known is None:
            raise StoreUnavailableError(
                f"{self._target.url} is being written to, or its last writer died; copy again when "
                "nobody writes to it"
            )
        if short or held != known:
            named = f", such as {short[0]!r}" if short else ""
            raise StoreError(
                f"after copying {self._source.url}, {len(short)} of {len(expected)} documents are "
                f"not whole in {self._target.url}{named}, and it holds {held} nodes where "
                f"{known} were written: something else writes to it, or has changed its store. "
                "Copy again, or to a new place"
            )

    def report(self, seconds: float) -> CopyReport:
        """What came of all of them."""
        return CopyReport(
            copied=self._copied,
            unchanged=self._unchanged,
            removed=self._removed,
            only_at_target=self._only_at_target,
            failures={_name_of(key): error for key, error in self._failures.items()},
            n_nodes=self._n_nodes,
            seconds=seconds,
        )

    def _documents(self, entries: Sequence[Entry]) -> Iterator[Prepared]:
        ids = {entry.key: self._source.ledger.node_ids(entry.key) for entry in entries}
        found = self._nodes([node_id for own in ids.values() for node_id in own])
        for key, digest, _, n_nodes in entries:
            nodes = tuple(found[node_id] for node_id in ids[key] if node_id in found)
            if len(nodes) == n_nodes:
                # Without a digest it counts as changed, and no document has a random one.
                yield Prepared(key, digest or secrets.token_hex(16), nodes)
            else:
                self._failures[key] = StoreError(
                    f"the store at {self._source.url} has {len(nodes)} of its {n_nodes} nodes; if "
                    "it is not being written to, add the document again there"
                )

    def _nodes(self, ids: Sequence[str]) -> dict[str, BaseNode]:
        store = self._source.place.store
        return {node.node_id: node for node in stored_nodes(store, ids)}

    def _check_dimension(self) -> None:
        recorded, copied = self._target.ledger.dimension(), self._source.manifest.dimension
        if recorded is None and copied is not None:
            self._target.ledger.record_dimension(copied)
        elif recorded != copied:
            raise ModelMismatchError(
                f"{self._target.url} holds embeddings of dimension {recorded}, {self._source.url} "
                f"of dimension {copied}; copy to a new place"
            )


def _name_of(key: DocumentKey) -> str:
    """What tells a document from those with its id in other scopes."""
    scope = [f"{name} {each!r}" for name, each in (("tenant", key.tenant), ("kb", key.kb)) if each]
    return f"{key.ref} ({', '.join(scope)})" if scope else key.ref
