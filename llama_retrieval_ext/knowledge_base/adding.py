"""`Addition`: one call of ``KnowledgeBase.add``, or of what adds documents as it does."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from tempfile import TemporaryFile
from time import perf_counter
from types import MappingProxyType
from typing import IO, NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.embeddings.resolve import embed_model_dimension, embed_model_name
from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    DuplicateNodeError,
    ModelMismatchError,
)
from llama_retrieval_ext.knowledge_base.documents import (
    AS_IT_IS,
    Allowed,
    Dating,
    SourceDocument,
    allowed_names,
    batched,
)
from llama_retrieval_ext.knowledge_base.graph import GraphTarget
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    Writable,
    content_of,
)
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.passages import Watch
from llama_retrieval_ext.knowledge_base.preparation import (
    BATCH_WEIGHT,
    Embeddings,
    Group,
    Preparation,
    PreparedBatch,
    character_bar,
    grouped,
    size_of,
    weight_of,
)
from llama_retrieval_ext.knowledge_base.readers.texts import DocumentList
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.knowledge_base.sharing import share_keys
from llama_retrieval_ext.knowledge_base.splitting import NodeIds, ReaderIds
from llama_retrieval_ext.knowledge_base.storage import Storage, batches
from llama_retrieval_ext.knowledge_base.write import Writer

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IngestionParts:
    """The components that add documents, and delete them."""

    preparation: Preparation
    writer: Writer
    storage: Storage
    extracted: GraphTarget | None = None  # the graph, if an extractor writes to it, too
    reader_ids: ReaderIds = field(default_factory=ReaderIds)

    def delete(self, entries: Sequence[Entry]) -> None:
        """Delete documents; keep on record who saw them, for when a sync finds them again."""
        self.storage.ledger.remember_principals(entries)
        for batch in batches(entries):
            self.writer.delete([entry.key for entry in batch])
        if entries:
            self.storage.ledger.forget_dimension()


class Predecessor(NamedTuple):
    """The stored document that a document was before it moved."""

    key: DocumentKey
    is_current: bool  # whether it was split and extracted as documents are now


class Addition:
    """Adds documents batch by batch; records failures and stores the rest.

    `run` performs all steps. `identified`, `changed` and `store` are the single steps, for callers
    that prepare documents in other processes. The scope is the metadata of the caller's.
    """

    def __init__(
        self,
        parts: IngestionParts,
        scope: Mapping[str, str],
        allowed: Allowed = None,
        dating: Dating = AS_IT_IS,
    ) -> None:
        self.parts = parts
        self.scope = scope
        self.allowed = allowed if allowed is None or callable(allowed) else allowed_names(allowed)
        self.dating = dating
        self.tally = Tally()
        self._occurrences: Counter[object] = Counter()
        self._splitting = ""
        self._before: dict[DocumentKey, DocumentKey] = {}  # stored documents by those after them
        # Of documents that name none, for when no stored version does; of `sync`.
        self.principals: dict[DocumentKey, tuple[str, ...]] = {}

    def run(self, items: Iterable[object], *, show_progress: bool) -> IngestionReport:
        """Add documents and return the outcome of each."""
        if isinstance(items, DocumentList):  # what its reader could not read
            for path, reason in items.left_out.items():
                self.tally.skipped(str(path), reason)
        groups = grouped(items)
        batches = batched(groups, weight_of, BATCH_WEIGHT)
        if not show_progress:
            for batch in batches:
                self.write(self.changed(self.identified(batch)))
            return self.tally.report()
        with character_bar(groups) as bar:
            end = 0

            def watch(n_characters: float) -> None:
                """Move the bar by half of the characters when split, by half when embedded."""
                bar.update(min(n_characters / 2, end - bar.n))

            for batch in batches:
                end = bar.n + sum(map(size_of, batch))
                self.write(self.changed(self.identified(batch)), watch=watch)
                bar.update(end - bar.n)
        return self.tally.report()

    def identified(self, groups: Iterable[Group]) -> list[SourceDocument]:
        """Return the documents in groups of nodes, with their ids and digests."""
        return self.parts.preparation.identified(
            self.parts.reader_ids.recognised(groups, self.scope, self._occurrences),
            self.scope,
            self.tally.failed,
            self.allowed,
            self.dating,
        )

    def changed(self, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        """Return the documents whose content is not stored, by keys and digests.

        Those that only name other principals than before are shared with them.
        """
        new = [*filter(self.tally.is_new, documents)]
        versions = self.parts.storage.ledger.digests([*map(attrgetter("key"), new)])
        changed: list[SourceDocument] = []
        shared: list[SourceDocument] = []
        for document, version in zip(new, versions, strict=True):
            if version is None or content_of(version) != document.digest:
                changed.append(document)
                if version is not None:
                    self._before[document.key] = document.key
            elif document.allowed is None or version == document.version:
                self.tally.unchanged()
            else:
                shared.append(document)
        return changed + self._share(shared) if shared else changed

    def _share(self, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        """Make stored documents visible to those whom they name; return those to be written."""
        names = {document.key: document.allowed or () for document in documents}
        outcomes = share_keys(self.parts.storage, self.parts.writer, names)
        shared = set()
        for key, outcome in outcomes.items():
            if outcome is not WriteOutcome.OUTDATED:
                self.tally.stored(key, outcome, 0)
                shared.add(key)
        return [document for document in documents if document.key not in shared]

    def write(
        self,
        documents: Sequence[SourceDocument],
        moved: Mapping[DocumentKey, Predecessor] = MappingProxyType({}),
        watch: Watch = float,
    ) -> None:
        """Prepare and store documents, each long one by itself.

        `moved` has the documents whose content some of them have; `watch` is called as by
        `Preparation.prepared`.
        """
        for key, origin in moved.items():
            self._before[key] = origin.key
        for is_long, group in groupby(documents, attrgetter("is_long")):
            if not is_long:
                self.store(self._prepared([*group], moved, watch))
                continue
            for document in group:
                with TemporaryFile() as file:
                    self.store(self._spooled(document, file, moved.get(document.key), watch))

    def _spooled(
        self, document: SourceDocument, file: IO[bytes], origin: Predecessor | None, watch: Watch
    ) -> PreparedBatch:
        """Return a long document ready to be stored, with its nodes in a file."""
        before = self._before.get(document.key, document.key)
        stored = {*self.parts.storage.ledger.node_ids([before]).get(before, ())}
        ids = NodeIds(before)

        def before_of(part: Prepared) -> tuple[Embeddings, Mapping[str, str]]:
            same = [ids.next(node.get_content(MetadataMode.NONE)) for node in part.nodes]
            old = list(self.parts.storage.nodes([id_ for id_ in same if id_ in stored]))
            return _embeddings(old), self._moved_rows(origin, old, part)

        return self.parts.preparation.spooled(document, file, before_of, watch)

    def _prepared(
        self,
        documents: Sequence[SourceDocument],
        moved: Mapping[DocumentKey, Predecessor],
        watch: Watch,
    ) -> PreparedBatch:
        """Return documents ready to be stored; what is stored already is not embedded again."""
        preparation = self.parts.preparation
        if not self._before:
            return preparation.prepared(documents, watch=watch)
        before = [
            self._before[document.key]
            for document in documents
            if document.key in self._before
            and (document.key in moved or any(n.embedding is None for n in document.nodes))
        ]
        ids = self.parts.storage.ledger.node_ids(before) if before else {}
        read = self.parts.storage.nodes([id_ for node_ids in ids.values() for id_ in node_ids])
        stored = {node.node_id: node for node in read}

        def rows(document: Prepared) -> Mapping[str, str]:
            origin = moved.get(document.key)
            old = [] if origin is None else ids.get(origin.key, [])
            return self._moved_rows(origin, [stored[i] for i in old if i in stored], document)

        embeddings = _embeddings(stored.values())
        return preparation.prepared(documents, embeddings, watch, rows if moved else None)

    def _moved_rows(
        self, origin: Predecessor | None, before: Sequence[BaseNode], document: Prepared
    ) -> Mapping[str, str]:
        """Return what extractors found in a document before it moved; empty if that is unknown."""
        if self.parts.extracted is None or origin is None or not origin.is_current:
            return {}
        return self.parts.extracted.moved_rows(before, document.nodes)

    def store(self, batch: PreparedBatch) -> None:
        """Write prepared documents and record the outcome of each."""
        writer = self.parts.writer
        ready: list[Writable] = []
        for key, result in batch.results.items():
            if isinstance(result, Exception):
                self.tally.failed(key.ref, result)
                continue
            if result.node_ids:
                ready.append(result)
                continue
            self.tally.skipped(key.ref, "no text")
            try:
                writer.delete([key])
            except Exception as error:  # noqa: BLE001 - the report carries it
                self.tally.failed(key.ref, error)
        if not ready:
            return
        with writer.lock:
            fitting = self._fitting(self._as_visible_as_before(ready), batch.dimension)
            if batch.splitting not in ("", self._splitting):
                self._splitting = batch.splitting
                self.parts.storage.ledger.record_splitting(batch.splitting)
            outcomes = writer.write(fitting)
        for document, outcome in zip(fitting, outcomes, strict=True):
            self.tally.stored(document.key, outcome, len(document.node_ids))

    def _as_visible_as_before(self, documents: Sequence[Writable]) -> list[Writable]:
        """Return the documents; new versions that name no principals keep those of the old ones.

        A document that has moved keeps its own, if another process has just restricted it; else
        those of the document that it replaces, also if this was deleted meanwhile.
        """
        before = {d.key: self._before.get(d.key, d.key) for d in documents if d.keeps_allowed}
        stored = self.parts.storage.ledger.allowed({*before, *before.values()})
        if not stored and not self.principals:
            return [*documents]
        visible: list[Writable] = []
        for document in documents:
            key = document.key
            names = stored.get(before.get(key, key)) or stored.get(key) or self.principals.get(key)
            keeps = bool(names) and document.keeps_allowed
            visible.append(document.shared(names or ()) if keeps else document)
        return visible

    def _fitting(self, documents: Sequence[Writable], made: int | None) -> list[Writable]:
        """Return the documents whose embeddings have the dimension of the knowledge base."""
        recorded = self.parts.storage.ledger.dimension()
        dimension = recorded or made or self._dimension_of_model()
        if dimension is None:
            # A document whose embeddings differ among themselves fails.
            uniform = min(documents, key=lambda document: len(document.dimensions))
            dimension = next(iter(uniform.dimensions))
        if made not in (None, dimension):
            raise ModelMismatchError(
                f"the embedding model gives vectors of dimension {made}, the knowledge base holds "
                f"vectors of dimension {dimension}; open it with the model that made those"
            )
        fitting: list[Writable] = []
        for document in documents:
            for size, node_id in document.dimensions.items():
                if size != dimension:
                    error = DimensionMismatchError(
                        f"the embedding of node {node_id!r} has {size} numbers, the knowledge "
                        f"base has {dimension}; leave it out and it is made"
                    )
                    self.tally.failed(document.key.ref, error)
                    break
            else:
                fitting.append(document)
        if fitting and recorded is None:
            self.parts.storage.record_dimension(dimension)
        return fitting

    def _dimension_of_model(self) -> int | None:
        """Return the dimension of the model's vectors; None if it cannot be asked.

        Nodes that bring their embeddings may be added where the model's server is out of reach.
        """
        model = self.parts.preparation.embed_model
        try:
            return embed_model_dimension(model) or len(model.get_text_embedding("dimension"))
        except Exception as error:  # noqa: BLE001 - of any model
            _logger.warning(
                "%s cannot be asked for the dimension of its vectors, which is now that of the "
                "nodes: %s",
                embed_model_name(model),
                error,
            )
            return None


def _embeddings(nodes: Iterable[BaseNode]) -> Embeddings:
    """Return the embeddings of nodes by the text that was embedded."""
    return {node.get_content(MetadataMode.EMBED): node.get_embedding() for node in nodes}


class Tally:
    """Collects the outcomes of one call."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._counts = dict.fromkeys(WriteOutcome, 0)
        self._skipped: dict[str, str] = {}
        self._failures: dict[str, Exception] = {}
        self._n_nodes = 0
        self._seen: dict[DocumentKey, str] = {}

    def is_new(self, document: SourceDocument) -> bool:
        """Return whether this is the first document with its key; further ones fail."""
        if document.key not in self._seen:
            self._seen[document.key] = document.version
            return True
        if self._seen[document.key] == document.version:
            self.unchanged()
            return False
        ref = document.key.ref
        self.failed(
            ref,
            DuplicateNodeError(
                f"document {ref!r} was given twice in one call, with different content; the first "
                "was taken. Give each its own id, or all nodes of a document in a row",
                ref,
            ),
        )
        return False

    def failed(self, ref: str, error: Exception) -> None:
        """Record a document that could not be added."""
        self._failures[ref] = error

    def skipped(self, ref: str, reason: str) -> None:
        """Record a document with nothing to store."""
        self._skipped[ref] = reason

    def unchanged(self) -> None:
        """Record a document that is already stored in this version."""
        self._counts[WriteOutcome.UNCHANGED] += 1

    def stored(self, key: DocumentKey, outcome: WriteOutcome | Exception, n_nodes: int) -> None:
        """Record a document that was written, or the error."""
        if isinstance(outcome, Exception):
            self.failed(key.ref, outcome)
            return
        self._counts[outcome] += 1
        if outcome is not WriteOutcome.UNCHANGED:
            self._n_nodes += n_nodes

    def merge(self, report: IngestionReport) -> None:
        """Add the report of another process."""
        self._counts[WriteOutcome.ADDED] += report.added
        self._counts[WriteOutcome.UPDATED] += report.updated
        self._counts[WriteOutcome.UNCHANGED] += report.unchanged
        self._skipped.update(report.skipped)
        self._failures.update(report.failures)
        self._n_nodes += report.n_nodes

    def report(self) -> IngestionReport:
        """Return the report."""
        return IngestionReport(
            added=self._counts[WriteOutcome.ADDED],
            updated=self._counts[WriteOutcome.UPDATED],
            unchanged=self._counts[WriteOutcome.UNCHANGED],
            skipped=dict(self._skipped),
            failures=dict(self._failures),
            n_nodes=self._n_nodes,
            seconds=perf_counter() - self._started,
        )
