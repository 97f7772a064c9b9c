"""`Addition`: one call of ``KnowledgeBase.add``, or of what adds documents as it does."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.embeddings.resolve import embed_model_dimension, embed_model_name
from llama_retrieval_ext.errors import DimensionMismatchError, ModelMismatchError
from llama_retrieval_ext.knowledge_base.dating import AS_IT_IS, Dating
from llama_retrieval_ext.knowledge_base.documents import (
    Allowed,
    ReaderIds,
    SourceDocument,
    allowed_names,
)
from llama_retrieval_ext.knowledge_base.graph import GraphTarget
from llama_retrieval_ext.knowledge_base.groups import (
    Group,
    character_bar,
    group_batches,
    grouped,
    size_of,
)
from llama_retrieval_ext.knowledge_base.ledger.journal import WriteOutcome
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    DocumentKey,
    Prepared,
    Writable,
    content_of,
)
from llama_retrieval_ext.knowledge_base.long_texts import Watch
from llama_retrieval_ext.knowledge_base.preparation import Embeddings, Preparation, PreparedBatch
from llama_retrieval_ext.knowledge_base.readers.document_list import DocumentList
from llama_retrieval_ext.knowledge_base.report import IngestionReport, Tally
from llama_retrieval_ext.knowledge_base.sharing import Sharing
from llama_retrieval_ext.knowledge_base.splitting import NodeIds
from llama_retrieval_ext.knowledge_base.write import Writer

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IngestionParts:
    """The components that add documents."""

    preparation: Preparation
    writer: Writer
    ledger: Ledger
    sharing: Sharing
    nodes: Callable[[Sequence[str]], Iterable[BaseNode]]  # the stored nodes with some ids
    record_dimension: Callable[[int], None]  # before the first vector is stored
    extracted: GraphTarget | None = None  # the graph, if an extractor writes to it, too
    reader_ids: ReaderIds = field(default_factory=ReaderIds)


class Predecessor(NamedTuple):
    """The stored document that a document was before it moved."""

    key: DocumentKey
    is_current: bool  # whether it was split and extracted as documents are now


class Addition:
    """Adds documents batch by batch; records failures and stores the rest.

    `run` performs all steps. `changed_in` or `changed`, then `store` are the single steps, for
    callers that prepare documents in other processes. The scope is the metadata of the caller's.
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
        with character_bar(groups, show=show_progress) as bar:
            end = 0

            def watch(n_characters: float) -> None:
                """Move the bar by half of the characters when split, by half when embedded."""
                bar.update(min(n_characters / 2, end - bar.n))

            for batch in group_batches(groups):
                end = bar.n + sum(map(size_of, batch))
                self.write(self.changed_in(batch), watch=watch)
                bar.update(end - bar.n)
        return self.tally.report()

    def changed_in(self, groups: Iterable[Group]) -> list[SourceDocument]:
        """Return the documents in groups of nodes that are not stored in this version."""
        return self.changed(self.identified(groups))

    def identified(self, groups: Iterable[Group]) -> list[SourceDocument]:
        """Return the documents in groups of nodes, with their ids and digests."""
        stable = self.parts.reader_ids.stable
        recognised = (
            [stable(node, self.scope, self._occurrences) for node in group] for group in groups
        )
        return self.parts.preparation.identified(
            recognised, self.scope, self.tally.failed, self.allowed, self.dating
        )

    def changed(self, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        """Return the documents whose content is not stored, by keys and digests.

        Those that only name other principals than before are shared with them.
        """
        new = [document for document in documents if self.tally.is_new(document)]
        versions = self.parts.ledger.digests(document.key for document in new)
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
        shared = set()
        for key, outcome in self.parts.sharing.share_keys(names).items():
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
        """Prepare and store documents, each long one by itself; arguments as of `prepared`."""
        for key, origin in moved.items():
            self._before[key] = origin.key
        for is_long, group in groupby(documents, attrgetter("is_long")):
            if not is_long:
                self.store(self.prepared([*group], moved, watch))
                continue
            for document in group:
                with TemporaryFile() as file:
                    self.store(self._spooled(document, file, moved.get(document.key), watch))

    def _spooled(
        self, document: SourceDocument, file: IO[bytes], origin: Predecessor | None, watch: Watch
    ) -> PreparedBatch:
        """Return a long document ready to be stored, with its nodes in a file."""
        before = self._before.get(document.key, document.key)
        stored = {*self.parts.ledger.node_ids([before]).get(before, ())}
        ids = NodeIds(before)

        def before_of(part: Prepared) -> tuple[Embeddings, Mapping[str, str]]:
            same = [ids.next(node.get_content(MetadataMode.NONE)) for node in part.nodes]
            old = list(self.parts.nodes([node_id for node_id in same if node_id in stored]))
            return _embeddings(old), self._moved_rows(origin, old, part)

        return self.parts.preparation.spooled(document, file, before_of, watch)

    def prepared(
        self,
        documents: Sequence[SourceDocument],
        moved: Mapping[DocumentKey, Predecessor] = MappingProxyType({}),
        watch: Watch = float,
    ) -> PreparedBatch:
        """Return documents ready to be stored; text that is stored already is not embedded again.

        `moved` has the documents whose content some of them have; `watch` is called as by
        `Preparation.prepared`.
        """
        before = [
            self._before[document.key]
            for document in documents
            if document.key in self._before
            and (document.key in moved or any(n.embedding is None for n in document.nodes))
        ]
        ids = self.parts.ledger.node_ids(before) if before else {}
        read = self.parts.nodes([id_ for node_ids in ids.values() for id_ in node_ids])
        stored = {node.node_id: node for node in read}

        def rows(document: Prepared) -> Mapping[str, str]:
            origin = moved.get(document.key)
            old = [] if origin is None else ids.get(origin.key, [])
            return self._moved_rows(origin, [stored[i] for i in old if i in stored], document)

        return self.parts.preparation.prepared(
            documents, _embeddings(stored.values()), watch, rows if moved else None
        )

    def _moved_rows(
        self, origin: Predecessor | None, before: Sequence[BaseNode], document: Prepared
    ) -> Mapping[str, str]:
        """Return what extractors found in a document before it moved; empty if that is unknown."""
        if self.parts.extracted is None or origin is None or not origin.is_current:
            return {}
        return self.parts.extracted.moved_rows(before, document.nodes)

    def store(self, batch: PreparedBatch) -> None:
        """Write prepared documents and record the outcome of each."""
        ready: list[Writable] = []
        for key, result in batch.results.items():
            if isinstance(result, Exception):
                self.tally.failed(key.ref, result)
            elif result.node_ids:
                ready.append(result)
            else:
                self._skip(key)
        if not ready:
            return
        with self.parts.writer.lock:
            fitting = self._fitting(self._as_visible_as_before(ready), batch.dimension)
            if batch.splitting not in ("", self._splitting):
                self._splitting = batch.splitting
                self.parts.ledger.record_splitting(batch.splitting)
            outcomes = self.parts.writer.write(fitting)
        for document, outcome in zip(fitting, outcomes, strict=True):
            self.tally.stored(document.key, outcome, len(document.node_ids))

    def _as_visible_as_before(self, documents: Sequence[Writable]) -> list[Writable]:
        """Return the documents; new versions that name no principals keep those of the old ones.

        A document that has moved keeps its own, if another process has just restricted it; else
        those of the document that it replaces, also if this was deleted meanwhile.
        """
        keys = {document.key for document in documents if document.keeps_allowed}
        kept = self.parts.ledger.allowed(keys | {self._before.get(key, key) for key in keys})
        visible: list[Writable] = []
        for document in documents:
            key = document.key
            names = kept.get(self._before.get(key, key)) or kept.get(key)
            names = names or self.principals.get(key)
            if names and document.keeps_allowed:
                visible.append(document.shared(names))
            else:
                visible.append(document)
        return visible

    def _skip(self, key: DocumentKey) -> None:
        self.tally.skipped(key.ref, "no text")
        try:
            self.parts.writer.delete([key])
        except Exception as error:  # noqa: BLE001 - the report carries it
            self.tally.failed(key.ref, error)

    def _fitting(self, documents: Sequence[Writable], made: int | None) -> list[Writable]:
        """Return the documents whose embeddings have the dimension of the knowledge base."""
        recorded = self.parts.ledger.dimension()
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
            for other, node_id in document.dimensions.items():
                if other != dimension:
                    error = DimensionMismatchError(
                        f"the embedding of node {node_id!r} has {other} numbers, the knowledge "
                        f"base has {dimension}; leave it out and it is made"
                    )
                    self.tally.failed(document.key.ref, error)
                    break
            else:
                fitting.append(document)
        if fitting and recorded is None:
            self.parts.record_dimension(dimension)
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
