"""One call of ``KnowledgeBase.add``, step by step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from time import perf_counter
from typing import TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError, ModelMismatchError
from llama_retrieval_ext.ingest.documents import (
    DocumentKey,
    Prepared,
    SourceDocument,
    identified,
    ref_of,
    stamped,
)
from llama_retrieval_ext.ingest.extraction import Extraction
from llama_retrieval_ext.ingest.journal import WriteOutcome
from llama_retrieval_ext.ingest.ledger import Ledger
from llama_retrieval_ext.ingest.readers import ReaderIds
from llama_retrieval_ext.ingest.report import IngestionReport, progress
from llama_retrieval_ext.ingest.transform import Embedder, Splitter, batched, check_dimension
from llama_retrieval_ext.ingest.write import Writer

Group = list[BaseNode]

# A batch is 64 documents to be split, or 4,096 nodes: enough for embedding models and engines to
# work at their pace and for the flush behind each batch not to count, and little to do again when
# the process dies.
_BATCH_WEIGHT = 4096
_DOCUMENT_WEIGHT = 64


def grouped(items: Iterable[object]) -> Sequence[Group] | Iterator[Group]:
    """Groups of one ``Document``, or of the nodes of one document.

    Of a list or tuple, the nodes of a document are gathered wherever they stand. An iterator is
    not read ahead: there, they are those that follow each other.

    Args:
        items: LlamaIndex documents and nodes, mixed as they come.

    Raises:
        ConfigurationError: Something is neither.
    """
    if isinstance(items, str | BaseNode) or not isinstance(items, Iterable):
        raise ConfigurationError(
            f"expected documents or nodes, got one {type(items).__name__}; write [...] around it"
            + (", as Document(text=...)" if isinstance(items, str) else "")
        )
    named = _named(items)
    if not isinstance(items, Sequence):
        return ([node for _, node in group] for _, group in groupby(named, lambda each: each[0]))
    groups: dict[object, Group] = {}
    for name, node in named:
        groups.setdefault(name, []).append(node)
    return list(groups.values())


def _weight(group: Group) -> int:
    return _DOCUMENT_WEIGHT if isinstance(group[0], Document) else len(group)


def _named(items: Iterable[object]) -> Iterator[tuple[object, BaseNode]]:
    numbers = count()
    for item in items:
        if not isinstance(item, BaseNode):
            raise ConfigurationError(
                f"expected LlamaIndex documents or nodes, got {type(item).__name__}; "
                "for text write Document(text=..., id_=...)"
            )
        # Documents are never taken together, even with the same id: which would be the right one?
        yield next(numbers) if isinstance(item, Document) else name_of(item), item


def name_of(node: BaseNode) -> str:
    """The id of the document a node belongs to, as far as it has one."""
    try:
        return ref_of(node)
    except ValueError:  # it has several sources, which is reported as its failure later
        return node.node_id


@dataclass(frozen=True, slots=True)
class IngestionParts:
    """What documents pass through on their way in."""

    splitter: Splitter
    embed_model: BaseEmbedding
    writer: Writer
    ledger: Ledger
    reader_ids: ReaderIds = field(default_factory=ReaderIds)
    extraction: Extraction | None = None


class Addition:
    """Adds documents, batch by batch: what fails is noted, the rest goes in.

    Args:
        workshop: What documents pass through.
        scope: The metadata that the caller's scope stands for; empty for none.
    """

    def __init__(self, workshop: IngestionParts, scope: Mapping[str, str]) -> None:
        self._parts = workshop
        self._scope = scope
        self._embedder = Embedder(workshop.embed_model)
        self._tally = Tally()
        self._occurrences: Counter[object] = Counter()

    def run(self, items: Iterable[object], *, show_progress: bool) -> IngestionReport:
        """What came of each document.

        Raises:
            ConfigurationError: Something is neither a document nor a node.
            ModelMismatchError: The embedding model gives vectors of another dimension.
            StoreUnavailableError: The store takes no more; what it has taken stays.
        """
        groups = grouped(items)
        with progress(groups, show=show_progress) as advance:
            for batch in batched(groups, _weight, _BATCH_WEIGHT):
                self._add(batch)
                advance(len(batch))
        return self._tally.report()

    def _add(self, groups: Sequence[Group]) -> None:
        changed = self._changed(self._identified(groups))
        prepared = self._prepared(changed)
        ready = self._passed(prepared, self._embedder.embedded(prepared))
        if self._parts.extraction is not None:
            ready = self._passed(ready, self._parts.extraction.extracted(ready))
        self._write(ready)

    def _passed(
        self, documents: Sequence[Prepared], results: Sequence[Prepared | Exception]
    ) -> list[Prepared]:
        return self._tally.passed([each.key for each in documents], results)

    def _identified(self, groups: Sequence[Group]) -> list[SourceDocument]:
        found: list[SourceDocument] = []
        for group in map(self._recognised, groups):
            is_whole = isinstance(group[0], Document)
            fingerprint = self._parts.splitter.fingerprint if is_whole else ""
            if self._parts.extraction is not None:
                fingerprint += self._parts.extraction.fingerprint
            try:
                found += identified(group, scope=self._scope, fingerprint=fingerprint)
            except Exception as error:  # noqa: BLE001 - the report carries it
                self._tally.failed(name_of(group[0]), error)
        return [each for each in found if self._tally.is_new(each)]

    def _recognised(self, group: Group) -> Group:
        stable = self._parts.reader_ids.stable
        return [stable(node, self._scope, self._occurrences) for node in group]

    def _changed(self, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        digests = self._parts.ledger.digests(each.key for each in documents)
        changed: list[SourceDocument] = []
        for document, digest in zip(documents, digests, strict=True):
            if digest == document.digest:
                self._tally.unchanged()
            else:
                changed.append(document)
        return changed

    def _prepared(self, documents: Sequence[SourceDocument]) -> list[Prepared]:
        made = self._parts.splitter.nodes_of(documents)
        prepared: list[Prepared] = []
        for document, nodes in zip(documents, made, strict=True):
            try:
                prepared += self._ready(document, nodes)
            except Exception as error:  # noqa: BLE001 - the report carries it
                self._tally.failed(document.key.ref, error)
        return prepared

    def _ready(
        self, document: SourceDocument, nodes: tuple[BaseNode, ...] | Exception
    ) -> list[Prepared]:
        if isinstance(nodes, Exception):
            raise nodes
        told = tuple(stamped(node, document.key) for node in nodes if _says_something(node))
        if told:
            return [Prepared(document.key, document.digest, told)]
        self._tally.skipped(document.key.ref, "no text")
        self._parts.writer.delete([document.key])
        return []

    def _write(self, documents: Sequence[Prepared]) -> None:
        if not documents:
            return
        with self._parts.writer.lock:
            fitting = self._fitting(documents)
            outcomes = self._parts.writer.write(fitting)
        for document, outcome in zip(fitting, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._tally.failed(document.key.ref, outcome)
            else:
                self._tally.stored(document, outcome)

    def _fitting(self, documents: Sequence[Prepared]) -> list[Prepared]:
        """The documents whose embeddings have the dimension of the knowledge base."""
        made = self._embedder.dimension
        recorded = self._parts.ledger.dimension()
        dimension = recorded or made or len(documents[0].nodes[0].get_embedding())
        if made not in (None, dimension):
            raise ModelMismatchError(
                f"the embedding model gives vectors of dimension {made}, the knowledge base holds "
                f"vectors of dimension {dimension}; open it with the model that made those"
            )
        if recorded is None:
            self._parts.ledger.record_dimension(dimension)
        fitting: list[Prepared] = []
        for document in documents:
            try:
                check_dimension(document, dimension)
            except ValueError as error:
                self._tally.failed(document.key.ref, error)
            else:
                fitting.append(document)
        return fitting


def _says_something(node: BaseNode) -> bool:
    """Whether there is anything to find it by."""
    return node.embedding is not None or bool(node.get_content(MetadataMode.NONE).strip())


T = TypeVar("T")


class Tally:
    """The report in the making."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._counts = dict.fromkeys(WriteOutcome, 0)
        self._skipped: dict[str, str] = {}
        self._failures: dict[str, Exception] = {}
        self._n_nodes = 0
        self._seen: dict[DocumentKey, str] = {}

    def is_new(self, document: SourceDocument) -> bool:
        """Whether this is the first document of its key; another with the same key fails."""
        if document.key not in self._seen:
            self._seen[document.key] = document.digest
            return True
        if self._seen[document.key] == document.digest:
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

    def passed(self, keys: Iterable[DocumentKey], results: Iterable[T | Exception]) -> list[T]:
        """The results that are none of them errors; the errors are noted."""
        passed: list[T] = []
        for key, result in zip(keys, results, strict=True):
            if isinstance(result, Exception):
                self.failed(key.ref, result)
            else:
                passed.append(result)
        return passed

    def failed(self, ref: str, error: Exception) -> None:
        """Note a document that could not be added."""
        self._failures[ref] = error

    def skipped(self, ref: str, reason: str) -> None:
        """Note a document with nothing to store."""
        self._skipped[ref] = reason

    def unchanged(self) -> None:
        """Note a document that is there already."""
        self._counts[WriteOutcome.UNCHANGED] += 1

    def stored(self, document: Prepared, outcome: WriteOutcome) -> None:
        """Note a document that is there now."""
        self._counts[outcome] += 1
        if outcome is not WriteOutcome.UNCHANGED:
            self._n_nodes += len(document.nodes)

    def report(self) -> IngestionReport:
        """What came of all of them."""
        return IngestionReport(
            added=self._counts[WriteOutcome.ADDED],
            updated=self._counts[WriteOutcome.UPDATED],
            unchanged=self._counts[WriteOutcome.UNCHANGED],
            skipped=dict(self._skipped),
            failures=dict(self._failures),
            n_nodes=self._n_nodes,
            seconds=perf_counter() - self._started,
        )
