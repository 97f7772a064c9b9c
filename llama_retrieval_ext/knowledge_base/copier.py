"""`Copier`: copies documents batch by batch, and embeds them anew if asked to."""

from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ModelMismatchError, StoreError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.graph import graph_target
from llama_retrieval_ext.knowledge_base.ledger.ledger import Entry, KnowledgeBaseConfig, Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Writable
from llama_retrieval_ext.knowledge_base.opening import writer_of
from llama_retrieval_ext.knowledge_base.reembedding import Reembedding
from llama_retrieval_ext.knowledge_base.report import CopyReport
from llama_retrieval_ext.knowledge_base.sharing import stored_documents
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.wording import counted


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """A knowledge base to copy from or to, without an embedding model."""

    url: str
    storage: Storage
    ledger: Ledger
    config: KnowledgeBaseConfig

    def sample(self, entries: Sequence[Entry], count: int) -> list[BaseNode]:
        """Return up to about `count` nodes, from documents evenly apart."""
        chosen = entries[:: len(entries) // count + 1]
        ids = [
            id_ for own in self.ledger.node_ids(each.key for each in chosen).values() for id_ in own
        ]
        return list(self.storage.nodes(ids[:: len(ids) // count + 1]))


class Copier:
    """Copies documents batch by batch; records failures and copies the rest."""

    def __init__(
        self, source: CopyEnd, target: CopyEnd, reembedding: Reembedding | None = None
    ) -> None:
        self._source = source
        self._target = target
        self._reembedding = reembedding
        self._writer = writer_of(target.storage, target.ledger)
        side = source.storage.graph
        self._graph = None if side is None else graph_target(side, source.ledger)
        self._copied = self._unchanged = self._n_nodes = 0
        self._removed = self._only_at_target = 0
        self._failures: dict[DocumentKey, Exception] = {}

    def changed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the documents that the target does not have yet."""
        there = self._target.ledger.digests(entry.key for entry in entries)
        changed = [
            entry
            for entry, digest in zip(entries, there, strict=True)
            if not digest or digest != entry.digest
        ]
        self._unchanged = len(entries) - len(changed)
        return changed

    def copy(self, entries: Sequence[Entry]) -> None:
        """Copy documents."""
        with TemporaryFile() as file:
            documents = self._documents(entries, file)
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
                self._n_nodes += len(document.node_ids)

    def copy_rest(self) -> None:
        """Copy what syncs have recorded, and the graph rows that belong to no document."""
        self._target.ledger.record_synced(self._source.ledger.synced())
        side = self._target.storage.graph
        if self._graph is not None and side is not None:
            self._graph.copy_unsaid_to(side.graph)

    def mirror(self, entries: Sequence[Entry], *, remove: bool) -> None:
        """Remove or count documents that only the target has."""
        keys = {entry.key for entry in entries}
        extra = [entry for entry in self._target.ledger.entries() if entry.key not in keys]
        if not remove:
            self._only_at_target = len(extra)
            return
        for batch in batches(extra):
            self._writer.delete([entry.key for entry in batch])
            self._removed += len(batch)

    def check(self, entries: Sequence[Entry]) -> None:
        """Raise unless the target has all documents, except those that failed."""
        there = {entry.key: entry.n_nodes for entry in self._target.ledger.entries()}
        expected = [entry for entry in entries if entry.key not in self._failures]
        short = [entry.key.ref for entry in expected if there.get(entry.key) != entry.n_nodes]
        held, known = self._target.storage.count(), self._target.ledger.n_nodes_at_rest(exact=True)
        if known is None:
            raise StoreUnavailableError(
                f"{self._target.url} is being written to, or its last writer died; copy again when "
                "nobody writes to it"
            )
        if short or held != known:
            named = f", such as {short[0]!r}" if short else ""
            raise StoreError(
                f"after copying {self._source.url}, {len(short)} of {len(expected)} documents are "
                f"not whole in {self._target.url}{named}, and it holds "
                f"{counted(held, 'node')} where {known} were written: something else "
                "writes to it, or has changed its store. Copy again, or to a new place"
            )

    def report(self, seconds: float) -> CopyReport:
        """Return the outcome of each document."""
        return CopyReport(
            copied=self._copied,
            unchanged=self._unchanged,
            removed=self._removed,
            only_at_target=self._only_at_target,
            failures={_name_of(key): error for key, error in self._failures.items()},
            n_nodes=self._n_nodes,
            seconds=seconds,
        )

    def _documents(self, entries: Sequence[Entry], file: IO[bytes]) -> list[Writable]:
        """Return documents as they are to be written, long ones in the file; record failures."""
        source = self._source
        found = stored_documents(entries, source.storage, source.ledger, file, where=source.url)
        results: dict[DocumentKey, Writable | Exception] = {**found}
        if self._reembedding is not None:
            whole = [each for each in found.values() if not isinstance(each, StoreError)]
            embedded = self._reembedding.embedded(whole, file)
            results |= {each.key: one for each, one in zip(whole, embedded, strict=True)}
        self._failures |= {k: each for k, each in results.items() if isinstance(each, Exception)}
        return [each for each in results.values() if not isinstance(each, Exception)]

    def _check_dimension(self) -> None:
        recorded, copied = self._target.ledger.dimension(), self._source.config.dimension
        if self._reembedding is not None:
            copied = self._reembedding.dimension
        if recorded is None and copied is not None:
            self._target.ledger.record_dimension(copied)
        elif recorded != copied:
            raise ModelMismatchError(
                f"{self._target.url} holds embeddings of dimension {recorded}, {self._source.url} "
                f"of dimension {copied}; copy to a new place"
            )


def _name_of(key: DocumentKey) -> str:
    """Return the id of a document, with its scope if it has one."""
    scope = [f"{name} {each!r}" for name, each in (("tenant", key.tenant), ("kb", key.kb)) if each]
    return f"{key.ref} ({', '.join(scope)})" if scope else key.ref
