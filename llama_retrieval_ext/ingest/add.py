"""One call of ``KnowledgeBase.add``, step by step."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from time import perf_counter

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError, ModelMismatchError
from llama_retrieval_ext.ingest.documents import DocumentKey, Prepared, SourceDocument, ref_of
from llama_retrieval_ext.ingest.ledger.journal import WriteOutcome
from llama_retrieval_ext.ingest.ledger.ledger import Ledger
from llama_retrieval_ext.ingest.preparation import Batch, Preparation
from llama_retrieval_ext.ingest.readers.files import ReaderIds
from llama_retrieval_ext.ingest.report import IngestionReport, progress
from llama_retrieval_ext.ingest.transform import batched, check_dimension
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


def group_batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Yield groups in batches that are written at once."""
    return batched(groups, _weight, _BATCH_WEIGHT)


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

    preparation: Preparation
    writer: Writer
    ledger: Ledger
    reader_ids: ReaderIds = field(default_factory=ReaderIds)


class Addition:
    """Adds documents, batch by batch: what fails is noted, the rest goes in.

    `run` does all of it. `identified`, `changed` and `store` are its steps, for those who prepare
    documents in other processes.

    Args:
        parts: What documents pass through.
        scope: The metadata that the caller's scope stands for; empty for none.

    Attributes:
        parts: Likewise.
        scope: Likewise.
        tally: What came of documents so far.
    """

    def __init__(self, parts: IngestionParts, scope: Mapping[str, str]) -> None:
        self.parts = parts
        self.scope = scope
        self.tally = Tally()
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
            for batch in group_batches(groups):
                changed = self.changed(self.identified(batch))
                self.store(self.parts.preparation.prepared(changed))
                advance(len(batch))
        return self.tally.report()

    def identified(self, groups: Sequence[Group]) -> list[SourceDocument]:
        """The documents in groups of nodes; those that cannot be identified are noted."""
        found: list[SourceDocument] = []
        for group in map(self._recognised, groups):
            try:
                found += self.parts.preparation.identified(group, self.scope)
            except Exception as error:  # noqa: BLE001 - the report carries it
                self.tally.failed(name_of(group[0]), error)
        return found

    def _recognised(self, group: Group) -> Group:
        stable = self.parts.reader_ids.stable
        return [stable(node, self.scope, self._occurrences) for node in group]

    def changed(self, documents: Sequence[SourceDocument]) -> list[SourceDocument]:
        """Those that the ledger does not have just so; the others are noted.

        Of each only the key and the digest are looked at.
        """
        new = [each for each in documents if self.tally.is_new(each)]
        digests = self.parts.ledger.digests(each.key for each in new)
        changed: list[SourceDocument] = []
        for document, digest in zip(new, digests, strict=True):
            if digest == document.digest:
                self.tally.unchanged()
            else:
                changed.append(document)
        return changed

    def store(self, batch: Batch) -> None:
        """Write what is ready, and note what came of each document.

        Raises:
            ModelMismatchError: The embedding model gives vectors of another dimension.
            StoreUnavailableError: The store takes no more.
        """
        ready: list[Prepared] = []
        for key, result in batch.results.items():
            if isinstance(result, Exception):
                self.tally.failed(key.ref, result)
            elif result.nodes:
                ready.append(result)
            else:
                self._skip(key)
        if not ready:
            return
        with self.parts.writer.lock:
            fitting = self._fitting(ready, batch.dimension)
            outcomes = self.parts.writer.write(fitting)
        for document, outcome in zip(fitting, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self.tally.failed(document.key.ref, outcome)
            else:
                self.tally.stored(document, outcome)

    def _skip(self, key: DocumentKey) -> None:
        self.tally.skipped(key.ref, "no text")
        try:
            self.parts.writer.delete([key])
        except Exception as error:  # noqa: BLE001 - the report carries it
            self.tally.failed(key.ref, error)

    def _fitting(self, documents: Sequence[Prepared], made: int | None) -> list[Prepared]:
        """The documents whose embeddings have the dimension of the knowledge base."""
        recorded = self.parts.ledger.dimension()
        dimension = recorded or made or len(documents[0].nodes[0].get_embedding())
        if made not in (None, dimension):
            raise ModelMismatchError(
                f"the embedding model gives vectors of dimension {made}, the knowledge base holds "
                f"vectors of dimension {dimension}; open it with the model that made those"
            )
        if recorded is None:
            self.parts.ledger.record_dimension(dimension)
        fitting: list[Prepared] = []
        for document in documents:
            try:
                check_dimension(document, dimension)
            except ValueError as error:
                self.tally.failed(document.key.ref, error)
            else:
                fitting.append(document)
        return fitting


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

    def merge(self, report: IngestionReport) -> None:
        """Note what another process says of documents that it has written."""
        self._counts[WriteOutcome.ADDED] += report.added
        self._counts[WriteOutcome.UPDATED] += report.updated
        self._counts[WriteOutcome.UNCHANGED] += report.unchanged
        self._skipped.update(report.skipped)
        self._failures.update(report.failures)
        self._n_nodes += report.n_nodes

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
